//! CBOR in and out, as `k8s.io/apimachinery/pkg/runtime/serializer/cbor` has it: strings are written as byte strings, map
//! keys sorted by their encoding, the whole marked by the self-described tag. Text strings are read as well.
//!
//! Big numbers, undefined values, and maps with a key twice are refused.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Map, Number, Value};

use super::{DecodeError, Memory};
use crate::limits;
use crate::time::Timestamp;

/// The first bytes of an encoded object: tag 55799.
pub const PREFIX: &[u8; 3] = &[0xd9, 0xd9, 0xf7];

/// Encodes a document.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = PREFIX.to_vec();
    put(&mut out, value);
    out
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

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(value), _) => head(out, 0, value),
            (None, Some(value)) => head(out, 1, (!value).cast_unsigned()),
            (None, None) => put_double(out, number.as_f64().unwrap_or(0.0)),
        },
        Value::String(text) => put_string(out, text),
        Value::Array(items) => {
            head(out, 4, items.len() as u64);
            items.iter().for_each(|item| put(out, item));
        }
        Value::Object(map) => {
            head(out, 5, map.len() as u64);
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            // By encoded bytes: the length stands first.
            entries.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            for (key, value) in entries {
                put_string(out, key);
                put(out, value);
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

fn from_half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Decodes one document, with the self-described tag or without.
///
/// # Errors
/// When the bytes are malformed or have no JSON form.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = Reader {
        rest: bytes,
        depth: 0,
        memory: Memory::default(),
    };
    let value = reader.value(Wrap::None)?;
    if reader.rest.is_empty() {
        return Ok(value);
    }
    fail(format_args!(
        "cbor: {} bytes of extraneous data starting at index {}",
        reader.rest.len(),
        bytes.len() - reader.rest.len()
    ))
}

fn fail<T>(text: impl std::fmt::Display) -> Result<T, DecodeError> {
    Err(DecodeError::Syntax(text.to_string()))
}

/// The conversion that a tag requests for its value.
#[derive(Clone, Copy)]
enum Wrap {
    None,
    Base64Url,
    Base64,
    Base16,
    Time,
}

