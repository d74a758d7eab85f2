//! Answers in protobuf: from objects by the schema of their kind. Only built-in kinds have one, and the views and Statuses of
//! all kinds.

use machinery::ApiError;
use machinery::codec::protobuf;
use machinery::schema::{KindSchema, builtin};
use serde_json::Value;

use crate::negotiate::BUILTIN_TYPES;

/// The schema of a kind that can be answered.
fn schema(api_version: &str, kind: &str) -> Option<KindSchema> {
    match api_version.split_once('/') {
        // The views of both versions are the same messages.
        Some(("meta.k8s.io", _)) => builtin().kind("meta.k8s.io", "v1", kind),
        Some((group, version)) => builtin().kind(group, version, kind),
        None => builtin().kind("", api_version, kind),
    }
}

fn schema_of(object: &Value) -> Result<KindSchema, ApiError> {
    schema(
        machinery::meta::api_version(object),
        machinery::meta::kind(object),
    )
    .ok_or_else(|| ApiError::not_acceptable(BUILTIN_TYPES))
}

/// An object in its envelope. 406 for kinds without a message.
pub(crate) fn object(object: &Value) -> Result<Vec<u8>, ApiError> {
    Ok(protobuf::encode(schema_of(object)?.root(), object))
}

/// Compact JSON of an object, in its envelope.
pub(crate) fn of_json(text: &[u8]) -> Result<Vec<u8>, ApiError> {
    object(&serde_json::from_slice(text).map_err(ApiError::internal)?)
}

/// A list in its envelope, of complete objects. 406 for kinds without a message.
pub(crate) fn list(
    api_version: &str,
    list_kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = Result<Value, ApiError>>,
) -> Result<Vec<u8>, ApiError> {
    let meta = builtin()
        .by_type_name("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
        .ok_or_else(|| ApiError::not_acceptable(BUILTIN_TYPES))?;
    let mut messages = Vec::new();
    let mut known: Option<KindSchema> = None;
    for item in items {
        let item = item?;
        let schema = match &known {
            Some(schema) => schema,
            None => known.insert(schema_of(&item)?),
        };
        messages.push(protobuf::encode_message(schema.root(), &item));
    }
    let metadata = protobuf::encode_message(meta.root(), metadata);
    Ok(protobuf::encode_list(
        api_version,
        list_kind,
        &metadata,
        messages.iter().map(Vec::as_slice),
    ))
}
