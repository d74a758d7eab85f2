//! JSON in. One pass over the bytes makes the value, finds duplicate and unknown fields with their paths, checks types and
//! brings values of built-in kinds into upstream's form.
//!
//! The parser is our own because Go's decoder must be matched where serde's differs: its error texts, invalid UTF-8 and
//! lone surrogates (replaced, not refused), numbers as they were written, the order of strict errors, duplicates.
//! JSON out is `serde_json`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::typed::{self, Findings, Literal, Mismatch, Step};
use super::{DecodeError, Decoded, Memory};
use crate::schema::{Format, SchemaRef};
use crate::{limits, steps};

/// Reads JSON that was checked when it was written: the fast way.
///
/// # Errors
/// When it is no JSON, or deeper than objects may be.
pub fn value(bytes: &[u8]) -> Result<Value, DecodeError> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        // It stops at a depth that objects may well have.
        Err(_) => decode(bytes).map(|decoded| decoded.value),
    }
}

/// Decodes a document without a schema (custom resources). Finds duplicate fields.
///
/// # Errors
/// When the bytes are not one JSON document.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    run(Parser::new(bytes), None)
}

/// The same, but `2.0` stays a double: an integer field of a built-in type refuses it in a patch, and in a custom resource it is another value
/// than 2 until it is stored.
///
/// # Errors
/// When the bytes are not one JSON document.
pub fn decode_exactly(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let parser = Parser {
        keeps_doubles: true,
        ..Parser::new(bytes)
    };
    run(parser, None)
}

/// Decodes a document that stands in another at a depth, which counts.
pub(super) fn decode_within(bytes: &[u8], depth: usize, memory: &mut Memory) -> Result<Value, DecodeError> {
    let mut parser = Parser {
        depth,
        memory: std::mem::take(memory),
        ..Parser::new(bytes)
    };
    let value = parser.value(None)?;
    parser.end()?;
    *memory = parser.memory;
    Ok(value)
}

/// Decodes a document of a built-in type. Finds duplicate and unknown fields; the value is in upstream's form. In raw JSON `2.0` stays a double.
///
/// # Errors
/// When the bytes are not one JSON document or a value does not fit its field.
pub fn decode_typed(bytes: &[u8], schema: SchemaRef<'_>) -> Result<Decoded, DecodeError> {
    let parser = Parser {
        keeps_doubles: true,
        ..Parser::new(bytes)
    };
    run(parser, Some(schema))
}

fn run<'s>(mut parser: Parser<'_, 's>, schema: Option<SchemaRef<'s>>) -> Result<Decoded, DecodeError> {
    let value = parser.value(schema)?;
    parser.end()?;
    let value = match schema {
        Some(schema) => typed::or_zero(schema, value),
        None => value,
    };
    match parser.findings.type_error {
        Some(error) => Err(error),
        None => Ok(Decoded {
            value,
            strict: parser.findings.strict,
        }),
    }
}

/// Reads `apiVersion` and `kind` of a document without decoding the rest; either is empty when absent.
///
/// # Errors
/// When the bytes are not one JSON document, or not an object.
pub fn interpret(bytes: &[u8]) -> Result<(String, String), DecodeError> {
    let wrap = |error: DecodeError| {
        DecodeError::Syntax(format!("couldn't get version/kind; json parse error: {error}"))
    };
    let mut parser = Parser::new(bytes);
    parser.interpret().map_err(wrap)
}

fn not_a_double(text: &str) -> DecodeError {
    DecodeError::Type(format!(
        "json: cannot unmarshal number {text} into Go value of type float64"
    ))
}

struct Parser<'a, 's> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    memory: Memory,
    findings: Findings<'s>,
    keeps_doubles: bool,
}

/// A character as Go's scanner quotes it.
fn quote_char(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".into(),
        b'"' => "'\"'".into(),
        other => {
            let text = crate::go::quote(&char::from(other).to_string());
            format!("'{}'", &text[1..text.len() - 1])
        }
    }
}

impl<'a, 's> Parser<'a, 's> {
    fn new(bytes: &'a [u8]) -> Self {
        Parser {
            bytes,
            at: 0,
            depth: 0,
            memory: Memory::default(),
            findings: Findings::default(),
            keeps_doubles: false,
        }
    }

