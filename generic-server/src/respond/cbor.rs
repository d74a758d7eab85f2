//! Answers in CBOR: from objects by the schema of their kind, where that is a built-in one.

use machinery::ApiError;
use machinery::codec::cbor;
use serde_json::Value;

use super::protobuf::schema;

/// Compact JSON of an object, as a document.
pub(crate) fn of_json(text: &[u8]) -> Result<Vec<u8>, ApiError> {
    let object: Value = serde_json::from_slice(text).map_err(ApiError::internal)?;
    let schema = schema(
        machinery::meta::api_version(&object),
        machinery::meta::kind(&object),
    );
    Ok(match schema {
        Some(schema) => cbor::encode_typed(schema.root(), &object),
        None => cbor::encode(&object),
    })
}

/// Appends an event of a watch, a document that holds the object's.
pub(crate) fn event(out: &mut Vec<u8>, kind: &str, object: &[u8]) -> Result<(), ApiError> {
    let object = of_json(object)?;
    out.extend_from_slice(cbor::PREFIX);
    cbor::map_head(out, 2);
    cbor::write_key(out, "type");
    cbor::write_key(out, kind);
    cbor::write_key(out, "object");
    out.extend_from_slice(&object);
    Ok(())
}
