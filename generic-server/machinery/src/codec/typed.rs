//! The effects of decoding into upstream's Go types, by schema: type checks, normal forms, zero values.
//!
//! [`decode_builtin`] does it to a value that is already parsed (YAML, the result of a patch); the JSON decoder does the
//! same while it parses, with the helpers of this module.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{DecodeError, Decoded, Memory, NODE, StrictError, key_weight, weight};
use crate::field::{clip_text, show_text};
use crate::quantity::Quantity;
use crate::schema::{FieldDef, Format, Node, SchemaRef, Type};
use crate::time::Timestamp;
use crate::{limits, steps};

/// A scalar of the document.
#[derive(Debug)]
pub(crate) enum Literal<'t> {
    Bool(bool),
    String(String),
    /// The number as it is written.
    Number(&'t str),
}

impl Literal<'_> {
    fn describe(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Number(_) => "number",
        }
    }
}

/// Why a scalar does not fit.
#[derive(Debug)]
pub(crate) enum Mismatch {
    /// Go's "cannot unmarshal X into ...": X.
    Kind(String),
    /// A type's own words.
    Own(String),
}

/// A step of the path to the value at hand.
#[derive(Debug)]
pub(crate) enum Step<'s> {
    /// A declared field.
    Field(&'s str),
    /// A key of a map or of an untyped object.
    Key(String),
    /// The same, as its place in the input (between the quotes).
    Span(usize, usize),
    /// A list index.
    Index(usize),
}

/// Errors and sizes that a decoder collects.
#[derive(Debug, Default)]
pub(crate) struct Findings<'s> {
    pub(crate) path: Vec<Step<'s>>,
    /// Names of the types around the value, as Go prints them.
    pub(crate) structs: Vec<&'s str>,
    pub(crate) strict: Vec<StrictError>,
    pub(crate) type_error: Option<DecodeError>,
    /// Integers that do not fit are cut to their lower 32 bits.
    cuts_integers: bool,
    /// The memory that [`decode_builtin`] has used; parsers have a budget of their own.
    memory: Memory,
    /// Bytes of paths that were written for strict errors, those that were known already included.
    written: usize,
}

impl<'s> Findings<'s> {
    /// The path with `last` behind it, as strict errors show it. A long one is cut.
    fn strict_path(&self, input: &[u8], last: &str) -> String {
        let mut out = String::new();
        for step in &self.path {
            steps::count(1);
            if out.len() > limits::SHOWN_VALUE_BYTES {
                return clip_text(limits::SHOWN_VALUE_BYTES, out);
            }
            let name = match step {
                Step::Index(index) => {
                    let _ = write!(out, "[{index}]");
                    continue;
                }
                Step::Field(name) => std::borrow::Cow::Borrowed(*name),
                Step::Key(name) => name.as_str().into(),
                // One byte more than is shown, so that the cut is seen.
                Step::Span(start, end) => {
                    let end = (*end).min(start + limits::SHOWN_VALUE_BYTES + 1);
                    String::from_utf8_lossy(&input[*start..end])
                }
            };
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name[..name.floor_char_boundary(limits::SHOWN_VALUE_BYTES + 1)]);
        }
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(&last[..last.floor_char_boundary(limits::SHOWN_VALUE_BYTES + 1)]);
        clip_text(limits::SHOWN_VALUE_BYTES, out)
    }

    /// Whether another strict error is still reported. Each costs its path, which may be long, even when it is known already.
    fn has_room(&self) -> bool {
        self.strict.len() < limits::STRICT_ERRORS && self.written < limits::MESSAGE_BYTES
    }

    fn save(&mut self, path: String, error: impl FnOnce(String) -> StrictError) {
        self.written += path.len();
        let error = error(path);
        if !self.strict.contains(&error) {
            self.strict.push(error);
        }
    }

    /// Notes memory that [`decode_builtin`] takes. False once there is no more; then the document is refused.
    fn take(&mut self, bytes: usize) -> bool {
        match self.memory.take(bytes) {
            Ok(()) => true,
            Err(error) => {
                self.type_error = Some(error);
                false
            }
        }
    }

    pub(crate) fn unknown(&mut self, input: &[u8], name: &str) {
        // Unions of a schema and something else decode themselves in upstream, and not strictly.
        let in_union = || self.structs.iter().any(|name| name.contains("JSONSchemaPropsOr"));
        if self.has_room() && !in_union() {
            self.save(self.strict_path(input, name), StrictError::Unknown);
        }
    }

    pub(crate) fn duplicate(&mut self, input: &[u8], name: &str) {
        if self.has_room() {
            self.save(self.strict_path(input, name), StrictError::Duplicate);
        }
    }

    /// Notes the first value that does not fit; `found` is Go's word for its type.
    pub(crate) fn mismatch(&mut self, schema: SchemaRef<'s>, mismatch: Mismatch) {
        if self.type_error.is_some() {
            return;
        }
        let text = match mismatch {
            Mismatch::Own(text) => text,
            Mismatch::Kind(found) => {
                let ty = go_type(schema);
                match self.structs.last() {
                    None => format!("json: cannot unmarshal {found} into Go value of type {ty}"),
                    Some(name) => {
                        let fields: Vec<&str> = self
                            .path
                            .iter()
                            .filter_map(|step| match step {
                                Step::Field(name) => Some(*name),
                                _ => None,
                            })
                            .collect();
                        format!(
                            "json: cannot unmarshal {found} into Go struct field {name}.{} of type {ty}",
                            fields.join(".")
                        )
                    }
                }
            }
        };
        self.type_error = Some(DecodeError::Type(text));
    }
}

