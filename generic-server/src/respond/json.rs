//! JSON text: objects in upstream's order of fields, Statuses, indentation.

use serde_json::Value;

use crate::negotiate::MetaVersion;

/// `{"kind":K,"apiVersion":V,`.
pub(crate) fn type_head(kind: &str, api_version: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + kind.len() + api_version.len());
    out.extend_from_slice(b"{\"kind\":");
    text(&mut out, kind);
    out.extend_from_slice(b",\"apiVersion\":");
    text(&mut out, api_version);
    out.push(b',');
    out
}

/// A string.
pub(crate) fn text(out: &mut Vec<u8>, value: &str) {
    // Writing to memory does not fail, and neither does a string.
    let _ = serde_json::to_writer(out, value);
}

/// Any value, keys sorted.
pub(crate) fn value(out: &mut Vec<u8>, value: &Value) {
    let _ = serde_json::to_writer(out, value);
}

/// A value whose given keys come first, in that order.
fn ordered(out: &mut Vec<u8>, object: &Value, first: &[&str]) {
    let Some(map) = object.as_object() else {
        return value(out, object);
    };
    let leading = first.iter().filter_map(|key| Some((*key, map.get(*key)?)));
    let rest = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
    let rest = rest.map(|(key, v)| (key.as_str(), v));
    for (index, (key, member)) in leading.chain(rest).enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        text(out, key);
        out.push(b':');
        value(out, member);
    }
    if map.is_empty() {
        out.push(b'{');
    }
    out.push(b'}');
}

/// An object: its type and metadata first.
pub(crate) fn object(object: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_object(&mut out, object);
    out
}

/// The same, appended.
pub(crate) fn write_object(out: &mut Vec<u8>, object: &Value) {
    ordered(out, object, &["kind", "apiVersion", "metadata"]);
}

/// An object without its type, as typed lists carry it.
pub(crate) fn write_untyped(out: &mut Vec<u8>, object: &Value) {
    let Some(map) = object.as_object() else {
        return value(out, object);
    };
    let mut map = map.clone();
    map.remove("kind");
    map.remove("apiVersion");
    ordered(out, &Value::Object(map), &["metadata"]);
}

/// A Status in the order of upstream's type.
pub(crate) fn status(status: &Value) -> Vec<u8> {
    let order = [
        "kind",
        "apiVersion",
        "metadata",
        "status",
        "message",
        "reason",
        "details",
        "code",
    ];
    let mut out = Vec::with_capacity(256);
    members(&mut out, status, &order, |out, key, member| match key {
        "details" => details(out, member),
        _ => value(out, member),
    });
    out
}

fn details(out: &mut Vec<u8>, of: &Value) {
    let order = ["name", "group", "kind", "uid", "causes", "retryAfterSeconds"];
    members(out, of, &order, |out, key, member| match member.as_array() {
        Some(causes) if key == "causes" => {
            out.push(b'[');
            for (index, cause) in causes.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                ordered(out, cause, &["reason", "message", "field"]);
            }
            out.push(b']');
        }
        _ => value(out, member),
    });
}

/// The members of these names, in this order.
fn members(out: &mut Vec<u8>, of: &Value, order: &[&str], mut write: impl FnMut(&mut Vec<u8>, &str, &Value)) {
    out.push(b'{');
    let mut first = true;
    for key in order {
        let Some(member) = of.get(*key) else { continue };
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        text(out, key);
        out.push(b':');
        write(out, key, member);
    }
    out.push(b'}');
}

/// `{"kind":"PartialObjectMetadata","apiVersion":...,"metadata":{...}}` of `"metadata":{...}`.
pub(crate) fn partial(out: &mut Vec<u8>, version: MetaVersion, metadata: &[u8]) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(metadata);
    out.push(b'}');
}

/// The same of an object.
pub(crate) fn partial_of(out: &mut Vec<u8>, version: MetaVersion, object: &Value) {
    let mut metadata = b"\"metadata\":".to_vec();
    match object.get("metadata") {
        Some(meta) => value(&mut metadata, meta),
        None => metadata.extend_from_slice(b"{}"),
    }
    partial(out, version, &metadata);
}

/// Compact JSON, indented as Go does it: two spaces, empty objects and lists closed at once, no newline at the end.
pub(crate) fn pretty(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    Indenter::default().feed(compact, &mut out);
    out
}

/// Indents JSON piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Indenter {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last character opened an object or list.
    opened: bool,
}

impl Indenter {
    /// Takes the next piece of the text, wherever it was cut.
    pub(crate) fn feed(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        for &byte in piece {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            if byte.is_ascii_whitespace() {
                continue;
            }
            let closing = matches!(byte, b'}' | b']');
            if closing {
                self.depth = self.depth.saturating_sub(1);
            }
            if self.opened != closing {
                // The first member of what was opened, or the end of what has members.
                self.line(out);
            }
            self.opened = false;
            out.push(byte);
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    self.opened = true;
                }
                b',' => self.line(out),
                b':' => out.push(b' '),
                b'"' => self.in_string = true,
                _ => {}
            }
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}
