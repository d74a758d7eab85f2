//! The budget of memory that one decoded body may take.

use serde_json::Value;

use super::DecodeError;
use crate::limits;

/// The estimated memory of what a decoder has built so far: values, and the heap of texts and objects. An object of one
/// member takes as much as one of eleven, because the map's smallest node has room for so many.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    made: usize,
}

const VALUE: usize = size_of::<Value>();
/// A map's smallest node: eleven keys, eleven values and a header.
pub(crate) const NODE: usize = 11 * (size_of::<String>() + VALUE) + 16;
/// A member's share of the node that it is in, once an object has more than one.
const MEMBER: usize = 32;

impl Memory {
    /// Notes that this many bytes are made.
    ///
    /// # Errors
    /// When all that was made passes [`limits::DECODED_BYTES`]; so the others.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.made += bytes;
        if self.made > limits::DECODED_BYTES {
            return too_large(limits::DECODED_BYTES);
        }
        Ok(())
    }

    /// One scalar, or a list or an object without what is in it.
    #[inline]
    pub(crate) fn value(&mut self, text: Option<&str>) -> Result<(), DecodeError> {
        self.take(VALUE + text.map_or(0, str::len))
    }

    /// The node that an object has for its first members. An empty object has none.
    #[inline]
    pub(crate) fn node(&mut self) -> Result<(), DecodeError> {
        self.take(NODE)
    }

    /// The key of a member.
    #[inline]
    pub(crate) fn key(&mut self, key: &str) -> Result<(), DecodeError> {
        self.take(key_weight(key))
    }
}

#[cold]
pub(crate) fn too_large(most: usize) -> Result<(), DecodeError> {
    Err(DecodeError::Syntax(format!(
        "decoded object is too large: it would take more than {most} bytes of memory"
    )))
}

/// The estimate for the key of a member.
pub(crate) fn key_weight(key: &str) -> usize {
    MEMBER + key.len()
}

/// The memory that a value takes with all that is in it, in bytes, estimated.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::Array(items) => VALUE + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| key_weight(key) + weight(value));
            VALUE + if map.is_empty() { 0 } else { NODE } + members.sum::<usize>()
        }
        scalar => VALUE + scalar.as_str().map_or(0, str::len),
    }
}