/// The last part of a type's name.
pub(crate) fn short_name(node: &Node) -> &str {
    node.type_name
        .as_deref()
        .map_or("", |name| name.rsplit('.').next().unwrap_or(name))
}

/// A type as Go prints it: `int32`, `v1.PodSpec`, `map[string]string`.
fn go_type(schema: SchemaRef<'_>) -> String {
    let node = schema.node();
    if let Some(name) = &node.type_name {
        let mut parts = name.rsplit('.');
        let last = parts.next().unwrap_or_default();
        return format!("{}.{last}", parts.next().unwrap_or_default());
    }
    match (node.ty, &node.format) {
        (_, Some(Format::WrappedStrings)) => "v1.ExtraValue".into(),
        (_, Some(Format::Byte)) => "[]uint8".into(),
        (Type::Integer, Some(Format::Int32)) => "int32".into(),
        (Type::Integer, _) => "int64".into(),
        (Type::Number, _) => "float64".into(),
        (Type::Boolean, _) => "bool".into(),
        (Type::Array, _) => format!("[]{}", schema.items().map(go_type).unwrap_or_default()),
        (Type::Object, _) => format!(
            "map[string]{}",
            schema.additional().map(go_type).unwrap_or_default()
        ),
        _ => "string".into(),
    }
}

/// Whether values are objects with declared fields.
pub(crate) fn is_struct(node: &Node) -> bool {
    node.ty == Type::Object && node.additional.is_none()
}

/// Whether a node takes an object, and with declared fields.
pub(crate) fn takes_fields(node: &Node) -> bool {
    is_struct(node)
        || matches!(
            node.format,
            Some(Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings)
        )
}

/// Whether any JSON is taken as it is.
pub(crate) fn is_raw(node: &Node) -> bool {
    node.format == Some(Format::Raw)
}

