//! The one kind that this server serves: `Fish`, `fishes.sample.example.com`, with a status, at two versions: `v1`, which is
//! stored, and `v2`, which is converted.

use std::sync::Arc;

use generic_server::registry::config::StoreConfig;
use generic_server::registry::store::ObjectStore;
use generic_server::registry::strategy::{SelectableField, Strategy, WriteContext};
use generic_server::resource::{
    ALL_VERBS, Backend, Column, Conversion, Converter, Decoding, Names, Scope, ServedResource, Subresource,
    TableConvertor,
};
use generic_server::server::GroupSpec;
use machinery::schema::{KindSchema, NodeId, crd, validate};
use machinery::{
    ApiError, FieldError, FieldPath, GroupKind, GroupResource, GroupVersionKind, GroupVersionResource, meta,
};
use serde_json::{Value, json};
use storage::Store;

/// The group.
pub const GROUP: &str = "sample.example.com";
/// The first version, in which objects are stored.
pub const VERSION: &str = "v1";
/// The second version.
pub const SECOND_VERSION: &str = "v2";
/// The kind.
pub const KIND: &str = "Fish";

/// The schema of the kind at a version, as a CRD would state it: it decides what is decoded, pruned, defaulted and refused, and
/// is what OpenAPI says.
pub(crate) fn schema(version: &str) -> Value {
    let millimetres =
        json!({"description": "How long it is, in millimetres.", "type": "integer", "minimum": 1});
    let (length, how) = match version {
        VERSION => ("length", millimetres),
        _ => (
            "size",
            json!({"description": "How large it is.", "type": "object", "properties": {"millimetres": millimetres}}),
        ),
    };
    json!({
        "description": "A fish.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "description": "What the fish should be like.",
                "type": "object",
                "required": ["species"],
                "properties": {
                    "species": {"description": "What it is.", "type": "string", "minLength": 1},
                    length: how,
                    "water": {"description": "Where it lives.", "type": "string", "enum": ["Fresh", "Salt"], "default": "Fresh"},
                },
            },
            "status": {
                "description": "How the fish is doing.",
                "type": "object",
                "properties": {"phase": {"description": "Swimming or not.", "type": "string"}},
            },
        },
    })
}

/// The group with its one resource at both versions, over an engine. `None` when a schema does not compile, which a test rules
/// out.
pub(crate) fn group(engine: Arc<dyn Store>) -> Option<GroupSpec> {
    // One store for all versions: objects are kept in the first.
    let store = ObjectStore::new(
        engine,
        StoreConfig {
            resource: GroupResource::new(GROUP, "fishes"),
            kind: GroupKind::new(GROUP, KIND),
            prefix: format!("/registry/{GROUP}/fishes"),
            namespaced: true,
            fields: vec![SelectableField::path("spec.species")],
            ttl: None,
        },
    );
    let served = |version: &'static str| Some((version.into(), vec![resource(version, &store)?]));
    Some(GroupSpec {
        group: GROUP.into(),
        versions: vec![served(VERSION)?, served(SECOND_VERSION)?],
    })
}

fn resource(version: &str, store: &Arc<ObjectStore>) -> Option<Arc<ServedResource>> {
    let arena = Arc::new(crd::compile(&schema(version)).ok()?);
    let root = arena.root.unwrap_or(NodeId(0));
    let schema = KindSchema::new(arena, root);
    Some(Arc::new(ServedResource {
        gvr: GroupVersionResource::new(GROUP, version, "fishes"),
        gvk: GroupVersionKind::new(GROUP, version, KIND),
        names: Names {
            kind: KIND.into(),
            list_kind: "FishList".into(),
            singular: "fish".into(),
            short: vec!["fi".into()],
            categories: Vec::new(),
        },
        scope: Scope::Namespaced,
        decoding: Decoding::Custom(schema.clone()),
        strategy: Arc::new(FishStrategy(schema.clone())),
        backend: Backend::Stored(store.clone()),
        converter: (version != VERSION).then(|| Conversion::Rule(Arc::new(Sizes))),
        subresources: vec![(
            "status".into(),
            Subresource::View(Arc::new(StatusStrategy(schema))),
        )],
        table: Arc::new(FishTable::new()),
        verbs: ALL_VERBS,
        deprecation_warning: None,
        storage_version_hash: String::new(),
        custom: true,
    }))
}

/// Between the stored version, where the length is a number, and the second one, where it is in an object.
#[derive(Debug)]
struct Sizes;

impl Sizes {
    fn set_version(object: &mut Value, version: &str) {
        object["apiVersion"] = format!("{GROUP}/{version}").into();
    }
}

impl Converter for Sizes {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        Self::set_version(&mut object, SECOND_VERSION);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(length) = spec.remove("length")
        {
            spec.insert("size".into(), json!({"millimetres": length}));
        }
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        Self::set_version(&mut object, VERSION);
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(mut size) = spec.remove("size")
            && let Some(length) = size.get_mut("millimetres")
        {
            spec.insert("length".into(), length.take());
        }
        Ok(object)
    }
}

/// Writes of the object: the status is not the writer's, the schema judges.
#[derive(Debug)]
struct FishStrategy(KindSchema);

impl Strategy for FishStrategy {
    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object["status"] = json!({"phase": "Swimming"});
        meta::set(object, "generation", 1);
    }

    fn validate_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        validate::validate(self.0.root(), object, &FieldPath::ROOT)
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["status"] = old.get("status").cloned().unwrap_or_default();
        let changed = object.get("spec") != old.get("spec");
        meta::set(object, "generation", meta::generation(old) + i64::from(changed));
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        validate::validate_update(self.0.root(), object, old, &FieldPath::ROOT)
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn selectable_fields(&self) -> Vec<SelectableField> {
        vec![SelectableField::path("spec.species")]
    }
}

/// Writes of the status: nothing else is touched.
#[derive(Debug)]
struct StatusStrategy(KindSchema);

impl Strategy for StatusStrategy {
    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["spec"] = old.get("spec").cloned().unwrap_or_default();
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, old: &Value) -> Vec<FieldError> {
        validate::validate_update(self.0.root(), object, old, &FieldPath::ROOT)
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }
}

/// The table that `kubectl get` prints.
#[derive(Debug)]
struct FishTable(Vec<Column>);

impl FishTable {
    fn new() -> Self {
        let column = |name: &str, format: &str| Column {
            name: name.into(),
            kind: "string".into(),
            format: format.into(),
            description: String::new(),
            priority: 0,
        };
        FishTable(vec![
            column("Name", "name"),
            column("Species", ""),
            column("Phase", ""),
        ])
    }
}

impl TableConvertor for FishTable {
    fn columns(&self) -> &[Column] {
        &self.0
    }

    fn cells(&self, object: &Value, _ages: &machinery::table::Ages) -> Vec<Value> {
        vec![
            meta::name(object).into(),
            meta::dig_str(object, &["spec", "species"]).into(),
            meta::dig_str(object, &["status", "phase"]).into(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_compile() {
        assert!(group(storage::memory()).is_some());
    }

    #[test]
    fn versions_convert_both_ways() {
        let first = json!({"apiVersion": "sample.example.com/v1", "spec": {"species": "s", "length": 7}, "status": {}});
        let second = json!({"apiVersion": "sample.example.com/v2", "spec": {"species": "s", "size": {"millimetres": 7}}, "status": {}});
        assert_eq!(Sizes.from_stored(first.clone()).ok(), Some(second.clone()));
        assert_eq!(Sizes.to_stored(second).ok(), Some(first));
    }
}
