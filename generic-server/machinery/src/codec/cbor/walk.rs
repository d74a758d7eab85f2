//! Passes over bytes that make no objects: whether they are well-formed, how long they are, which kind they say that they are of, and
//! which of their fields is unknown.

use crate::codec::{DecodeError, typed};
use crate::limits;
use crate::schema::SchemaRef;

/// Upstream's bound on the members of one map.
const MAP_MEMBERS: u64 = 2_097_152;
/// Upstream's bound on the items of one list.
const LIST_ITEMS: u64 = 2_147_483_647;

/// The first error of bytes that are no document. Memory is not taken, however much they announce.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut scanner = Scanner::new(bytes);
    scanner.item()?;
    let rest = bytes.len() - scanner.at;
    if rest > 0 {
        return fail(format_args!(
            "cbor: {rest} bytes of extraneous data starting at index {}",
            scanner.at
        ));
    }
    Ok(())
}

/// The length of the document that the bytes begin with.
pub fn item_length(bytes: &[u8]) -> Option<usize> {
    let mut scanner = Scanner::new(bytes);
    scanner.item().ok()?;
    Some(scanner.at)
}

/// `apiVersion` and `kind` of a document, empty where it does not say.
///
/// # Errors
/// When the bytes are no document, or one that cannot say.
pub fn interpret(bytes: &[u8]) -> Result<(String, String), DecodeError> {
    check(bytes)?;
    let mut scanner = Scanner::new(bytes);
    let mut found = (String::new(), String::new());
    let (major, info, count) = scanner.past_tags()?;
    match major {
        5 => {}
        7 if info == 22 => return Ok(found),
        4 => {
            return fail(
                "cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without toarray option)",
            );
        }
        other => {
            return fail(format_args!(
                "cbor: cannot unmarshal {} into Go value of type v1.TypeMeta",
                type_name(other)
            ));
        }
    }
    let mut left = (info != 31).then_some(count);
    while scanner.more(&mut left)? {
        let (name, field) = match scanner.text()? {
            Some(b"apiVersion") => ("apiVersion", &mut found.0),
            Some(b"kind") => ("kind", &mut found.1),
            _ => {
                scanner.item()?;
                continue;
            }
        };
        let (before, major) = (scanner.at, scanner.peek());
        match scanner.text()? {
            Some(text) => *field = String::from_utf8_lossy(text).into_owned(),
            None if scanner.bytes.get(before) == Some(&0xf6) => {}
            None => {
                return fail(format_args!(
                    "cbor: cannot unmarshal {} into Go struct field v1.TypeMeta.{name} of type string",
                    type_name(major)
                ));
            }
        }
    }
    Ok(found)
}

/// Where a document of a built-in type has its first field that the type does not have: the index among the members of its map.
pub fn first_unknown(bytes: &[u8], schema: SchemaRef<'_>) -> Option<usize> {
    Scanner::new(bytes).unknown(Some(schema)).ok().flatten()
}

/// The name of a major type in errors.
pub(super) fn type_name(major: u8) -> &'static str {
    match major {
        0 => "positive integer",
        1 => "negative integer",
        2 => "byte string",
        3 => "UTF-8 text string",
        4 => "array",
        5 => "map",
        6 => "tag",
        _ => "primitives",
    }
}

