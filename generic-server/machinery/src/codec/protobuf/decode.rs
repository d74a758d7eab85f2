//! Messages to objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Envelope;
use crate::codec::{DecodeError, Memory, json, typed};
use crate::limits;
use crate::schema::{Format, SchemaRef, Type};
use crate::time::Timestamp;

/// A value as it is on the wire.
#[derive(Debug, Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32,
    Bytes(&'a [u8]),
}

/// Reads a message field by field.
struct Fields<'a> {
    rest: &'a [u8],
}

fn eof<T>() -> Result<T, DecodeError> {
    Err(DecodeError::Syntax("unexpected EOF".into()))
}

fn wrong_wire<T>(number: u32) -> Result<T, DecodeError> {
    Err(DecodeError::Syntax(format!(
        "proto: wrong wireType for field {number}"
    )))
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, after)) = rest.split_first() else {
            return eof();
        };
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Syntax("proto: integer overflow".into()))
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = take_varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        let kind = tag & 7;
        if number == 0 {
            return Err(DecodeError::Syntax(format!(
                "proto: illegal tag {number} (wire type {kind})"
            )));
        }
        let value = match kind {
            0 => Wire::Varint(take_varint(&mut self.rest)?),
            1 => Wire::Fixed64(*self.chunk()?),
            2 => {
                let length = take_varint(&mut self.rest)?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let Some((bytes, after)) = self.rest.split_at_checked(length) else {
                    return eof();
                };
                self.rest = after;
                Wire::Bytes(bytes)
            }
            5 => {
                self.chunk::<4>()?;
                Wire::Fixed32
            }
            other => {
                return Err(DecodeError::Syntax(format!("proto: illegal wireType {other}")));
            }
        };
        Ok(Some((number, value)))
    }

    fn chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        let Some((chunk, after)) = self.rest.split_first_chunk::<N>() else {
            return eof();
        };
        self.rest = after;
        Ok(chunk)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn envelope(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let mut out = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
        content_type: String::new(),
    };
    let mut fields = Fields { rest: body };
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut meta = Fields { rest: bytes };
                while let Some((number, wire)) = meta.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(bytes)) => out.api_version = text(bytes),
                        (2, Wire::Bytes(bytes)) => out.kind = text(bytes),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => out.raw = bytes,
            (4, Wire::Bytes(bytes)) => out.content_type = text(bytes),
            (1..=4, wire) if !matches!(wire, Wire::Bytes(_)) => return wrong_wire(number),
            _ => {}
        }
    }
    Ok(out)
}

/// Decodes the message of a built-in type, without an envelope, into the form the JSON decoder gives.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_message(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, DecodeError> {
    message(schema, bytes, 0, &mut Memory::default())
}

/// The message of a value that stands in `depth` objects, lists and maps.
fn message(
    schema: SchemaRef<'_>,
    bytes: &[u8],
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let node = schema.node();
    match &node.format {
        Some(format @ (Format::DateTime | Format::MicroTime)) => time(bytes, format),
        Some(Format::Quantity) => match first_bytes(bytes, 1)? {
            None => Ok(Value::String("0".into())),
            Some(quantity) => {
                typed::literal(node, typed::Literal::String(text(quantity))).map_err(|mismatch| {
                    DecodeError::Type(match mismatch {
                        typed::Mismatch::Own(text) | typed::Mismatch::Kind(text) => text,
                    })
                })
            }
        },
        Some(Format::Raw) => match first_bytes(bytes, 1)? {
            None | Some([]) => Ok(Value::Null),
            Some(raw) => json::decode_within(raw, depth, memory),
        },
        Some(Format::WrappedStrings) => {
            let mut items = Vec::new();
            let mut fields = Fields { rest: bytes };
            while let Some((number, wire)) = fields.next()? {
                if let (1, Wire::Bytes(bytes)) = (number, wire) {
                    memory.take(size_of::<Value>() + bytes.len())?;
                    items.push(Value::String(text(bytes)));
                }
            }
            Ok(Value::Array(items))
        }
        Some(Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings) => {
            schema_or(schema, bytes, depth, memory)
        }
        _ if node.ty == Type::IntOrString => int_or_string(bytes),
        _ => {
            if depth >= limits::DEPTH {
                return Err(DecodeError::Syntax("exceeded max depth".into()));
            }
            let mut map = Map::new();
            fields(schema, (&node.wire, 0), bytes, &mut map, depth + 1, memory)?;
            map.retain(|name, value| {
                schema
                    .field(name)
                    .is_some_and(|(field, inner)| typed::keep(field, inner.node(), value))
            });
            memory.take(typed::fill(schema, &mut map))?;
            if !map.is_empty() {
                memory.node()?;
            }
            Ok(Value::Object(map))
        }
    }
}

