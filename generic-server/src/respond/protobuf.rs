//! Answers in protobuf: from objects by the schema of their kind. Only built-in kinds have one, and the views and Statuses of
//! all kinds.

use machinery::ApiError;
use machinery::codec::protobuf;
use machinery::schema::{KindSchema, builtin};
use serde_json::Value;

use crate::negotiate::BUILTIN_TYPES;

/// The schema of a kind that can be answered.
pub(crate) fn schema(api_version: &str, kind: &str) -> Option<KindSchema> {
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

/// The message of a list's metadata.
pub(crate) fn list_meta(metadata: &Value) -> Result<Vec<u8>, ApiError> {
    let meta = builtin()
        .by_type_name("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
        .ok_or_else(|| ApiError::not_acceptable(BUILTIN_TYPES))?;
    Ok(protobuf::encode_message(meta.root(), metadata))
}
