//! YAML in and out, as `sigs.k8s.io/yaml` reads and prints it: YAML 1.1 scalars (`yes` is a boolean, `0755` is octal), one
//! document, duplicate keys reported, keys sorted and strings quoted by the same rules.
//!
//! The events come from `granit-parser`; the meaning of plain scalars is decided here, because upstream's answer is neither
//! the 1.1 nor the 1.2 specification's. Aliases are expanded, and anchored values kept, within a budget of nodes and of
//! bytes: without one a short alias of a long string makes the string's length of each of its own three bytes.

mod emit;
mod scalar;

use std::collections::HashMap;

use base64::Engine;
use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::{DecodeError, Decoded, Memory, StrictError, weight};
use crate::field::show_text;
use crate::{limits, steps};

pub use emit::to_string;

/// Decodes the first document. Duplicate keys (the last one wins) are strict errors.
///
/// # Errors
/// When the bytes are no YAML that has a JSON form.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| DecodeError::Syntax("yaml: invalid leading UTF-8 octet".into()))?;
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        made: Size::default(),
        aliased: 0,
        anchored: 0,
        memory: Memory::default(),
        depth: 0,
        line: 0,
        duplicates: Vec::new(),
        has_large_integers: false,
    };
    let mut value = reader.document()?;
    if reader.has_large_integers {
        large_integers_as_floats(&mut value);
    }
    let mut strict = Vec::new();
    if !reader.duplicates.is_empty() {
        strict.push(StrictError::Other(format!(
            "yaml: unmarshal errors:\n  {}",
            reader.duplicates.join("\n  ")
        )));
    }
    Ok(Decoded { value, strict })
}

fn fail<T>(text: impl std::fmt::Display) -> Result<T, DecodeError> {
    Err(DecodeError::Syntax(format!("yaml: {text}")))
}

/// An integer that is no `i64`: a number of YAML, as which it may be a key, and a float of JSON, which upstream goes through.
fn is_large_integer(value: &Value) -> bool {
    value.is_u64() && !value.is_i64()
}