fn first_bytes(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, DecodeError> {
    let mut fields = Fields { rest: bytes };
    let mut found = None;
    while let Some((number, wire)) = fields.next()? {
        if let (true, Wire::Bytes(bytes)) = (number == wanted, wire) {
            found = Some(bytes);
        }
    }
    Ok(found)
}

fn time(bytes: &[u8], format: &Format) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut fields = Fields { rest: bytes };
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    // The years that RFC 3339 can write.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let nanos = nanos.clamp(0, 999_999_999);
    Ok(Value::String(if *format == Format::MicroTime {
        Timestamp::from_unix_nanos(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).to_rfc3339_micro()
    } else {
        Timestamp::from_unix(seconds).to_rfc3339()
    }))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_text, mut number, mut string) = (false, 0_i64, String::new());
    let mut fields = Fields { rest: bytes };
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Varint(value)) => is_text = value == 1,
            (2, Wire::Varint(value)) => number = narrow(value),
            (3, Wire::Bytes(bytes)) => string = text(bytes),
            _ => {}
        }
    }
    Ok(if is_text {
        Value::String(string)
    } else {
        Value::from(number)
    })
}

/// An int32 of the wire: its low 32 bits.
fn narrow(value: u64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "protobuf takes the low bits")]
    i64::from((value as u32).cast_signed())
}

fn schema_or(
    schema: SchemaRef<'_>,
    bytes: &[u8],
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let format = schema.node().format.as_ref();
    let (mut allows, mut one, mut many) = (false, None, Vec::new());
    let sub = |bytes: &[u8], depth: usize, memory: &mut Memory| -> Result<Value, DecodeError> {
        // A schema's own node, so that it does not recurse into this function.
        match schema.items() {
            Some(plain) => message(plain, bytes, depth, memory),
            None => Ok(Value::Null),
        }
    };
    let mut fields = Fields { rest: bytes };
    while let Some((number, wire)) = fields.next()? {
        match (format, number, wire) {
            (Some(Format::SchemaOrBool), 1, Wire::Varint(value)) => allows = value != 0,
            (Some(Format::SchemaOrBool), 2, Wire::Bytes(bytes)) => one = Some(sub(bytes, depth, memory)?),
            (_, 1, Wire::Bytes(bytes)) => one = Some(sub(bytes, depth, memory)?),
            (Some(Format::SchemaOrStrings), 2, Wire::Bytes(bytes)) => {
                memory.take(size_of::<Value>() + bytes.len())?;
                many.push(Value::String(text(bytes)));
            }
            (_, 2, Wire::Bytes(bytes)) => many.push(sub(bytes, depth + 1, memory)?),
            _ => {}
        }
    }
    Ok(match (one, format) {
        (Some(schema), _) => schema,
        (None, Some(Format::SchemaOrBool)) => Value::Bool(allows),
        (None, _) if many.is_empty() => Value::Null,
        (None, _) => Value::Array(many),
    })
}

