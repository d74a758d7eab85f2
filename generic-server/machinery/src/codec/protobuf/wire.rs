//! The bytes of a message: tags, payloads and what is passed over. Refusals are in the words of upstream's generated code.

use crate::codec::DecodeError;

/// Wire types.
pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Reads a message from its first byte on.
pub(super) struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

/// What stands before the payload of a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    /// The field's number. Positive, but in the entries of maps.
    pub(super) number: i32,
    /// The wire type.
    pub(super) wire: u8,
    start: usize,
}

pub(super) fn syntax<T>(text: impl Into<String>) -> Result<T, DecodeError> {
    Err(DecodeError::Syntax(text.into()))
}

fn eof<T>() -> Result<T, DecodeError> {
    syntax("unexpected EOF")
}

/// The refusal of a field that has another wire type than its own; `field` is its name in Go.
pub(super) fn wrong_wire<T>(wire: u8, field: &str) -> Result<T, DecodeError> {
    syntax(format!("proto: wrong wireType = {wire} for field {field}"))
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Reader { data, at: 0 }
    }

    /// The next field of a message; `message` is the name of its type in Go.
    pub(super) fn tag(&mut self, message: &str) -> Result<Option<Tag>, DecodeError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (tag, whole) = self.any_tag()?;
        if tag.wire == GROUP_END {
            return syntax(format!("proto: {message}: wiretype end group for non-group"));
        }
        if tag.number <= 0 {
            // Upstream prints the whole tag as the wire type.
            return syntax(format!(
                "proto: {message}: illegal tag {} (wire type {whole})",
                tag.number
            ));
        }
        Ok(Some(tag))
    }

    /// Whether all is read.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.data.len()
    }

    /// The next tag, whatever it is, and all its bits.
    pub(super) fn any_tag(&mut self) -> Result<(Tag, u64), DecodeError> {
        let start = self.at;
        let whole = self.varint()?;
        #[expect(clippy::cast_possible_truncation, reason = "as upstream, the low bits count")]
        let (number, wire) = (((whole >> 3) as u32).cast_signed(), (whole & 7) as u8);
        Ok((Tag { number, wire, start }, whole))
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.data.get(self.at) else {
                return eof();
            };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        syntax("proto: integer overflow")
    }

    /// The bytes of a field with a length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let end = self.end()?;
        let Some(bytes) = self.data.get(self.at..end) else {
            return eof();
        };
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn fixed64(&mut self) -> Result<[u8; 8], DecodeError> {
        let Some(chunk) = self.data.get(self.at..).and_then(<[u8]>::first_chunk) else {
            return eof();
        };
        self.at += 8;
        Ok(*chunk)
    }

    /// Reads a length. Where what has it ends, which may be behind the last byte.
    fn end(&mut self) -> Result<usize, DecodeError> {
        let length = i64::try_from(self.varint()?).ok();
        let end = length.and_then(|length| length.checked_add(i64::try_from(self.at).ok()?));
        let Some(end) = end else {
            return syntax("proto: negative length found during unmarshaling");
        };
        Ok(usize::try_from(end).unwrap_or(usize::MAX))
    }

    /// Passes over an unknown field whose tag was read, a group with all that is in it. Groups are counted, not recursed into.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), DecodeError> {
        self.at = tag.start;
        let mut groups = 0_usize;
        loop {
            let (tag, _) = self.any_tag()?;
            match tag.wire {
                VARINT => {
                    self.varint()?;
                }
                FIXED64 => self.at += 8,
                BYTES => self.at = self.end()?,
                GROUP => groups += 1,
                GROUP_END if groups == 0 => return syntax("proto: unexpected end of group"),
                GROUP_END => groups -= 1,
                FIXED32 => self.at += 4,
                other => return syntax(format!("proto: illegal wireType {other}")),
            }
            if self.at > self.data.len() || (groups > 0 && self.is_empty()) {
                return eof();
            }
            if groups == 0 {
                return Ok(());
            }
        }
    }
}