fn large_integers_as_floats(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(large_integers_as_floats),
        Value::Object(map) => map.values_mut().for_each(large_integers_as_floats),
        number if is_large_integer(number) => *number = Value::from(number.as_f64()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// How much a value is: its nodes, and the bytes of its texts with a few for each node, about what it has as JSON.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

/// The cost of a node besides its text.
const NODE_BYTES: usize = 4;

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    /// Anchored values and how much they are.
    anchors: HashMap<usize, (Value, Size)>,
    /// All that was made so far.
    made: Size,
    /// Bytes that aliases have added.
    aliased: usize,
    /// Bytes that are kept for aliases to come. Nested anchors keep the innermost value once for each of them.
    anchored: usize,
    memory: Memory,
    depth: usize,
    /// The line of the last event.
    line: usize,
    /// Messages about keys that are there already, of the first [`limits::STRICT_ERRORS`] of them.
    duplicates: Vec<String>,
    /// There are integers past those of JSON.
    has_large_integers: bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, DecodeError> {
        loop {
            match self.parser.next_event() {
                None => return Ok(Event::StreamEnd),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok((event, span))) => {
                    self.line = span.start.line();
                    return Ok(event);
                }
                Some(Err(error)) => {
                    return fail(format_args!("line {}: {}", error.marker().line(), error.info()));
                }
            }
        }
    }

    fn document(&mut self) -> Result<Value, DecodeError> {
        loop {
            match self.next()? {
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
                Event::StreamStart | Event::DocumentStart(..) => {}
                event => return self.node(event),
            }
        }
    }

    fn node(&mut self, event: Event<'a>) -> Result<Value, DecodeError> {
        let before = self.made;
        self.count(Size {
            nodes: 1,
            bytes: NODE_BYTES,
        })?;
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id),
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar_value(&text, style, tag.as_deref())?;
                self.has_large_integers |= is_large_integer(&value);
                self.made.bytes += text.len();
                self.memory.value(value.as_str())?;
                (value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.enter()?;
                self.memory.value(None)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.node(event)?),
                    }
                }
                self.depth -= 1;
                (Value::Array(items), anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.enter()?;
                self.memory.value(None)?;
                let map = self.mapping()?;
                self.depth -= 1;
                (Value::Object(map), anchor)
            }
            _ => return fail("did not find expected node content"),
        };
        if anchor != 0 {
            let size = Size {
                nodes: self.made.nodes - before.nodes,
                bytes: self.made.bytes - before.bytes,
            };
            self.anchored += size.bytes;
            if self.anchored > limits::YAML_ALIAS_BYTES {
                return excessive_aliasing();
            }
            self.memory.take(weight(&value))?;
            steps::count(size.nodes);
            self.anchors.insert(anchor, (value.clone(), size));
        }
        Ok(value)
    }

    /// Another copy of an anchored value, if there is room for it.
    fn alias(&mut self, id: usize) -> Result<Value, DecodeError> {
        let Some((_, size)) = self.anchors.get(&id) else {
            return fail("anchor value contains itself");
        };
        let size = *size;
        self.count(size)?;
        self.aliased += size.bytes;
        if self.aliased > limits::YAML_ALIAS_BYTES {
            return excessive_aliasing();
        }
        let (value, _) = &self.anchors[&id];
        self.memory.take(weight(value))?;
        let value = value.clone();
        steps::count(size.nodes);
        Ok(value)
    }

    fn mapping(&mut self) -> Result<Map<String, Value>, DecodeError> {
        let mut map = Map::new();
        loop {
            let (key, merge) = match self.next()? {
                Event::MappingEnd => return Ok(map),
                Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<" => (String::new(), true),
                event => (key_text(self.node(event)?)?, false),
            };
            if map.is_empty() {
                self.memory.node()?;
            }
            let event = self.next()?;
            let line = self.line;
            let value = self.node(event)?;
            if merge {
                merge_into(&mut map, value)?;
            } else {
                if map.contains_key(&key) && self.duplicates.len() < limits::STRICT_ERRORS {
                    self.duplicates
                        .push(format!("line {line}: key {} already set in map", show_text(&key)));
                }
                map.insert(key, value);
            }
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > limits::DEPTH {
            return fail("exceeded max depth");
        }
        Ok(())
    }

    fn count(&mut self, size: Size) -> Result<(), DecodeError> {
        self.made.nodes += size.nodes;
        self.made.bytes += size.bytes;
        if self.made.nodes > limits::YAML_NODES {
            return excessive_aliasing();
        }
        Ok(())
    }
}

fn excessive_aliasing<T>() -> Result<T, DecodeError> {
    fail("document contains excessive aliasing")
}

/// `<<`: the entries of one map or of a list of maps.
fn merge_into(map: &mut Map<String, Value>, value: Value) -> Result<(), DecodeError> {
    match value {
        Value::Object(other) => map.extend(other),
        // The first map of the list wins, so it is merged last.
        Value::Array(items) => {
            for item in items.into_iter().rev() {
                let Value::Object(other) = item else {
                    return fail("map merge requires map or sequence of maps as the value");
                };
                map.extend(other);
            }
        }
        _ => return fail("map merge requires map or sequence of maps as the value"),
    }
    Ok(())
}

fn key_text(key: Value) -> Result<String, DecodeError> {
    match key {
        Value::String(text) => Ok(text),
        Value::Bool(value) => Ok(value.to_string()),
        Value::Number(number) => Ok(match number.as_f64() {
            Some(float) if number.is_f64() => crate::go::general(float),
            _ => number.to_string(),
        }),
        Value::Null => Err(DecodeError::Syntax(
            "error converting YAML to JSON: unsupported map key of type: <nil>".into(),
        )),
        Value::Array(_) | Value::Object(_) => fail("invalid map key"),
    }
}

fn scalar_value(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, DecodeError> {
    let core = tag.and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
    match (core.as_deref(), tag) {
        (Some("str"), _) => return Ok(Value::String(text.to_owned())),
        (Some("binary"), _) => {
            let clean: String = text.split_whitespace().collect();
            return match base64::engine::general_purpose::STANDARD.decode(clean) {
                Ok(bytes) => Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned())),
                Err(_) => fail("!!binary value contains invalid base64 data"),
            };
        }
        (None, Some(_)) => return Ok(Value::String(text.to_owned())),
        (None, None) if style != ScalarStyle::Plain => return Ok(Value::String(text.to_owned())),
        _ => {}
    }
    scalar::resolve(text).into_value(text)
}

#[cfg(test)]
mod tests;