/// The schema of a list's items, when a list fits here.
pub(crate) fn list_items(schema: SchemaRef<'_>) -> Option<Option<SchemaRef<'_>>> {
    let node = schema.node();
    match node.format {
        Some(Format::SchemaOrArray) => Some(schema.items()),
        Some(Format::SchemaOrStrings) => Some(None),
        _ if node.ty == Type::Array => Some(schema.items()),
        _ => None,
    }
}

/// The bytes that a list of numbers is in the place of base64, as Go reads it; the error is its text about an item that is no byte.
pub(crate) fn bytes_of_list(items: &[Value]) -> Result<Value, Mismatch> {
    let byte = |item: &Value| match item {
        Value::Null => Ok(0),
        Value::Number(number) => number
            .as_u64()
            .and_then(|number| u8::try_from(number).ok())
            .ok_or_else(|| format!("number {number}")),
        Value::Bool(_) => Err("bool".to_owned()),
        Value::String(_) => Err("string".to_owned()),
        Value::Array(_) => Err("array".to_owned()),
        Value::Object(_) => Err("object".to_owned()),
    };
    let bytes: Result<Vec<u8>, String> = items.iter().map(byte).collect();
    match bytes {
        Ok(bytes) => Ok(Value::String(STANDARD.encode(bytes))),
        Err(found) => Err(Mismatch::Own(format!(
            "json: cannot unmarshal {found} into Go value of type uint8"
        ))),
    }
}

/// A number without a schema: whole numbers stay so, `1.0` becomes 1, the rest are doubles.
pub(crate) fn free_number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    double(text)
}

/// The same, but a double stays one, also when it is whole.
pub(crate) fn exact_number(text: &str) -> Option<Value> {
    if text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        let double = text.parse().ok().and_then(serde_json::Number::from_f64);
        return double.map(Value::Number);
    }
    free_number(text)
}

/// A double as Go writes it: whole ones without a fraction.
fn double(text: &str) -> Option<Value> {
    let value: f64 = text.parse().ok()?;
    value.is_finite().then(|| free_double(value))
}

/// A finite double.
pub(crate) fn free_double(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        return Value::from(value as i64);
    }
    // Larger ones are their shortest digits, without an exponent.
    if value.fract() == 0.0
        && let Ok(whole) = value.to_string().parse::<i64>()
    {
        return Value::from(whole);
    }
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Writes whole doubles as whole numbers, as which they are read back: `2.0` is 2 where it is stored.
pub fn settle_numbers(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Number(number) if number.is_f64() => {
            *value = free_double(number.as_f64().unwrap_or_default());
        }
        _ => {}
    }
}

/// A scalar in the normal form of its type.
pub(crate) fn literal(node: &Node, literal: Literal<'_>) -> Result<Value, Mismatch> {
    let wrong = |literal: &Literal<'_>| Mismatch::Kind(literal.describe().to_owned());
    match &node.format {
        Some(Format::Raw) => {
            return match literal {
                Literal::Bool(value) => Ok(Value::Bool(value)),
                Literal::String(text) => Ok(Value::String(text)),
                Literal::Number(text) => {
                    exact_number(text).ok_or_else(|| Mismatch::Kind(format!("number {text}")))
                }
            };
        }
        Some(Format::SchemaOrBool) => {
            return match literal {
                Literal::Bool(value) => Ok(Value::Bool(value)),
                _ => Err(Mismatch::Own("boolean or JSON schema expected".into())),
            };
        }
        Some(Format::DateTime) => return date_time(&literal),
        Some(Format::MicroTime) => return micro_time(&literal),
        Some(Format::Quantity) => {
            let text = match &literal {
                Literal::String(text) => text.trim(),
                Literal::Number(text) => text,
                Literal::Bool(true) => "true",
                Literal::Bool(false) => "false",
            };
            return Quantity::parse(text)
                .map(|quantity| Value::String(quantity.to_string()))
                .map_err(|error| Mismatch::Own(error.to_string()));
        }
        Some(Format::Byte) => {
            return match literal {
                Literal::String(text) => base64_value(text),
                other => Err(wrong(&other)),
            };
        }
        _ => {}
    }
    match (node.ty, literal) {
        (Type::String, Literal::String(text)) => Ok(Value::String(text)),
        (Type::Boolean, Literal::Bool(value)) => Ok(Value::Bool(value)),
        (Type::Integer, Literal::Number(text)) => whole(text, node.format == Some(Format::Int32))
            .ok_or_else(|| Mismatch::Kind(format!("number {text}"))),
        (Type::Number, Literal::Number(text)) => {
            double(text).ok_or_else(|| Mismatch::Kind(format!("number {text}")))
        }
        (Type::IntOrString, Literal::String(text)) => Ok(Value::String(text)),
        (Type::IntOrString, Literal::Number(text)) => whole(text, true).ok_or_else(|| {
            Mismatch::Own(format!(
                "json: cannot unmarshal number {text} into Go value of type int32"
            ))
        }),
        (Type::IntOrString, Literal::Bool(_)) => Err(Mismatch::Own(
            "json: cannot unmarshal bool into Go value of type int32".into(),
        )),
        (_, other) => Err(wrong(&other)),
    }
}