    /// The error for the byte at hand, or for the end of the input.
    fn fail<T>(&self, context: &str) -> Result<T, DecodeError> {
        Err(DecodeError::Syntax(match self.bytes.get(self.at) {
            None => "unexpected end of JSON input".into(),
            Some(byte) => format!("invalid character {} {context}", quote_char(*byte)),
        }))
    }

    /// The next byte that is not space, left in place.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                other => return Some(*other),
            }
        }
        None
    }

    fn end(&mut self) -> Result<(), DecodeError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("after top-level value"),
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        self.at += 1;
        if self.depth > limits::DEPTH {
            return Err(DecodeError::Syntax("exceeded max depth".into()));
        }
        Ok(())
    }

    fn value(&mut self, schema: Option<SchemaRef<'s>>) -> Result<Value, DecodeError> {
        self.memory.value(None)?;
        match self.peek() {
            Some(b'{') => self.object(schema),
            Some(b'[') => self.array(schema),
            Some(b'"') => {
                let text = self.string()?.into_owned();
                self.memory.take(text.len())?;
                Ok(match schema {
                    None => Value::String(text),
                    Some(schema) => self.scalar(schema, Literal::String(text)),
                })
            }
            Some(b'n') => self.word("null").map(|()| Value::Null),
            Some(first @ (b't' | b'f')) => {
                let value = first == b't';
                self.word(if value { "true" } else { "false" })?;
                Ok(match schema {
                    None => Value::Bool(value),
                    Some(schema) => self.scalar(schema, Literal::Bool(value)),
                })
            }
            Some(b'-' | b'0'..=b'9') => {
                let text = self.number()?;
                match schema {
                    Some(schema) => Ok(self.scalar(schema, Literal::Number(text))),
                    None if self.keeps_doubles => typed::exact_number(text).ok_or_else(|| not_a_double(text)),
                    None => typed::free_number(text).ok_or_else(|| not_a_double(text)),
                }
            }
            _ => self.fail("looking for beginning of value"),
        }
    }

    fn scalar(&mut self, schema: SchemaRef<'s>, literal: Literal<'_>) -> Value {
        typed::literal(schema.node(), literal).unwrap_or_else(|mismatch| {
            self.findings.mismatch(schema, mismatch);
            Value::Null
        })
    }

    fn object(&mut self, schema: Option<SchemaRef<'s>>) -> Result<Value, DecodeError> {
        // Any JSON below here, and what does not fit, is decoded without a schema.
        let mut schema = schema.filter(|s| !typed::is_raw(s.node()));
        if let Some(unfit) =
            schema.filter(|s| !typed::takes_fields(s.node()) && s.node().additional.is_none())
        {
            self.findings.mismatch(unfit, Mismatch::Kind("object".into()));
            schema = None;
        }
        self.enter()?;
        let fields = schema.filter(|s| s.node().additional.is_none());
        let values = schema.and_then(|s| s.additional());
        if let Some(schema) = fields {
            self.findings.structs.push(typed::short_name(schema.node()));
        }
        let mut map = Map::new();
        // Declared fields seen, for those whose value is not kept.
        let mut dropped: Vec<&'s str> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            self.memory.node()?;
            loop {
                if self.peek() != Some(b'"') {
                    return self.fail("looking for beginning of object key string");
                }
                let start = self.at + 1;
                let key = self.string()?;
                let end = self.at - 1;
                if self.peek() != Some(b':') {
                    return self.fail("after object key");
                }
                self.at += 1;
                if let Some(schema) = fields {
                    self.field(schema, &key, &mut map, &mut dropped)?;
                } else {
                    self.memory.key(&key)?;
                    if map.contains_key(&*key) {
                        self.findings.duplicate(self.bytes, &key);
                    }
                    self.findings.path.push(Step::Span(start, end));
                    let value = self.value(values)?;
                    self.findings.path.pop();
                    let value = match values {
                        Some(schema) => typed::or_zero(schema, value),
                        None => value,
                    };
                    map.insert(key.into_owned(), value);
                }
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b'}') => {
                        self.at += 1;
                        break;
                    }
                    _ => return self.fail("after object key:value pair"),
                }
            }
        }
        if let Some(schema) = fields {
            self.findings.structs.pop();
            let written = !map.is_empty();
            self.memory.take(typed::fill(schema, &mut map))?;
            if !written && !map.is_empty() {
                self.memory.node()?;
            }
        }
        self.depth -= 1;
        Ok(Value::Object(map))
    }

    fn field(
        &mut self,
        schema: SchemaRef<'s>,
        key: &str,
        map: &mut Map<String, Value>,
        dropped: &mut Vec<&'s str>,
    ) -> Result<(), DecodeError> {
        let Some((field, inner)) = schema.field(key) else {
            self.findings.unknown(self.bytes, key);
            return self.skip();
        };
        self.memory.key(key)?;
        steps::count(1 + dropped.len());
        let first = map.remove(key);
        if first.is_some() || dropped.contains(&&*field.name) {
            self.findings.duplicate(self.bytes, key);
        }
        self.findings.path.push(Step::Field(&field.name));
        let value = self.value(Some(inner))?;
        self.findings.path.pop();
        let value = match first {
            // A null leaves a plain value as it was.
            Some(first) if value.is_null() && !field.pointer => first,
            Some(first) => typed::merge_duplicate(Some(inner), first, value),
            None => value,
        };
        if typed::keep(field, inner.node(), &value) {
            map.insert(key.to_owned(), value);
        } else if !dropped.contains(&&*field.name) {
            dropped.push(&field.name);
        }
        Ok(())
    }

    fn array(&mut self, schema: Option<SchemaRef<'s>>) -> Result<Value, DecodeError> {
        let schema = schema.filter(|s| !typed::is_raw(s.node()));
        let is_bytes = |schema: &SchemaRef<'s>| schema.node().format == Some(Format::Byte);
        let bytes = schema.filter(is_bytes);
        let items = match schema.filter(|schema| !is_bytes(schema)) {
            None => None,
            Some(schema) => match typed::list_items(schema) {
                Some(items) => items,
                None => {
                    self.findings.mismatch(schema, Mismatch::Kind("array".into()));
                    None
                }
            },
        };
        self.enter()?;
        let mut out = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                self.findings.path.push(Step::Index(out.len()));
                let value = self.value(items)?;
                self.findings.path.pop();
                out.push(match items {
                    Some(schema) => typed::or_zero(schema, value),
                    None => value,
                });
                match self.peek() {
                    Some(b',') => self.at += 1,
                    Some(b']') => {
                        self.at += 1;
                        break;
                    }
                    _ => return self.fail("after array element"),
                }
            }
        }
        self.depth -= 1;
        let Some(schema) = bytes else {
            return Ok(Value::Array(out));
        };
        Ok(typed::bytes_of_list(&out).unwrap_or_else(|mismatch| {
            self.findings.mismatch(schema, mismatch);
            Value::Null
        }))
    }

    /// Passes over a value, checking its syntax.
    fn skip(&mut self) -> Result<(), DecodeError> {
        match self.peek() {
            Some(b'{') => {
                self.enter()?;
                if self.peek() == Some(b'}') {
                    self.at += 1;
                } else {
                    loop {
                        if self.peek() != Some(b'"') {
                            return self.fail("looking for beginning of object key string");
                        }
                        self.string()?;
                        if self.peek() != Some(b':') {
                            return self.fail("after object key");
                        }
                        self.at += 1;
                        self.skip()?;
                        match self.peek() {
                            Some(b',') => self.at += 1,
                            Some(b'}') => {
                                self.at += 1;
                                break;
                            }
                            _ => return self.fail("after object key:value pair"),
                        }
                    }
                }
                self.depth -= 1;
                Ok(())
            }
            Some(b'[') => {
                self.enter()?;
                if self.peek() == Some(b']') {
                    self.at += 1;
                } else {
                    loop {
                        self.skip()?;
                        match self.peek() {
                            Some(b',') => self.at += 1,
                            Some(b']') => {
                                self.at += 1;
                                break;
                            }
                            _ => return self.fail("after array element"),
                        }
                    }
                }
                self.depth -= 1;
                Ok(())
            }
            Some(b'"') => self.string().map(|_| ()),
            Some(b'n') => self.word("null"),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'-' | b'0'..=b'9') => self.number().map(|_| ()),
            _ => self.fail("looking for beginning of value"),
        }
    }

    fn interpret(&mut self) -> Result<(String, String), DecodeError> {
        let mut found = (String::new(), String::new());
        match self.peek() {
            Some(b'{') => {}
            Some(b'n') => {
                self.word("null")?;
                self.end()?;
                return Ok(found);
            }
            first => {
                self.skip()?;
                self.end()?;
                let what = match first {
                    Some(b'[') => "array",
                    Some(b'"') => "string",
                    Some(b't' | b'f') => "bool",
                    _ => "number",
                };
                return Err(DecodeError::Type(format!(
                    "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
                )));
            }
        }
        self.enter()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return self.end().map(|()| found);
        }
        let mut wrong = None;
        loop {
            if self.peek() != Some(b'"') {
                return self.fail("looking for beginning of object key string");
            }
            let key = self.string()?;
            if self.peek() != Some(b':') {
                return self.fail("after object key");
            }
            self.at += 1;
            let slot = match &*key {
                "apiVersion" => Some(&mut found.0),
                "kind" => Some(&mut found.1),
                _ => None,
            };
            match (slot, self.peek()) {
                (Some(slot), Some(b'"')) => *slot = self.string()?.into_owned(),
                (Some(_), Some(first)) if first != b'n' => {
                    let what = match first {
                        b'[' => "array",
                        b'{' => "object",
                        b't' | b'f' => "bool",
                        _ => "number",
                    };
                    self.skip()?;
                    wrong.get_or_insert_with(|| {
                        DecodeError::Type(format!(
                            "json: cannot unmarshal {what} into Go struct field .{key} of type string"
                        ))
                    });
                }
                _ => self.skip()?,
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    break;
                }
                _ => return self.fail("after object key:value pair"),
            }
        }
        self.end()?;
        wrong.map_or(Ok(found), Err)
    }

    fn word(&mut self, word: &str) -> Result<(), DecodeError> {
        for expected in word.bytes() {
            if self.bytes.get(self.at) != Some(&expected) {
                let context = format!("in literal {word} (expecting {})", quote_char(expected));
                return self.fail(&context);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<&'a str, DecodeError> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else if self.digits() == 0 {
            return self.fail("in numeric literal");
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return self.fail("after decimal point in numeric literal");
            }
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail("in exponent of numeric literal");
            }
        }
        // Only ASCII was taken.
        Ok(std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or("0"))
    }

    /// A string, without its quotes; borrowed when nothing is escaped in it.
    fn string(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.at += 1;
        let text = self.plain();
        if self.bytes.get(self.at) == Some(&b'"') {
            self.at += 1;
            return Ok(text);
        }
        let mut out = text.into_owned();
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                Some(_) => return self.fail("in string literal"),
                None => return self.fail(""),
            }
            out.push_str(&self.plain());
        }
    }

    /// The text up to the next quote, escape or control character, or to the end.
    fn plain(&mut self) -> Cow<'a, str> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (text, _) = rest.split_at(plain_bytes(rest));
        self.at += text.len();
        // The check for valid text is many times faster than the search for what to replace.
        match std::str::from_utf8(text) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(text),
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), DecodeError> {
        let c = match self.bytes.get(self.at) {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'"') => '"',
            Some(b'u') => {
                self.at += 1;
                let unit = self.hex4()?;
                out.push(self.code_point(unit)?);
                return Ok(());
            }
            _ => return self.fail("in string escape code"),
        };
        self.at += 1;
        out.push(c);
        Ok(())
    }

    /// Joins a surrogate pair; a lone surrogate becomes U+FFFD.
    fn code_point(&mut self, unit: u32) -> Result<char, DecodeError> {
        if (0xd800..0xdc00).contains(&unit) && self.bytes[self.at..].starts_with(b"\\u") {
            let mark = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xdc00..0xe000).contains(&low) {
                let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            self.at = mark;
        }
        Ok(char::from_u32(unit).unwrap_or('\u{fffd}'))
    }

    fn hex4(&mut self) -> Result<u32, DecodeError> {
        let mut out = 0;
        for _ in 0..4 {
            match self.bytes.get(self.at).and_then(|b| char::from(*b).to_digit(16)) {
                Some(digit) => out = out * 16 + digit,
                None => return self.fail("in \\u hexadecimal character escape"),
            }
            self.at += 1;
        }
        Ok(out)
    }
}

/// How many bytes come before the first quote, backslash or control character. Eight at a time: values of strings are most of a body.
fn plain_bytes(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    // The high bit of each byte that is below `limit`. Bytes behind the first such may be marked wrongly, by its borrow.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGHS;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = below(word, 0x20) | equal(b'"') | equal(b'\\');
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    bytes[at..]
        .iter()
        .position(ends)
        .map_or(bytes.len(), |found| at + found)
}

#[cfg(test)]
mod tests;
