//! Bytes to objects.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Map, Number, Value};

use super::walk::{self, type_name};
use crate::codec::{DecodeError, Memory, typed};
use crate::limits;
use crate::schema::{Format, SchemaRef};
use crate::time::Timestamp;

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
/// [`DecodeError::Syntax`] when the bytes are malformed as a whole, [`DecodeError::Type`] when a value in them has no JSON form.
pub fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    decode_as(bytes, None)
}

/// The same of an object of a built-in type: fields of bytes get them as base64, whichever text their tag asks for. The object is not yet
/// in the type's normal form.
///
/// # Errors
/// Likewise.
pub fn decode_bytes_of(schema: SchemaRef<'_>, bytes: &[u8]) -> Result<Value, DecodeError> {
    decode_as(bytes, Some(schema))
}

fn decode_as(bytes: &[u8], schema: Option<SchemaRef<'_>>) -> Result<Value, DecodeError> {
    walk::check(bytes)?;
    let mut reader = Reader {
        rest: bytes,
        depth: 0,
        memory: Memory::default(),
    };
    reader.value(Wrap::None, schema)
}

fn fail<T>(text: impl std::fmt::Display) -> Result<T, DecodeError> {
    Err(DecodeError::Type(text.to_string()))
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

    fn value(&mut self, wrap: Wrap, schema: Option<SchemaRef<'_>>) -> Result<Value, DecodeError> {
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
                let schema = schema.and_then(SchemaRef::items);
                let mut items = Vec::new();
                while self.more(&mut left)? {
                    items.push(self.value(Wrap::None, schema)?);
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
                    let major = self.rest.first().map_or(7, |byte| byte >> 5);
                    let Value::String(key) = self.value(Wrap::None, None)? else {
                        return fail(format_args!(
                            "cbor: cannot unmarshal {} into Go value of type string",
                            type_name(major)
                        ));
                    };
                    let value = self.value(Wrap::None, schema.and_then(|schema| schema.value_of(&key)))?;
                    if map.contains_key(&key) {
                        let (key, index) = (crate::field::show_text(&key), map.len());
                        let text =
                            format!("cbor: found duplicate map key {key} at map element index {index}");
                        // Without an object that can be read there is no kind to speak of.
                        return Err(match self.depth {
                            1 => DecodeError::Syntax(text),
                            _ => DecodeError::Type(text),
                        });
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
                let is_bytes = schema.is_some_and(|schema| schema.node().format == Some(Format::Byte));
                let wrap = match wrap {
                    Wrap::Base64Url | Wrap::Base16 if is_bytes => Wrap::Base64,
                    wrap => wrap,
                };
                let value = self.value(wrap, schema)?;
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
        _ => {
            return fail(format_args!(
                "cbor: data item of cbor type primitives is not accepted by protocol: simple value {value} is not recognized"
            ));
        }
    };
    match Number::from_f64(float) {
        Some(_) => Ok(typed::free_double(float)),
        None => fail("cbor: floating-point NaN and infinity are not allowed"),
    }
}
