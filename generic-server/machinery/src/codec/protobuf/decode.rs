//! Messages to objects. A message that occurs again in a field that is no list goes into the value that is there, as in upstream's
//! generated code: its fields take the place of their likes, lists and maps grow.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Envelope;
use super::names;
use super::wire::{BYTES, FIXED64, Reader, Tag, VARINT, syntax, wrong_wire};
use crate::codec::typed::short_name;
use crate::codec::{DecodeError, Memory, json, typed};
use crate::limits;
use crate::schema::{Format, Node, SchemaRef, Type};
use crate::time::Timestamp;

/// A payload of a field of a type with a wire form of its own.
enum Payload<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Hands the known fields of a message of the type `message` to `take`. They are numbered from 1 in the order of `known`, which has their wire
/// types and their names in Go.
fn each<'a>(
    bytes: &'a [u8],
    message: &str,
    known: &[(u8, &str)],
    mut take: impl FnMut(i32, Payload<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag(message)? {
        let index = usize::try_from(tag.number - 1).unwrap_or(usize::MAX);
        match known.get(index) {
            None => reader.skip(tag)?,
            Some((wire, name)) if *wire != tag.wire => return wrong_wire(tag.wire, name),
            Some((VARINT, _)) => take(tag.number, Payload::Varint(reader.varint()?))?,
            Some(_) => take(tag.number, Payload::Bytes(reader.bytes()?))?,
        }
    }
    Ok(())
}

/// The message of a type that has one field of bytes: the last that is given.
fn last_bytes<'a>(
    bytes: &'a [u8],
    message: &str,
    name: &str,
    mut check: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<Option<&'a [u8]>, DecodeError> {
    let mut last = None;
    each(bytes, message, &[(BYTES, name)], |_, payload| {
        if let Payload::Bytes(bytes) = payload {
            check(bytes)?;
            last = Some(bytes);
        }
        Ok(())
    })?;
    Ok(last)
}

pub(super) fn envelope(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    const UNKNOWN: &[(u8, &str)] = &[
        (BYTES, "TypeMeta"),
        (BYTES, "Raw"),
        (BYTES, "ContentEncoding"),
        (BYTES, "ContentType"),
    ];
    const TYPE_META: &[(u8, &str)] = &[(BYTES, "APIVersion"), (BYTES, "Kind")];
    let mut out = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
        content_type: String::new(),
    };
    each(body, "Unknown", UNKNOWN, |number, payload| {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => each(bytes, "TypeMeta", TYPE_META, |number, payload| {
                match (number, payload) {
                    (1, Payload::Bytes(bytes)) => out.api_version = text(bytes),
                    (2, Payload::Bytes(bytes)) => out.kind = text(bytes),
                    _ => {}
                }
                Ok(())
            })?,
            (2, Payload::Bytes(bytes)) => out.raw = bytes,
            (4, Payload::Bytes(bytes)) => out.content_type = text(bytes),
            _ => {}
        }
        Ok(())
    })?;
    Ok(out)
}

/// Decodes the message of a built-in type, without an envelope, into the form the JSON decoder gives.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_message(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, DecodeError> {
    message(schema, bytes, Value::Null, 0, &mut Memory::default())
}

/// The message of a value that stands in `depth` objects, lists and maps, decoded into `old`, which is null when there is none.
fn message(
    schema: SchemaRef<'_>,
    bytes: &[u8],
    old: Value,
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let node = schema.node();
    match &node.format {
        Some(format @ (Format::DateTime | Format::MicroTime)) => time(bytes, format),
        Some(Format::Quantity) => quantity(node, bytes, old),
        Some(Format::Raw) => match last_bytes(bytes, short_name(node), "Raw", |_| Ok(()))? {
            None => Ok(old),
            Some([]) => Ok(Value::Null),
            Some(raw) => json::decode_within(raw, depth, memory),
        },
        Some(Format::WrappedStrings) => {
            let Value::Array(mut items) = or_list(old) else {
                return Ok(Value::Null);
            };
            last_bytes(bytes, "ExtraValue", "Items", |bytes| {
                memory.take(size_of::<Value>() + bytes.len())?;
                items.push(Value::String(text(bytes)));
                Ok(())
            })?;
            Ok(Value::Array(items))
        }
        Some(Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings) => {
            schema_or(schema, bytes, old, depth, memory)
        }
        _ if node.ty == Type::IntOrString => int_or_string(bytes, old),
        _ => {
            if depth >= limits::DEPTH {
                return syntax("exceeded max depth");
            }
            let mut map = match old {
                // What is known stays as it is, in its form already.
                old @ Value::Object(_) if bytes.is_empty() => return Ok(old),
                Value::Object(map) => map,
                _ => Map::new(),
            };
            let order = (&*node.wire, 0);
            fields(
                schema,
                short_name(node),
                order,
                bytes,
                &mut map,
                depth + 1,
                memory,
            )?;
            map.retain(|name, value| {
                schema
                    .field(name)
                    .is_some_and(|(field, inner)| typed::keep(field, inner.node(), value))
            });
            memory.take(typed::fill(schema, &mut map))?;
            // Once more where a message is merged, which bounds how often its fields are gone through.
            if !map.is_empty() {
                memory.node()?;
            }
            Ok(Value::Object(map))
        }
    }
}