struct Reader<'a> {
    rest: &'a [u8],
    depth: usize,
    memory: Memory,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], DecodeError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => fail("unexpected EOF"),
        }
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    /// The major type, the additional information and its value; 31 has none.
    fn head(&mut self) -> Result<(u8, u8, u64), DecodeError> {
        let byte = self.byte()?;
        let (major, info) = (byte >> 5, byte & 0x1f);
        let value = match info {
            0..=23 => u64::from(info),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            31 => 0,
            _ => {
                return fail(format_args!(
                    "cbor: invalid additional information {info} for type {major}"
                ));
            }
        };
        Ok((major, info, value))
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > limits::DEPTH {
            return fail("exceeded max depth");
        }
        Ok(())
    }

    /// Whether an item of a sequence is next; `left` counts those of a sequence of known length.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool, DecodeError> {
        match left {
            Some(0) => Ok(false),
            Some(count) => {
                *count -= 1;
                Ok(true)
            }
            None if self.rest.first() == Some(&0xff) => {
                self.byte()?;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn value(&mut self, wrap: Wrap) -> Result<Value, DecodeError> {
        let (major, info, value) = self.head()?;
        let indefinite = info == 31;
        if indefinite && !matches!(major, 2..=5) {
            return fail(format_args!(
                "cbor: invalid additional information 31 for type {major}"
            ));
        }
        let mut left = (!indefinite).then_some(value);
        self.memory.value(None)?;
        match major {
            0 | 1 => match i64::try_from(value) {
                Ok(value) if matches!(wrap, Wrap::Time) && major == 0 => {
                    Ok(Value::String(Timestamp::from_unix(value).to_rfc3339()))
                }
                Ok(value) => Ok(Value::from(if major == 0 { value } else { !value })),
                Err(_) => fail("cbor: cannot unmarshal integer into Go value of type int64 (overflow)"),
            },
            2 | 3 => {
                let bytes = self.string(major, &mut left, value)?;
                self.memory.take(bytes.len())?;
                text(major, bytes, wrap)
            }
            4 => {
                self.enter()?;
                let mut items = Vec::new();
                while self.more(&mut left)? {
                    items.push(self.value(Wrap::None)?);
                }
                self.depth -= 1;
                Ok(Value::Array(items))
            }
            5 => {
                self.enter()?;
                let mut map = Map::new();
                while self.more(&mut left)? {
                    if map.is_empty() {
                        self.memory.node()?;
                    }
                    let Value::String(key) = self.value(Wrap::None)? else {
                        return fail("cbor: map keys must be strings");
                    };
                    let value = self.value(Wrap::None)?;
                    if map.contains_key(&key) {
                        let key = crate::field::show_text(&key);
                        return fail(format_args!("cbor: found duplicate map key {key}"));
                    }
                    map.insert(key, value);
                }
                self.depth -= 1;
                Ok(Value::Object(map))
            }
            6 => {
                // Tags nest like lists do.
                self.enter()?;
                let wrap = match value {
                    0 | 1 => Wrap::Time,
                    2 | 3 => return fail("cbor: bignum is not allowed"),
                    21 => Wrap::Base64Url,
                    22 => Wrap::Base64,
                    23 => Wrap::Base16,
                    _ => Wrap::None,
                };
                let value = self.value(wrap)?;
                self.depth -= 1;
                Ok(value)
            }
            _ => simple(info, value),
        }
    }

    fn string(&mut self, major: u8, left: &mut Option<u64>, length: u64) -> Result<Vec<u8>, DecodeError> {
        if left.is_some() {
            return Ok(self.take(length)?.to_vec());
        }
        let mut out = Vec::new();
        while self.more(left)? {
            let (chunk, info, length) = self.head()?;
            if chunk != major || info == 31 {
                return fail("cbor: wrong element type in an indefinite-length string");
            }
            out.extend_from_slice(self.take(length)?);
        }
        Ok(out)
    }
}

fn text(major: u8, bytes: Vec<u8>, wrap: Wrap) -> Result<Value, DecodeError> {
    if major == 2 {
        let encoded = match wrap {
            Wrap::Base64 => Some(STANDARD.encode(&bytes)),
            Wrap::Base64Url => Some(URL_SAFE.encode(&bytes)),
            Wrap::Base16 => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
            Wrap::None | Wrap::Time => None,
        };
        if let Some(encoded) = encoded {
            return Ok(Value::String(encoded));
        }
        return Ok(Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Value::String(text)),
        Err(_) => fail("cbor: invalid UTF-8 string"),
    }
}

fn simple(info: u8, value: u64) -> Result<Value, DecodeError> {
    let float = match info {
        20 => return Ok(Value::Bool(false)),
        21 => return Ok(Value::Bool(true)),
        22 => return Ok(Value::Null),
        25 => from_half(u16::try_from(value).unwrap_or_default()),
        26 => f64::from(f32::from_bits(u32::try_from(value).unwrap_or_default())),
        27 => f64::from_bits(value),
        _ => return fail(format_args!("cbor: simple value {value} is not allowed")),
    };
    match Number::from_f64(float) {
        Some(_) => Ok(super::typed::free_double(float)),
        None => fail("cbor: floating-point NaN and infinity are not allowed"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_survive_the_way_there_and_back() {
        let value = json!({"a": [1, -1, 23, 24, 255, 65_536, -4_294_967_297_i64, i64::MAX, i64::MIN, 1.5, 0.1, 5.960_464_477_539_063e-8, 1e300, true, false, null],
            "bb": {"": "", "\u{e9}": "x".repeat(300)}, "z": {}, "y": []});
        let bytes = encode(&value);
        assert!(bytes.starts_with(PREFIX));
        assert_eq!(decode(&bytes).unwrap(), value);
    }

    #[test]
    fn bytes_are_those_of_upstreams_library() {
        assert_eq!(
            encode(&json!({"bb": 1, "c": "x", "a": 1.5})),
            b"\xd9\xd9\xf7\xa3\x41a\xf9\x3e\x00\x41c\x41x\x42bb\x01"
        );
        assert_eq!(encode(&json!(100_000.5))[3..], [0xfa, 0x47, 0xc3, 0x50, 0x40]);
    }

    #[test]
    fn other_encoders_are_understood() {
        let check =
            |bytes: &[u8], expected: Value| assert_eq!(decode(bytes).unwrap(), expected, "{bytes:x?}");
        check(b"\x61a", json!("a"));
        check(b"\x7f\x61a\x61b\xff", json!("ab"));
        check(b"\x9f\x01\xff", json!([1]));
        check(b"\xbf\x61a\x01\xff", json!({"a": 1}));
        check(b"\xd6\x42hi", json!("aGk="));
        check(b"\xc1\x00", json!("1970-01-01T00:00:00Z"));
        check(b"\xf9\x3c\x00", json!(1));
        check(b"\xf9\x00\x01", json!(5.960_464_477_539_063e-8));
    }

    #[test]
    fn values_without_a_json_form_are_refused() {
        for bytes in [
            b"".as_slice(),
            b"\xa2\x41a\x01\x41a\x02",
            b"\xa1\x01\x02",
            b"\xf7",
            b"\xf9\x7e\x00",
            b"\xc2\x41\x01",
            b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x61\xff",
            b"\x01\x01",
            b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x1c",
            b"\xff",
            &[0x81; 100_000],
            &[0xc6; 100_000],
        ] {
            assert!(decode(bytes).is_err(), "{:x?}", &bytes[..bytes.len().min(20)]);
        }
    }

    #[test]
    fn memory_is_bounded() {
        // Maps of one empty key, which take two hundred times their three bytes.
        let maps = |count: usize| {
            let mut bytes = vec![0x9a];
            bytes.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
            bytes.extend(b"\xa1\x40\xf6".repeat(count));
            decode(&bytes).map(drop)
        };
        assert_eq!(maps(100_000), Ok(()));
        let error = maps(250_000).unwrap_err().to_string();
        assert!(error.starts_with("decoded object is too large"), "{error}");
        // Lengths that are only declared make nothing.
        assert!(decode(b"\x9a\xff\xff\xff\xff").is_err());
    }
}
