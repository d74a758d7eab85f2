//! Documents as protobuf, in gnostic's messages (`openapi.v2.Document`, `openapi.v3.Document`), which client-go asks for.
//!
//! Tables ([`v2`], [`v3`], and what both have in [`shared`]) say how a key of the JSON document travels; this file writes by them. Mirrors
//! `google/gnostic-models`. Members without a field in the messages are left out, as gnostic does.

mod shared;
mod v2;
mod v3;

use machinery::codec::yaml;
use serde_json::Value;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;

/// How a value travels.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Flag,
    Int,
    Double,
    /// Any value, as YAML.
    Any,
    Anys,
    /// A message whose only field, number 1, is the value itself.
    Wrapped(&'static Kind),
    One(&'static Message),
    Many(&'static Message),
    /// A message of one member, which depends on the value.
    Choice(Choose),
    Choices(Choose),
}

/// The member of a choice: its number, and how it travels.
type Choose = fn(&Value) -> Option<(u32, Kind)>;

/// Keys whose fields have consecutive numbers, from the first one's.
type Run = (u32, &'static [(&'static str, Kind)]);

/// How an object travels.
struct Message {
    /// Keys that are known.
    fields: &'static [Run],
    /// The number of the field for keys that begin with `x-`; 0 if they have no place.
    extensions: u32,
    /// The field for all other keys: pairs of a name and a value.
    others: Option<(u32, Kind)>,
}

impl Message {
    /// One of known keys and extensions.
    const fn known(fields: &'static [Run], extensions: u32) -> Self {
        Message {
            fields,
            extensions,
            others: None,
        }
    }

    /// One of named values.
    const fn map(kind: Kind) -> Self {
        Message {
            fields: &[],
            extensions: 0,
            others: Some((1, kind)),
        }
    }

    fn knows(&self, key: &str) -> bool {
        let mut keys = self.fields.iter().flat_map(|(_, keys)| *keys);
        keys.any(|(known, _)| *known == key)
    }
}

/// The v2 document as a message.
pub(super) fn v2(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, &v2::DOCUMENT, document);
    out
}

/// A v3 document as a message.
pub(super) fn v3(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, &v3::DOCUMENT, document);
    out
}

/// The fields of a v2 document whose members are written one by one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Section {
    Paths,
    Definitions,
    Parameters,
}

/// One member of a section of the v2 document, as it stands in the section's message.
pub(super) fn v2_member(section: Section, name: &str, value: &Value) -> Vec<u8> {
    let (number, kind) = match section {
        Section::Paths => (2, Kind::One(&v2::PATH_ITEM)),
        Section::Definitions => (1, Kind::One(&v2::SCHEMA)),
        Section::Parameters => (1, Kind::Choice(v2::parameter)),
    };
    let mut out = Vec::new();
    named(&mut out, number, name, &kind, value);
    out
}