fn whole(text: &str, narrow: bool) -> Option<Value> {
    let value: i64 = text.parse().ok()?;
    if narrow && i32::try_from(value).is_err() {
        return None;
    }
    Some(Value::from(value))
}

fn date_time(literal: &Literal<'_>) -> Result<Value, Mismatch> {
    let text = own_string(literal)?;
    match Timestamp::parse_rfc3339(text) {
        Some(time) => Ok(Value::String(time.to_rfc3339())),
        None => Err(bad_time(text, "2006-01-02T15:04:05Z07:00")),
    }
}

fn micro_time(literal: &Literal<'_>) -> Result<Value, Mismatch> {
    let text = own_string(literal)?;
    match Timestamp::parse_micro(text) {
        Some(time) => Ok(Value::String(time.to_rfc3339_micro())),
        None => Err(bad_time(text, "2006-01-02T15:04:05.000000Z07:00")),
    }
}

fn bad_time(text: &str, layout: &str) -> Mismatch {
    let quoted = show_text(text);
    let mut message = format!("parsing time {quoted} as \"{layout}\": cannot parse ");
    let rest = match text.as_bytes() {
        [a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => &text[4..],
        _ => text,
    };
    let element = if rest.len() == text.len() { "2006" } else { "-" };
    let _ = write!(message, "{} as \"{element}\"", show_text(rest));
    Mismatch::Own(message)
}

fn own_string<'l>(literal: &'l Literal<'_>) -> Result<&'l str, Mismatch> {
    match literal {
        Literal::String(text) => Ok(text),
        other => Err(Mismatch::Own(format!(
            "json: cannot unmarshal {} into Go value of type string",
            other.describe()
        ))),
    }
}

/// Standard base64 with padding; Go skips line breaks in it.
fn base64_value(text: String) -> Result<Value, Mismatch> {
    let clean = if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], "")
    } else {
        text
    };
    match STANDARD.decode(&clean) {
        Ok(_) => Ok(Value::String(clean)),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
                    clean.len() / 4 * 4
                }
            };
            Err(Mismatch::Own(format!("illegal base64 data at input byte {at}")))
        }
    }
}

/// The zero value of a type as upstream writes it.
pub fn zero_value(schema: SchemaRef<'_>) -> Value {
    let node = schema.node();
    match (&node.format, node.ty) {
        (
            Some(
                Format::DateTime
                | Format::MicroTime
                | Format::Byte
                | Format::Raw
                | Format::SchemaOrBool
                | Format::SchemaOrArray
                | Format::SchemaOrStrings
                | Format::WrappedStrings,
            ),
            _,
        ) => Value::Null,
        (Some(Format::Quantity), _) => Value::String("0".into()),
        (_, Type::String) => Value::String(String::new()),
        (_, Type::Boolean) => Value::Bool(false),
        (_, Type::Integer | Type::Number | Type::IntOrString) => Value::from(0),
        (_, Type::Object) if is_struct(node) => {
            let mut map = Map::new();
            fill(schema, &mut map);
            Value::Object(map)
        }
        _ => Value::Null,
    }
}

/// Puts in what upstream always writes. Gives the memory that it takes ([`weight`]).
pub(crate) fn fill(schema: SchemaRef<'_>, map: &mut Map<String, Value>) -> usize {
    let mut taken = 0;
    for field in schema.node().fields.iter().filter(|f| !f.omit_empty) {
        if !map.contains_key(&*field.name) {
            let value = if field.pointer {
                Value::Null
            } else {
                zero_value(schema.at(field.node))
            };
            taken += key_weight(&field.name) + weight(&value);
            map.insert(field.name.to_string(), value);
        }
    }
    taken
}

