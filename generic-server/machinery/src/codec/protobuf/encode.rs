//! Objects to messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::codec::typed;
use crate::schema::{FieldDef, Format, SchemaRef, Type};
use crate::time::Timestamp;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    varint(out, u64::from(number << 3 | wire));
}

pub(super) fn bytes_field(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    tag(out, number, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn int_field(out: &mut Vec<u8>, number: u32, value: i64) {
    tag(out, number, VARINT);
    varint(out, value.cast_unsigned());
}

/// A field that is a message written by `write`; its length is put in front afterwards.
fn message_field(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, number, BYTES);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    let mut prefix = Vec::with_capacity(5);
    varint(&mut prefix, length as u64);
    out.splice(start..start, prefix);
}

/// The length of a field of this many bytes whose tag takes one byte.
pub(super) fn bytes_field_len(bytes: usize) -> usize {
    let bits = usize::BITS - bytes.leading_zeros();
    1 + bits.div_ceil(7).max(1) as usize + bytes
}

/// The fields after the content: no encoding, no content type.
pub(super) const ENVELOPE_END: &[u8] = &[3 << 3 | 2, 0, 4 << 3 | 2, 0];

pub(super) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = open_envelope(api_version, kind, raw, 0);
    out.extend_from_slice(ENVELOPE_END);
    out
}

/// An envelope up to its content, which is `begin` and `rest` more bytes.
pub(super) fn open_envelope(api_version: &str, kind: &str, begin: &[u8], rest: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(begin.len() + api_version.len() + kind.len() + 32);
    out.extend_from_slice(super::PREFIX);
    message_field(&mut out, 1, |out| {
        bytes_field(out, 1, api_version.as_bytes());
        bytes_field(out, 2, kind.as_bytes());
    });
    tag(&mut out, 2, BYTES);
    varint(&mut out, (begin.len() + rest) as u64);
    out.extend_from_slice(begin);
    out
}

/// A message whose only field, number 1, is these bytes (`RawExtension`, `FieldsV1`, `JSON`).
pub(super) fn message_of_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 6);
    bytes_field(&mut out, 1, bytes);
    out
}

/// The message of an object of a built-in type, without an envelope. Members without a schema are left out.
pub fn encode_message(schema: SchemaRef<'_>, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    message(&mut out, schema, value);
    out
}

/// The content of a message for `value`.
fn message(out: &mut Vec<u8>, schema: SchemaRef<'_>, value: &Value) {
    let node = schema.node();
    match &node.format {
        Some(Format::DateTime) => {
            if let Some(time) = value.as_str().and_then(Timestamp::parse_rfc3339) {
                int_field(out, 1, time.unix());
                int_field(out, 2, 0);
            }
        }
        Some(Format::MicroTime) => {
            if let Some(time) = value.as_str().and_then(Timestamp::parse_micro) {
                int_field(out, 1, time.unix());
                int_field(out, 2, i64::from(time.subsec_nanos() / 1000 * 1000));
            }
        }
        Some(Format::Quantity) => bytes_field(out, 1, value.as_str().unwrap_or("0").as_bytes()),
        Some(Format::Raw) => {
            if !value.is_null() {
                bytes_field(out, 1, value.to_string().as_bytes());
            }
        }
        Some(Format::WrappedStrings) => {
            for item in value.as_array().into_iter().flatten() {
                bytes_field(out, 1, item.as_str().unwrap_or_default().as_bytes());
            }
        }
        Some(Format::SchemaOrBool) => {
            int_field(out, 1, i64::from(value != &Value::Bool(false)));
            if let Value::Object(map) = value {
                message_field(out, 2, |out| fields(out, schema, &node.wire, 0, map));
            }
        }
        Some(Format::SchemaOrArray) => match value {
            Value::Object(map) => message_field(out, 1, |out| fields(out, schema, &node.wire, 0, map)),
            Value::Array(items) => {
                for map in items.iter().filter_map(Value::as_object) {
                    message_field(out, 2, |out| fields(out, schema, &node.wire, 0, map));
                }
            }
            _ => {}
        },
        Some(Format::SchemaOrStrings) => match value {
            Value::Object(map) => message_field(out, 1, |out| fields(out, schema, &node.wire, 0, map)),
            Value::Array(items) => {
                for item in items {
                    bytes_field(out, 2, item.as_str().unwrap_or_default().as_bytes());
                }
            }
            _ => {}
        },
        _ if node.ty == Type::IntOrString => {
            let text = value.as_str();
            int_field(out, 1, i64::from(text.is_some()));
            int_field(out, 2, value.as_i64().unwrap_or(0));
            bytes_field(out, 3, text.unwrap_or_default().as_bytes());
        }
        _ => {
            let empty = Map::new();
            fields(out, schema, &node.wire, 0, value.as_object().unwrap_or(&empty));
        }
    }
}

