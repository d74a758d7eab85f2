//! Protobuf for built-in kinds: transcoding between objects and messages by the field numbers of the schema.
//!
//! The bytes are those of upstream's generated code: fields in the order of their numbers, plain fields always written,
//! pointers only when there, maps sorted by key. Types with a wire form of their own (times, quantities, raw JSON, schemas in
//! a CRD) are handled here by format. An object travels in an envelope (`runtime.Unknown` behind the four bytes `k8s\0`).

mod decode;
mod encode;
mod names;
mod wire;

use serde_json::Value;

use super::DecodeError;
use crate::schema::SchemaRef;

pub use decode::decode_message;
pub use encode::encode_message;

/// The first bytes of the encoded form of an object.
pub const PREFIX: &[u8; 4] = b"k8s\0";

/// An opened envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apiVersion` of the object inside.
    pub api_version: String,
    /// `kind` of the object inside.
    pub kind: String,
    /// The object's message, or JSON when `content_type` says so.
    pub raw: &'a [u8],
    /// The media type of `raw`; empty is protobuf.
    pub content_type: String,
}

/// Opens an envelope.
///
/// # Errors
/// When the bytes are not an envelope.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let Some(body) = bytes.strip_prefix(PREFIX) else {
        return Err(DecodeError::Syntax(if bytes.is_empty() {
            "empty data".into()
        } else {
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into()
        }));
    };
    if body.is_empty() {
        return Err(DecodeError::Syntax("empty body".into()));
    }
    decode::envelope(body)
}

/// Puts a message into an envelope.
pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    encode::envelope(api_version, kind, raw)
}

/// Encodes an object of a built-in kind with its envelope; `apiVersion` and `kind` are taken from the object.
pub fn encode(schema: SchemaRef<'_>, object: &Value) -> Vec<u8> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    seal(text("apiVersion"), text("kind"), &encode_message(schema, object))
}

/// Decodes an envelope and the object of a built-in kind in it, in the form the JSON decoder gives.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, DecodeError> {
    let envelope = open(bytes)?;
    let mut value = decode_message(schema, envelope.raw)?;
    if let Value::Object(map) = &mut value {
        map.insert("apiVersion".into(), envelope.api_version.into());
        map.insert("kind".into(), envelope.kind.into());
    }
    Ok(value)
}

/// A list in its envelope, made of its metadata's message and its items' messages (without envelopes).
pub fn encode_list<'a>(
    api_version: &str,
    kind: &str,
    list_meta: &[u8],
    items: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut content = Vec::new();
    for item in items {
        encode_list_item(&mut content, item);
    }
    let mut out = begin_list(api_version, kind, list_meta, content.len());
    out.extend_from_slice(&content);
    out.extend_from_slice(LIST_END);
    out
}

/// The bytes before the items of a list that is written piece by piece. `items_len` is the sum of [`list_item_len`] over its items.
pub fn begin_list(api_version: &str, kind: &str, list_meta: &[u8], items_len: usize) -> Vec<u8> {
    let mut content = Vec::new();
    encode::bytes_field(&mut content, 1, list_meta);
    encode::open_envelope(api_version, kind, &content, items_len)
}

/// Bytes that an item takes in a list whose message is this long.
pub fn list_item_len(message_len: usize) -> usize {
    encode::bytes_field_len(message_len)
}

/// Appends an item to a list.
pub fn encode_list_item(out: &mut Vec<u8>, message: &[u8]) {
    encode::bytes_field(out, 2, message);
}

/// The bytes after the items of a list.
pub const LIST_END: &[u8] = encode::ENVELOPE_END;

/// One frame of a watch stream: four bytes of length, then the event with the encoded object (envelope and all) in it.
pub fn encode_watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut event = vec![0; 4];
    encode::bytes_field(&mut event, 1, event_type.as_bytes());
    encode::bytes_field(&mut event, 2, &encode::message_of_bytes(object));
    let length = u32::try_from(event.len() - 4).unwrap_or(u32::MAX);
    event[..4].copy_from_slice(&length.to_be_bytes());
    event
}

#[cfg(test)]
mod tests;