/// Whether a decoded value is kept in its object. Values that are always written are put back by [`fill`].
pub(crate) fn keep(field: &FieldDef, node: &Node, value: &Value) -> bool {
    if value.is_null() {
        return false;
    }
    if field.pointer {
        return true;
    }
    match value {
        Value::String(text) => !text.is_empty() || !field.omit_empty || node.ty == Type::IntOrString,
        Value::Bool(value) => *value || !field.omit_empty,
        Value::Number(number) => {
            number.as_i64() != Some(0) || !field.omit_empty || node.ty == Type::IntOrString
        }
        // An empty list or map does not survive upstream's storage. Lists that are always written are emptied by [`drop_empty_lists`],
        // because they are owned until then; that of managed fields asks to stop tracking, and is taken out where
        // ownership is recorded; policies of an autoscaler that are none at all are refused.
        Value::Array(items) => {
            let matters = matches!(&*field.name, "managedFields" | "policies");
            !items.is_empty() || is_raw(node) || !field.omit_empty || matters
        }
        Value::Object(map) => !map.is_empty() || is_raw(node) || takes_fields(node),
        Value::Null => false,
    }
}

/// Brings an object to what upstream's storage gives back: empty lists that are always written become null.
pub fn drop_empty_lists(schema: SchemaRef<'_>, value: &mut Value) {
    let node = schema.node();
    if !node.written_lists {
        return;
    }
    match value {
        Value::Object(map) if node.additional.is_none() => {
            for (key, value) in map.iter_mut() {
                let Some((field, inner)) = schema.field(key) else {
                    continue;
                };
                match value {
                    Value::Array(items) if items.is_empty() && field.is_written_list(inner.node()) => {
                        *value = Value::Null;
                    }
                    Value::Array(_) | Value::Object(_) => drop_empty_lists(inner, value),
                    _ => {}
                }
            }
        }
        Value::Object(map) => {
            if let Some(inner) = schema.additional().filter(|s| s.node().ty == Type::Object) {
                map.values_mut().for_each(|value| drop_empty_lists(inner, value));
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items().filter(|s| s.node().ty == Type::Object) {
                items.iter_mut().for_each(|item| drop_empty_lists(inner, item));
            }
        }
        _ => {}
    }
}

/// Merges a second occurrence of a field into the first, as Go does, which decodes into the value already present.
pub(crate) fn merge_duplicate(schema: Option<SchemaRef<'_>>, first: Value, second: Value) -> Value {
    let Some(schema) = schema else { return second };
    match (first, second) {
        (Value::Object(mut first), Value::Object(second))
            if schema.node().ty == Type::Object && !is_raw(schema.node()) =>
        {
            for (name, value) in second {
                let merged = match (first.remove(&name), schema.field(&name)) {
                    // Put in by `fill`, not by the document.
                    (Some(old), Some((field, inner)))
                        if !field.omit_empty && (value.is_null() || value == zero_value(inner)) =>
                    {
                        old
                    }
                    (Some(old), Some((_, inner))) => merge_duplicate(Some(inner), old, value),
                    _ => value,
                };
                first.insert(name, merged);
            }
            Value::Object(first)
        }
        (_, second) => second,
    }
}

/// Decodes a parsed document into a built-in type: the value in its normal form, and its unknown fields.
///
/// # Errors
/// When a value does not fit its field; the text is that of Go's decoder.
pub fn decode_builtin(schema: SchemaRef<'_>, value: Value) -> Result<Decoded, DecodeError> {
    decode(schema, value, Findings::default())
}

/// The same of a value that was merged by apply or a strategic patch: of an integer that does not fit the lower 32 bits are left, as in upstream's
/// conversion of maps to types.
///
/// # Errors
/// As [`decode_builtin`].
pub fn decode_merged(schema: SchemaRef<'_>, value: Value) -> Result<Decoded, DecodeError> {
    let findings = Findings {
        cuts_integers: true,
        ..Findings::default()
    };
    decode(schema, value, findings)
}

fn decode<'s>(
    schema: SchemaRef<'s>,
    value: Value,
    mut findings: Findings<'s>,
) -> Result<Decoded, DecodeError> {
    let value = or_zero(schema, convert(&mut findings, schema, value));
    match findings.type_error {
        Some(error) => Err(error),
        None => Ok(Decoded {
            value,
            strict: findings.strict,
        }),
    }
}