/// The fields of a message: `wire` are those that share the first `level` numbers of their path.
fn fields(out: &mut Vec<u8>, schema: SchemaRef<'_>, wire: &[u16], level: usize, map: &Map<String, Value>) {
    let all = &schema.node().fields;
    let mut at = 0;
    while at < wire.len() {
        let field = &all[usize::from(wire[at])];
        let mut path = field.wire_path().skip(level);
        let Some(number) = path.next() else { break };
        if path.next().is_none() {
            self::field(out, schema.at(field.node), field, number, map.get(&*field.name));
            at += 1;
            continue;
        }
        let end = at
            + wire[at..]
                .iter()
                .take_while(|index| all[usize::from(**index)].wire_path().nth(level) == Some(number))
                .count();
        message_field(out, number, |out| {
            fields(out, schema, &wire[at..end], level + 1, map)
        });
        at = end;
    }
}

fn field(out: &mut Vec<u8>, schema: SchemaRef<'_>, field: &FieldDef, number: u32, value: Option<&Value>) {
    let node = schema.node();
    match value {
        None | Some(Value::Null) => {
            let absent_when_nil =
                node.ty == Type::Array || schema.additional().is_some() || node.format == Some(Format::Byte);
            if !field.pointer && !absent_when_nil {
                element(out, schema, number, &Value::Null);
            }
        }
        Some(Value::Array(items)) if node.ty == Type::Array && node.format.is_none() => {
            if let Some(item) = schema.items() {
                for value in items {
                    element(out, item, number, value);
                }
            }
        }
        Some(Value::Object(map)) if schema.additional().is_some() => {
            if let Some(values) = schema.additional() {
                for (key, value) in map {
                    message_field(out, number, |out| {
                        bytes_field(out, 1, key.as_bytes());
                        element(out, values, 2, value);
                    });
                }
            }
        }
        Some(value) => element(out, schema, number, value),
    }
}

/// One value, not a list or map; null is written as the zero value.
fn element(out: &mut Vec<u8>, schema: SchemaRef<'_>, number: u32, value: &Value) {
    let node = schema.node();
    let is_message = typed::is_struct(node)
        || node.ty == Type::IntOrString
        || node.ty == Type::Any
        || matches!(
            node.format,
            Some(Format::DateTime | Format::MicroTime | Format::Quantity | Format::WrappedStrings)
        );
    if is_message {
        return message_field(out, number, |out| message(out, schema, value));
    }
    match node.ty {
        Type::Boolean => int_field(out, number, i64::from(value.as_bool().unwrap_or(false))),
        Type::Integer => int_field(out, number, value.as_i64().unwrap_or(0)),
        Type::Number => {
            tag(out, number, FIXED64);
            out.extend_from_slice(&value.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        _ => {
            let text = value.as_str().unwrap_or_default();
            if node.format == Some(Format::Byte) {
                // Decoders of the other encodings let nothing else in.
                let bytes = STANDARD.decode(text).unwrap_or_default();
                bytes_field(out, number, &bytes);
            } else {
                bytes_field(out, number, text.as_bytes());
            }
        }
    }
}