fn or_list(old: Value) -> Value {
    match old {
        list @ Value::Array(_) => list,
        _ => Value::Array(Vec::new()),
    }
}

fn quantity(node: &Node, bytes: &[u8], old: Value) -> Result<Value, DecodeError> {
    let mut value = match old {
        Value::Null => Value::String("0".into()),
        old => old,
    };
    last_bytes(bytes, "Quantity", "String_", |bytes| {
        value = typed::literal(node, typed::Literal::String(text(bytes))).map_err(|mismatch| {
            DecodeError::Type(match mismatch {
                typed::Mismatch::Own(text) | typed::Mismatch::Kind(text) => text,
            })
        })?;
        Ok(())
    })?;
    Ok(value)
}

fn time(bytes: &[u8], format: &Format) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let known = [(VARINT, "Seconds"), (VARINT, "Nanos")];
    each(bytes, "Timestamp", &known, |number, payload| {
        match (number, payload) {
            (1, Payload::Varint(value)) => seconds = value.cast_signed(),
            (2, Payload::Varint(value)) => nanos = narrow(value),
            _ => {}
        }
        Ok(())
    })?;
    // The years that RFC 3339 can write.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let nanos = nanos.clamp(0, 999_999_999);
    Ok(Value::String(if *format == Format::MicroTime {
        Timestamp::from_unix_nanos(i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).to_rfc3339_micro()
    } else {
        Timestamp::from_unix(seconds).to_rfc3339()
    }))
}

/// Of a value that is there already only the form that it shows is known, so a second message that changes the type alone finds the
/// other form empty.
fn int_or_string(bytes: &[u8], old: Value) -> Result<Value, DecodeError> {
    let (mut is_text, mut number, mut string) = match old {
        Value::String(text) => (true, 0, text),
        old => (false, old.as_i64().unwrap_or_default(), String::new()),
    };
    let known = [(VARINT, "Type"), (VARINT, "IntVal"), (BYTES, "StrVal")];
    each(bytes, "IntOrString", &known, |field, payload| {
        match (field, payload) {
            (1, Payload::Varint(value)) => is_text = value == 1,
            (2, Payload::Varint(value)) => number = narrow(value),
            (3, Payload::Bytes(bytes)) => string = text(bytes),
            _ => {}
        }
        Ok(())
    })?;
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
    old: Value,
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let node = schema.node();
    let known: &[(u8, &str)] = match &node.format {
        Some(Format::SchemaOrBool) => &[(VARINT, "Allows"), (BYTES, "Schema")],
        Some(Format::SchemaOrArray) => &[(BYTES, "Schema"), (BYTES, "JSONSchemas")],
        _ => &[(BYTES, "Schema"), (BYTES, "Property")],
    };
    let (mut allows, mut one, mut many) = match old {
        Value::Bool(allows) => (allows, Value::Null, Vec::new()),
        Value::Array(many) => (false, Value::Null, many),
        one => (false, one, Vec::new()),
    };
    let sub = |bytes: &[u8], old: Value, depth: usize, memory: &mut Memory| -> Result<Value, DecodeError> {
        // A schema's own node, so that it does not recurse into this function.
        match schema.items() {
            Some(plain) => message(plain, bytes, old, depth, memory),
            None => Ok(Value::Null),
        }
    };
    each(bytes, short_name(node), known, |number, payload| {
        match (&node.format, number, payload) {
            (_, _, Payload::Varint(value)) => allows = value != 0,
            (Some(Format::SchemaOrBool), _, Payload::Bytes(bytes)) | (_, 1, Payload::Bytes(bytes)) => {
                one = sub(bytes, std::mem::take(&mut one), depth, memory)?;
            }
            (Some(Format::SchemaOrStrings), _, Payload::Bytes(bytes)) => {
                memory.take(size_of::<Value>() + bytes.len())?;
                many.push(Value::String(text(bytes)));
            }
            (_, _, Payload::Bytes(bytes)) => many.push(sub(bytes, Value::Null, depth + 1, memory)?),
        }
        Ok(())
    })?;
    Ok(match (one, &node.format) {
        _ if !many.is_empty() => Value::Array(many),
        (Value::Null, Some(Format::SchemaOrBool)) => Value::Bool(allows),
        (one, _) => one,
    })
}