fn convert<'s>(findings: &mut Findings<'s>, schema: SchemaRef<'s>, value: Value) -> Value {
    let node = schema.node();
    if is_raw(node) {
        return value;
    }
    if !findings.take(size_of::<Value>()) {
        return Value::Null;
    }
    let scalar = match value {
        Value::Null => return Value::Null,
        Value::Object(map) => return convert_object(findings, schema, map),
        Value::Array(items) if node.format == Some(Format::Byte) => bytes_of_list(&items),
        Value::Array(items) => {
            let Some(item_schema) = list_items(schema) else {
                findings.mismatch(schema, Mismatch::Kind("array".into()));
                return Value::Null;
            };
            let Some(item_schema) = item_schema else {
                return Value::Array(items);
            };
            let mut out = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                findings.path.push(Step::Index(index));
                let item = convert(findings, item_schema, item);
                findings.path.pop();
                out.push(or_zero(item_schema, item));
            }
            return Value::Array(out);
        }
        Value::Bool(value) => literal(node, Literal::Bool(value)),
        Value::String(text) => literal(node, Literal::String(text)),
        Value::Number(number) if findings.cuts_integers && is_narrow(node) => {
            let cut = number.as_i64().map(lower_bits);
            let text = cut.map_or_else(|| number.to_string(), |cut| cut.to_string());
            literal(node, Literal::Number(&text))
        }
        Value::Number(number) => literal(node, Literal::Number(&number.to_string())),
    };
    scalar.unwrap_or_else(|mismatch| {
        findings.mismatch(schema, mismatch);
        Value::Null
    })
}

fn is_narrow(node: &Node) -> bool {
    node.ty == Type::Integer && node.format == Some(Format::Int32)
}

fn lower_bits(number: i64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// A null in a list or map, or alone, is the zero value of its type; no bytes are stored as empty bytes.
pub(crate) fn or_zero(schema: SchemaRef<'_>, value: Value) -> Value {
    if !value.is_null() {
        return value;
    }
    if schema.node().format == Some(Format::Byte) {
        return Value::String(String::new());
    }
    zero_value(schema)
}

fn convert_object<'s>(findings: &mut Findings<'s>, schema: SchemaRef<'s>, map: Map<String, Value>) -> Value {
    let node = schema.node();
    let mut out = Map::new();
    if let Some(values) = schema.additional() {
        for (name, value) in map {
            findings.take(key_weight(&name));
            findings.path.push(Step::Key(name));
            let value = convert(findings, values, value);
            if let Some(Step::Key(name)) = findings.path.pop() {
                out.insert(name, or_zero(values, value));
            }
        }
        return Value::Object(out);
    }
    if !takes_fields(node) {
        findings.mismatch(schema, Mismatch::Kind("object".into()));
        return Value::Null;
    }
    findings.structs.push(short_name(node));
    for (name, value) in map {
        let Some((field, inner)) = schema.field(&name) else {
            findings.unknown(&[], &name);
            continue;
        };
        findings.path.push(Step::Field(&field.name));
        let value = convert(findings, inner, value);
        findings.path.pop();
        if keep(field, inner.node(), &value) {
            out.insert(name, value);
        }
    }
    findings.structs.pop();
    let filled = fill(schema, &mut out);
    if !out.is_empty() {
        findings.take(NODE);
    }
    findings.take(filled);
    Value::Object(out)
}