fn fail<T>(text: impl std::fmt::Display) -> Result<T, DecodeError> {
    Err(DecodeError::Syntax(text.to_string()))
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

impl<'a> Scanner<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Scanner {
            bytes,
            at: 0,
            depth: 0,
        }
    }

    /// The major type of the next item.
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).map_or(7, |byte| byte >> 5)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], DecodeError> {
        let end = usize::try_from(count)
            .ok()
            .and_then(|count| self.at.checked_add(count));
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += taken.len();
                Ok(taken)
            }
            None => fail(if self.bytes.is_empty() {
                "EOF"
            } else {
                "unexpected EOF"
            }),
        }
    }

    /// The major type, the additional information and its value; 31 has none.
    fn head(&mut self) -> Result<(u8, u8, u64), DecodeError> {
        let byte = self.take(1)?[0];
        let (major, info) = (byte >> 5, byte & 0x1f);
        let value = match info {
            0..=23 => u64::from(info),
            24..=27 => {
                let bytes = self.take(1 << (info - 24))?;
                bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            31 if major == 7 => return fail("cbor: unexpected \"break\" code"),
            31 if matches!(major, 2..=5) => 0,
            _ => {
                return fail(format_args!(
                    "cbor: invalid additional information {info} for type {}",
                    type_name(major)
                ));
            }
        };
        Ok((major, info, value))
    }

    /// The head of the next item behind its tags.
    fn past_tags(&mut self) -> Result<(u8, u8, u64), DecodeError> {
        loop {
            let head = self.head()?;
            if head.0 != 6 {
                return Ok(head);
            }
        }
    }

    /// Whether an item of a sequence is next; `left` counts those of a sequence of known length.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool, DecodeError> {
        match left {
            Some(0) => Ok(false),
            Some(count) => {
                *count -= 1;
                Ok(true)
            }
            None if self.bytes.get(self.at) == Some(&0xff) => {
                self.take(1)?;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn enter(&mut self) -> Result<(), DecodeError> {
        self.depth += 1;
        if self.depth > limits::DEPTH {
            return fail(format_args!("cbor: exceeded max nested level {}", limits::DEPTH));
        }
        Ok(())
    }

    /// Goes past an item.
    fn item(&mut self) -> Result<(), DecodeError> {
        let (major, info, value) = self.head()?;
        let mut left = (info != 31).then_some(value);
        match major {
            0 | 1 => Ok(()),
            2 | 3 if info == 31 => self.chunks(major),
            2 | 3 => {
                if i64::try_from(value).is_err() {
                    return fail(format_args!(
                        "cbor: {} length {value} is too large, causing integer overflow",
                        type_name(major)
                    ));
                }
                self.take(value).map(drop)
            }
            4 | 5 => {
                if i64::try_from(value).is_err() {
                    return fail(format_args!(
                        "cbor: {} length {value} is too large, it would cause integer overflow",
                        type_name(major)
                    ));
                }
                match major {
                    4 if value > LIST_ITEMS => {
                        return fail(format_args!(
                            "cbor: exceeded max number of elements {LIST_ITEMS} for CBOR array"
                        ));
                    }
                    5 if value > MAP_MEMBERS => {
                        return fail(format_args!(
                            "cbor: exceeded max number of key-value pairs {MAP_MEMBERS} for CBOR map"
                        ));
                    }
                    _ => {}
                }
                self.enter()?;
                while self.more(&mut left)? {
                    self.item()?;
                    if major == 5 {
                        self.item()?;
                    }
                }
                self.depth -= 1;
                Ok(())
            }
            6 if matches!(value, 2 | 3) => {
                fail("cbor: data item of cbor type tag is not accepted by protocol: bignum")
            }
            6 => {
                // Tags nest like lists do.
                self.enter()?;
                self.item()?;
                self.depth -= 1;
                Ok(())
            }
            _ => primitive(info, value),
        }
    }

    fn chunks(&mut self, major: u8) -> Result<(), DecodeError> {
        let mut left = None;
        while self.more(&mut left)? {
            let (chunk, info, length) = self.head()?;
            if chunk != major {
                return fail(format_args!(
                    "cbor: wrong element type {} for indefinite-length {}",
                    type_name(chunk),
                    type_name(major)
                ));
            }
            if info == 31 {
                return fail(format_args!(
                    "cbor: indefinite-length {} chunk is not definite-length",
                    type_name(major)
                ));
            }
            self.take(length)?;
        }
        Ok(())
    }

    /// A string that is in one piece, else `None`, past the item in both cases.
    fn text(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let before = self.at;
        match self.past_tags()? {
            (2 | 3, 0..=27, length) => self.take(length).map(Some),
            _ => {
                self.at = before;
                self.item()?;
                Ok(None)
            }
        }
    }

    /// The first unknown field of an item, which is gone past when there is none.
    fn unknown(&mut self, schema: Option<SchemaRef<'_>>) -> Result<Option<usize>, DecodeError> {
        let before = self.at;
        let Some(schema) = schema else {
            self.item()?;
            return Ok(None);
        };
        let (major, info, value) = self.past_tags()?;
        let mut left = (info != 31).then_some(value);
        match major {
            4 => {
                while self.more(&mut left)? {
                    let unknown = self.unknown(schema.items())?;
                    if unknown.is_some() {
                        return Ok(unknown);
                    }
                }
            }
            5 => {
                let declared = typed::takes_fields(schema.node()) && !schema.node().preserve_unknown;
                let mut index = 0;
                while self.more(&mut left)? {
                    let name = self.text()?.map(String::from_utf8_lossy).unwrap_or_default();
                    let of = schema.value_of(&name);
                    if of.is_none() && declared && !schema.node().fields.is_empty() {
                        return Ok(Some(index));
                    }
                    let unknown = self.unknown(of)?;
                    if unknown.is_some() {
                        return Ok(unknown);
                    }
                    index += 1;
                }
            }
            _ => {
                self.at = before;
                self.item()?;
            }
        }
        Ok(None)
    }
}

fn primitive(info: u8, value: u64) -> Result<(), DecodeError> {
    let (is_finite, is_nan) = match info {
        24 if value < 32 => {
            return fail(format_args!(
                "cbor: invalid simple value {value} for type primitives"
            ));
        }
        25 => (value & 0x7c00 != 0x7c00, value & 0x3ff != 0),
        26 => (value & 0x7f80_0000 != 0x7f80_0000, value & 0x7f_ffff != 0),
        27 => {
            let float = f64::from_bits(value);
            (float.is_finite(), float.is_nan())
        }
        _ => return Ok(()),
    };
    if is_finite {
        return Ok(());
    }
    fail(format_args!(
        "cbor: data item of cbor type primitives is not accepted by protocol: floating-point {}",
        if is_nan { "NaN" } else { "infinity" }
    ))
}
