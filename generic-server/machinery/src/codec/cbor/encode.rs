//! Objects to bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::PREFIX;
use crate::schema::{Format, SchemaRef};

/// Encodes a document.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    put(&mut out, None, value);
    out
}

/// Encodes an object of a built-in type, whose bytes are bytes rather than their base64.
pub fn encode_typed(schema: SchemaRef<'_>, value: &Value) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    put(&mut out, Some(schema), value);
    out
}

/// Appends a value, without the tag of a document.
pub fn write(out: &mut Vec<u8>, schema: Option<SchemaRef<'_>>, value: &Value) {
    put(out, schema, value);
}

/// Appends the head of a map of so many members.
pub fn map_head(out: &mut Vec<u8>, members: usize) {
    head(out, 5, members as u64);
}

/// Appends the head of an array of so many items.
pub fn array_head(out: &mut Vec<u8>, items: usize) {
    head(out, 4, items as u64);
}

/// Appends the key of a map's member.
pub fn write_key(out: &mut Vec<u8>, key: &str) {
    put_string(out, key);
}

fn head(out: &mut Vec<u8>, major: u8, value: u64) {
    let major = major << 5;
    let bytes = value.to_be_bytes();
    match value {
        0..=23 => out.push(major | bytes[7]),
        24..=0xff => out.extend([major | 24, bytes[7]]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&bytes[6..]);
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&bytes);
        }
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    head(out, 2, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put(out: &mut Vec<u8>, schema: Option<SchemaRef<'_>>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => head(out, 0, value),
            (None, Some(value)) => head(out, 1, (!value).cast_unsigned()),
            (None, None) => put_double(out, number.as_f64().unwrap_or(0.0)),
        },
        Value::String(text) => {
            let is_bytes = schema.is_some_and(|schema| schema.node().format == Some(Format::Byte));
            match is_bytes.then(|| STANDARD.decode(text)) {
                // Tag 22: where text is wanted, it is the base64 of these bytes.
                Some(Ok(bytes)) => {
                    out.push(0xd6);
                    head(out, 2, bytes.len() as u64);
                    out.extend_from_slice(&bytes);
                }
                _ => put_string(out, text),
            }
        }
        Value::Array(items) => {
            let schema = schema.and_then(SchemaRef::items);
            head(out, 4, items.len() as u64);
            items.iter().for_each(|item| put(out, schema, item));
        }
        Value::Object(map) => {
            head(out, 5, map.len() as u64);
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            // By encoded bytes: the length stands first.
            entries.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            for (key, value) in entries {
                put_string(out, key);
                put(out, schema.and_then(|schema| schema.value_of(key)), value);
            }
        }
    }
}

/// The narrowest of half, single and double that keeps the value.
fn put_double(out: &mut Vec<u8>, value: f64) {
    #[expect(clippy::cast_possible_truncation, reason = "checked to lose nothing")]
    let single = value as f32;
    if f64::from(single).to_bits() != value.to_bits() {
        out.push(0xfb);
        out.extend_from_slice(&value.to_be_bytes());
        return;
    }
    match to_half(single) {
        Some(half) => {
            out.push(0xf9);
            out.extend_from_slice(&half.to_be_bytes());
        }
        None => {
            out.push(0xfa);
            out.extend_from_slice(&single.to_be_bytes());
        }
    }
}

/// A single as a half, when that is exact.
fn to_half(value: f32) -> Option<u16> {
    let bits = value.to_bits();
    let sign = u16::try_from(bits >> 16 & 0x8000).ok()?;
    let magnitude = value.abs();
    if magnitude == 0.0 {
        return Some(sign);
    }
    let exponent = i32::try_from(bits >> 23 & 0xff).ok()? - 127;
    let fraction = bits & 0x7f_ffff;
    match exponent {
        -14..=15 if fraction.trailing_zeros() >= 13 => {
            let biased = u16::try_from(exponent + 15).ok()?;
            Some(sign | biased << 10 | u16::try_from(fraction >> 13).ok()?)
        }
        // Subnormal: multiples of 2^-24.
        -24..=-15 => {
            let scaled = magnitude * 16_777_216.0;
            if scaled.fract() != 0.0 || scaled >= 1024.0 {
                return None;
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and below 1024"
            )]
            Some(sign | scaled as u16)
        }
        _ => None,
    }
}