/// A section of the v2 document made of its members.
pub(super) fn v2_section(out: &mut Vec<u8>, section: Section, members: &[Vec<u8>]) {
    let number = match section {
        Section::Paths => 8,
        Section::Definitions => 9,
        Section::Parameters => 10,
    };
    tag(out, number, BYTES);
    varint(out, members.iter().map(|member| member.len() as u64).sum());
    for member in members {
        out.extend_from_slice(member);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

fn tag(out: &mut Vec<u8>, number: u32, wire: u32) {
    varint(out, u64::from(number << 3 | wire));
}

fn bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    tag(out, number, BYTES);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A field that is a message; its length is put in front afterwards.
fn nested(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, number, BYTES);
    let start = out.len();
    write(out);
    let mut length = Vec::with_capacity(5);
    varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
}

fn message(out: &mut Vec<u8>, of: &Message, value: &Value) {
    let Some(map) = value.as_object() else {
        return;
    };
    for (first, keys) in of.fields {
        for (number, (key, kind)) in (*first..).zip(*keys) {
            if let Some(value) = map.get(*key) {
                field(out, number, kind, value, false);
            }
        }
    }
    for (key, value) in map {
        if key.starts_with("x-") && of.extensions > 0 {
            named(out, of.extensions, key, &Kind::Any, value);
        } else if let Some((number, kind)) = &of.others
            && !of.knows(key)
        {
            named(out, *number, key, kind, value);
        }
    }
}

fn named(out: &mut Vec<u8>, number: u32, name: &str, kind: &Kind, value: &Value) {
    nested(out, number, |out| {
        bytes(out, 1, name.as_bytes());
        field(out, 2, kind, value, false);
    });
}

fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// A field; zero values are left out unless the field is the member of a choice.
fn field(out: &mut Vec<u8>, number: u32, kind: &Kind, value: &Value, chosen: bool) {
    match kind {
        Kind::Text => {
            if let Some(text) = value.as_str().filter(|text| chosen || !text.is_empty()) {
                bytes(out, number, text.as_bytes());
            }
        }
        Kind::Texts => {
            for text in list(value).iter().filter_map(Value::as_str) {
                bytes(out, number, text.as_bytes());
            }
        }
        Kind::Flag => {
            if let Some(flag) = value.as_bool().filter(|flag| chosen || *flag) {
                tag(out, number, VARINT);
                out.push(flag.into());
            }
        }
        Kind::Int => {
            if let Some(n) = value.as_i64().filter(|n| chosen || *n != 0) {
                tag(out, number, VARINT);
                varint(out, n.cast_unsigned());
            }
        }
        Kind::Double => {
            if let Some(n) = value.as_f64().filter(|n| chosen || *n != 0.0) {
                tag(out, number, FIXED64);
                out.extend_from_slice(&n.to_le_bytes());
            }
        }
        Kind::Any => nested(out, number, |out| {
            bytes(out, 2, yaml::to_string(value).as_bytes())
        }),
        Kind::Anys => {
            for value in list(value) {
                field(out, number, &Kind::Any, value, false);
            }
        }
        Kind::Wrapped(kind) => nested(out, number, |out| field(out, 1, kind, value, false)),
        Kind::One(of) => nested(out, number, |out| message(out, of, value)),
        Kind::Many(of) => {
            for value in list(value) {
                nested(out, number, |out| message(out, of, value));
            }
        }
        Kind::Choice(choose) => nested(out, number, |out| {
            if let Some((number, kind)) = choose(value) {
                field(out, number, &kind, value, true);
            }
        }),
        Kind::Choices(choose) => {
            for value in list(value) {
                field(out, number, &Kind::Choice(*choose), value, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field of bytes, shorter than 128.
    fn wrap(number: u8, inner: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        bytes(&mut out, number.into(), inner);
        out
    }

    fn named_as(name: &str, inner: &[u8]) -> Vec<u8> {
        [wrap(1, name.as_bytes()), wrap(2, inner)].concat()
    }

    #[test]
    fn a_v2_document() {
        let document = json!({
            "swagger": "2.0",
            "paths": {"/a": {"parameters": [{"in": "path", "name": "n", "type": "string", "required": true}]}},
            "definitions": {"D": {"type": "object", "x-k": 1, "additionalProperties": false}},
        });
        let parameter = [
            &b"\x08\x01"[..],
            &wrap(2, b"path"),
            &wrap(4, b"n"),
            &wrap(5, b"string"),
        ]
        .concat();
        let parameter = wrap(9, &wrap(1, &wrap(2, &wrap(4, &parameter))));
        let definition = [
            wrap(21, b"\x10\x00"),
            wrap(22, &wrap(1, b"object")),
            wrap(31, &named_as("x-k", &wrap(2, b"1\n"))),
        ];
        let expected = [
            wrap(1, b"2.0"),
            wrap(8, &wrap(2, &named_as("/a", &parameter))),
            wrap(9, &wrap(1, &named_as("D", &definition.concat()))),
        ];
        assert_eq!(v2(&document), expected.concat());
    }

    #[test]
    fn a_v3_schema() {
        let document = json!({"components": {"schemas": {
            "A": {"$ref": "#/x"},
            "B": {"type": "array", "default": false, "items": {"nullable": true}},
            "C": {"default": {}},
        }}});
        let item = wrap(30, &wrap(1, &wrap(1, b"\x08\x01")));
        let members = [
            wrap(1, &named_as("A", &wrap(2, &wrap(1, b"#/x")))),
            wrap(
                1,
                &named_as(
                    "B",
                    &wrap(1, &[wrap(25, b"array"), item, wrap(33, b"\x10\x00")].concat()),
                ),
            ),
            wrap(1, &named_as("C", &wrap(1, &wrap(33, b"")))),
        ];
        assert_eq!(v3(&document), wrap(5, &wrap(1, &members.concat())));
    }

    #[test]
    fn sections_are_the_same_in_parts() {
        let (name, schema) = ("D", json!({"type": "string", "enum": ["a"]}));
        let whole = v2(&json!({"definitions": {name: schema}}));
        let member = v2_member(Section::Definitions, name, &schema);
        let mut parts = Vec::new();
        v2_section(&mut parts, Section::Definitions, &[member]);
        assert_eq!(parts, whole);
    }
}