/// The fields of a message into `map`: `wire_order` are those that share the first `level` numbers of their path.
fn fields(
    schema: SchemaRef<'_>,
    (wire_order, level): (&[u16], usize),
    bytes: &[u8],
    map: &mut Map<String, Value>,
    depth: usize,
    memory: &mut Memory,
) -> Result<(), DecodeError> {
    let all = &schema.node().fields;
    let number_of = |index: &u16| all[usize::from(*index)].wire_path().nth(level).unwrap_or(0);
    let mut fields = Fields { rest: bytes };
    while let Some((number, wire)) = fields.next()? {
        let start = wire_order.partition_point(|index| number_of(index) < number);
        let Some(first) = wire_order.get(start).filter(|index| number_of(index) == number) else {
            continue;
        };
        let field = &all[usize::from(*first)];
        if field.wire_path().count() > level + 1 {
            let end = wire_order.partition_point(|index| number_of(index) <= number);
            let Wire::Bytes(inner) = wire else {
                return wrong_wire(number);
            };
            let order = (&wire_order[start..end], level + 1);
            self::fields(schema, order, inner, map, depth, memory)?;
            continue;
        }
        let inner = schema.at(field.node);
        let node = inner.node();
        if node.ty == Type::Array && node.format != Some(Format::WrappedStrings) {
            let Some(items) = inner.items() else { continue };
            let slot = map
                .entry(field.name.as_ref())
                .or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(list) = slot else { continue };
            list_item(items, (number, wire), list, depth + 1, memory)?;
        } else if let Some(values) = inner.additional() {
            let Wire::Bytes(bytes) = wire else {
                return wrong_wire(number);
            };
            let (key, value) = map_entry(values, bytes, depth + 1, memory)?;
            let slot = map
                .entry(field.name.as_ref())
                .or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(entries) = slot {
                entries.insert(key, value);
            }
        } else {
            let value = element(inner, number, wire, depth, memory)?;
            map.insert(field.name.to_string(), value);
        }
    }
    Ok(())
}

fn list_item(
    items: SchemaRef<'_>,
    (number, wire): (u32, Wire<'_>),
    list: &mut Vec<Value>,
    depth: usize,
    memory: &mut Memory,
) -> Result<(), DecodeError> {
    let scalar = matches!(items.node().ty, Type::Integer | Type::Boolean);
    if let (true, Wire::Bytes(mut packed)) = (scalar, wire) {
        while !packed.is_empty() {
            let value = Wire::Varint(take_varint(&mut packed)?);
            list.push(element(items, number, value, depth, memory)?);
        }
        return Ok(());
    }
    list.push(element(items, number, wire, depth, memory)?);
    Ok(())
}

fn map_entry(
    values: SchemaRef<'_>,
    bytes: &[u8],
    depth: usize,
    memory: &mut Memory,
) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), None);
    let mut fields = Fields { rest: bytes };
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes),
            (2, wire) => value = Some(element(values, number, wire, depth, memory)?),
            _ => {}
        }
    }
    memory.key(&key)?;
    Ok((key, typed::or_zero(values, value.unwrap_or(Value::Null))))
}

fn element(
    schema: SchemaRef<'_>,
    number: u32,
    wire: Wire<'_>,
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let node = schema.node();
    memory.value(None)?;
    Ok(match (node.ty, wire) {
        (Type::Boolean, Wire::Varint(value)) => Value::Bool(value != 0),
        (Type::Integer, Wire::Varint(value)) if node.format == Some(Format::Int32) => {
            Value::from(narrow(value))
        }
        (Type::Integer, Wire::Varint(value)) => Value::from(value.cast_signed()),
        (Type::Number, Wire::Fixed64(bytes)) => typed::free_double(f64::from_le_bytes(bytes)),
        (Type::Boolean | Type::Integer | Type::Number, _) => return wrong_wire(number),
        (Type::String, Wire::Bytes(bytes)) if node.format == Some(Format::Byte) => {
            memory.take(bytes.len())?;
            Value::String(STANDARD.encode(bytes))
        }
        (Type::String, Wire::Bytes(bytes))
            if !matches!(
                node.format,
                Some(Format::DateTime | Format::MicroTime | Format::Quantity)
            ) =>
        {
            memory.take(bytes.len())?;
            Value::String(text(bytes))
        }
        (_, Wire::Bytes(bytes)) => message(schema, bytes, depth, memory)?,
        _ => return wrong_wire(number),
    })
}
