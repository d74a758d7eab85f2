//! How objects of a kind are read, whether they come from a client, from apply or from admission.

use std::sync::{Arc, LazyLock};

use machinery::apply::Applied;
use machinery::codec::{self, DecodeError, Decoded, StrictError};
use machinery::schema::{DefaultsGrowth, KindSchema, Node, NodeId, Schema, SchemaRef};
use machinery::{ApiError, custom};
use serde_json::Value;

/// How bodies of this resource are read.
#[derive(Debug, Clone)]
pub enum Decoding {
    /// A built-in kind: typed strictly by its schema, unknown fields dropped (or reported), protobuf offered.
    Builtin(KindSchema),
    /// A custom kind: pruned and defaulted by its structural schema.
    Custom(KindSchema),
    /// A custom kind that preserves unknown fields at its root and has no schema to speak of.
    Unstructured,
}

impl Decoding {
    /// The schema, where there is one.
    pub fn schema(&self) -> Option<&KindSchema> {
        match self {
            Decoding::Builtin(schema) | Decoding::Custom(schema) => Some(schema),
            Decoding::Unstructured => None,
        }
    }

    /// An object that admission has changed, read back as the kind.
    pub(crate) fn reread(&self, changed: Value) -> Result<Value, ApiError> {
        self.reread_by(changed, codec::typed::decode_builtin)
    }

    /// An object that apply has merged, read back as the kind. One of a custom kind is defaulted, if anything has changed, and not pruned: unknown
    /// fields and nulls are judged by its validation, and go when it is stored ([`Decoding::prune`]).
    pub(crate) fn reread_merged(&self, applied: Applied) -> Result<Value, ApiError> {
        let Applied { object, changed } = applied;
        let Decoding::Custom(schema) = self else {
            return self.reread_by(object, codec::typed::decode_merged);
        };
        let mut object = object;
        let failed = |error: String| ApiError::raw_internal(error);
        custom::coerce_metadata(schema.root(), &mut object, true, false)
            .map_err(|error| failed(error.to_string()))?;
        if changed {
            custom::default_decoded(schema.root(), &mut object).map_err(|error| failed(error.to_string()))?;
        }
        Ok(object)
    }

    /// Takes out of an object of a custom kind what its schema does not know.
    pub(crate) fn prune(&self, object: &mut Value) {
        if let Decoding::Custom(schema) = self {
            custom::prune(schema.root(), object, true);
            custom::prune_nulls(schema.root(), object);
        }
    }

    fn reread_by(
        &self,
        merged: Value,
        decode: fn(SchemaRef<'_>, Value) -> Result<Decoded, DecodeError>,
    ) -> Result<Value, ApiError> {
        let mut decoded = Decoded {
            value: merged,
            strict: Vec::new(),
        };
        let done = match self {
            Decoding::Builtin(schema) => decode(schema.root(), decoded.value).map(|reread| reread.value),
            Decoding::Custom(schema) => shape(Some(schema), &mut decoded).map(|()| decoded.value),
            Decoding::Unstructured => Ok(decoded.value),
        };
        done.map_err(|error| ApiError::raw_internal(error.to_string()))
    }
}

/// Prunes and defaults a custom object; its metadata, and that of objects embedded in it, is read as built-in metadata is.
pub(crate) fn shape(schema: Option<&KindSchema>, decoded: &mut Decoded) -> Result<(), DecodeError> {
    static ANYTHING: LazyLock<KindSchema> = LazyLock::new(|| {
        let arena = Schema {
            nodes: vec![Node::default()],
            root: Some(NodeId(0)),
            defaults: DefaultsGrowth::default(),
        };
        KindSchema::new(Arc::new(arena), NodeId(0))
    });
    let mut unknown = Vec::new();
    if let Some(schema) = schema {
        unknown = custom::prune(schema.root(), &mut decoded.value, true);
        custom::prune_nulls(schema.root(), &mut decoded.value);
    }
    let root = schema.unwrap_or(&*ANYTHING).root();
    let metadata = custom::coerce_metadata(root, &mut decoded.value, true, false)
        .map_err(|error| DecodeError::Type(error.to_string()))?;
    let (own, embedded): (Vec<_>, Vec<_>) = metadata
        .into_iter()
        .partition(|path| path.starts_with("metadata."));
    let unknown = own.into_iter().chain(unknown).chain(embedded);
    decoded.strict.extend(unknown.map(StrictError::Unknown));
    if let Some(schema) = schema {
        custom::default_decoded(schema.root(), &mut decoded.value)?;
    }
    Ok(())
}