/// The fields of a message of the type `name` into `map`: `wire_order` are those that share the first `level` numbers of their path.
fn fields(
    schema: SchemaRef<'_>,
    name: &str,
    (wire_order, level): (&[u16], usize),
    bytes: &[u8],
    map: &mut Map<String, Value>,
    depth: usize,
    memory: &mut Memory,
) -> Result<(), DecodeError> {
    let all = &schema.node().fields;
    let number_of = |index: &u16| all[usize::from(*index)].wire_path().nth(level).unwrap_or(0);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag(name)? {
        let number = tag.number.unsigned_abs();
        let start = wire_order.partition_point(|index| number_of(index) < number);
        let Some(first) = wire_order.get(start).filter(|index| number_of(index) == number) else {
            reader.skip(tag)?;
            continue;
        };
        let field = &all[usize::from(*first)];
        if field.wire_path().count() > level + 1 {
            let end = wire_order.partition_point(|index| number_of(index) <= number);
            let inlined = names::inlined(name, number);
            if tag.wire != BYTES {
                return wrong_wire(tag.wire, inlined);
            }
            let order = (&wire_order[start..end], level + 1);
            let inner = reader.bytes()?;
            fields(schema, inlined, order, inner, map, depth, memory)?;
            continue;
        }
        let inner = schema.at(field.node);
        let node = inner.node();
        let items = match node.format {
            Some(Format::WrappedStrings) => None,
            _ => inner.items().filter(|_| node.ty == Type::Array),
        };
        let expected = match (items, inner.additional()) {
            (Some(items), _) if is_packed(items.node(), tag) => BYTES,
            (Some(items), _) => wire_of(items.node()),
            (None, Some(_)) => BYTES,
            (None, None) => wire_of(node),
        };
        if tag.wire != expected {
            return wrong_wire(tag.wire, &names::field(name, field, node));
        }
        let slot = map.entry(&*field.name).or_insert(Value::Null);
        if let Some(items) = items {
            *slot = or_list(std::mem::take(slot));
            let Value::Array(list) = slot else { continue };
            list_items(items, tag, &mut reader, list, depth + 1, memory)?;
        } else if let Some(values) = inner.additional() {
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            let (key, value) = map_entry(values, reader.bytes()?, depth + 1, memory)?;
            if let Value::Object(entries) = slot {
                entries.insert(key, value);
            }
        } else {
            *slot = element(inner, &mut reader, std::mem::take(slot), depth, memory)?;
        }
    }
    Ok(())
}

/// The wire type of a value.
fn wire_of(node: &Node) -> u8 {
    match node.ty {
        Type::Boolean | Type::Integer => VARINT,
        Type::Number => FIXED64,
        _ => BYTES,
    }
}

/// Whether a list's numbers come in one field.
fn is_packed(items: &Node, tag: Tag) -> bool {
    wire_of(items) == VARINT && tag.wire == BYTES
}

fn list_items(
    items: SchemaRef<'_>,
    tag: Tag,
    reader: &mut Reader<'_>,
    list: &mut Vec<Value>,
    depth: usize,
    memory: &mut Memory,
) -> Result<(), DecodeError> {
    if !is_packed(items.node(), tag) {
        list.push(element(items, reader, Value::Null, depth, memory)?);
        return Ok(());
    }
    let mut packed = Reader::new(reader.bytes()?);
    while !packed.is_empty() {
        list.push(element(items, &mut packed, Value::Null, depth, memory)?);
    }
    Ok(())
}

/// An entry of a map, whose wire types upstream does not look at. It also reads keys and values past the end of the entry, so that bytes count
/// twice; here they end with it.
fn map_entry(
    values: SchemaRef<'_>,
    bytes: &[u8],
    depth: usize,
    memory: &mut Memory,
) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), Value::Null);
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let (tag, _) = reader.any_tag()?;
        match tag.number {
            1 => key = text(reader.bytes()?),
            2 => value = element(values, &mut reader, Value::Null, depth, memory)?,
            _ => reader.skip(tag)?,
        }
    }
    memory.key(&key)?;
    Ok((key, typed::or_zero(values, value)))
}

fn element(
    schema: SchemaRef<'_>,
    reader: &mut Reader<'_>,
    old: Value,
    depth: usize,
    memory: &mut Memory,
) -> Result<Value, DecodeError> {
    let node = schema.node();
    memory.value(None)?;
    Ok(match (node.ty, &node.format) {
        (Type::Boolean, _) => Value::Bool(reader.varint()? != 0),
        (Type::Integer, Some(Format::Int32)) => Value::from(narrow(reader.varint()?)),
        (Type::Integer, _) => Value::from(reader.varint()?.cast_signed()),
        (Type::Number, _) => typed::free_double(f64::from_le_bytes(reader.fixed64()?)),
        (Type::String, Some(Format::Byte)) => {
            let bytes = reader.bytes()?;
            memory.take(bytes.len())?;
            Value::String(STANDARD.encode(bytes))
        }
        (Type::String, Some(Format::DateTime | Format::MicroTime | Format::Quantity)) => {
            message(schema, reader.bytes()?, old, depth, memory)?
        }
        (Type::String, _) => {
            let bytes = reader.bytes()?;
            memory.take(bytes.len())?;
            Value::String(text(bytes))
        }
        _ => message(schema, reader.bytes()?, old, depth, memory)?,
    })
}
