//! YAML in and out, as `sigs.k8s.io/yaml` reads and prints it: YAML 1.1 scalars (`yes` is a boolean, `0755` is octal), one
//! document, duplicate keys reported, keys sorted and strings quoted by the same rules.
//!
//! The events come from `granit-parser`; what a plain scalar means is decided here, because upstream's answer is neither
//! the 1.1 nor the 1.2 specification's. Aliases are expanded within a budget of nodes.

mod emit;
mod scalar;

use std::collections::HashMap;

use base64::Engine;
use granit_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};

use super::{DecodeError, Decoded, MAX_DEPTH, StrictError};

pub use emit::to_string;
pub(crate) use scalar::go_general;

/// Nodes that a document may have once its aliases are expanded.
const MAX_NODES: usize = 500_000;

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
        nodes: 0,
        depth: 0,
        line: 0,
        duplicates: Vec::new(),
    };
    let value = reader.document()?;
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

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    /// Anchored values and how many nodes they are.
    anchors: HashMap<usize, (Value, usize)>,
    nodes: usize,
    depth: usize,
    /// The line of the last event.
    line: usize,
    duplicates: Vec<String>,
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
        let before = self.nodes;
        self.count(1)?;
        let (value, anchor) = match event {
            Event::Alias(id) => {
                let Some((value, size)) = self.anchors.get(&id) else {
                    return fail("anchor value contains itself");
                };
                let (value, size) = (value.clone(), *size);
                self.count(size)?;
                return Ok(value);
            }
            Event::Scalar(text, style, anchor, tag) => (scalar_value(&text, style, tag.as_deref())?, anchor),
            Event::SequenceStart(_, anchor, _) => {
                self.enter()?;
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
                let map = self.mapping()?;
                self.depth -= 1;
                (Value::Object(map), anchor)
            }
            _ => return fail("did not find expected node content"),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (value.clone(), self.nodes - before));
        }
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
            let event = self.next()?;
            let line = self.line;
            let value = self.node(event)?;
            if merge {
                merge_into(&mut map, value)?;
            } else if map.contains_key(&key) {
                self.duplicates.push(format!(
                    "line {line}: key {} already set in map",
                    crate::field::go_quote(&key)
                ));
                map.insert(key, value);
            } else {
                map.insert(key, value);
            }
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail("exceeded max depth");
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize) -> Result<(), DecodeError> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return fail("document contains excessive aliasing");
        }
        Ok(())
    }
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
            Some(float) if number.is_f64() => scalar::go_general(float),
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
