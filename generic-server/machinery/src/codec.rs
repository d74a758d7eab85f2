//! Bytes to objects and back: JSON, YAML, protobuf and CBOR.
//!
//! Every decoder bounds its recursion, so that code may recurse along a decoded object. Objects of built-in
//! kinds leave a typed decoder in the form upstream would send them: unknown fields gone, values in their normal form,
//! zero values there or not there as upstream's types have it. Nothing here defaults or validates.

pub mod cbor;
pub mod json;
mod memory;
#[cfg(test)]
mod properties;
pub mod protobuf;
mod sparse;
#[cfg(test)]
mod testdata;
pub mod typed;
pub mod yaml;

use std::fmt;

pub use memory::weight;
pub(crate) use memory::{Memory, NODE, key_weight, too_large};
pub use sparse::sparse;

/// Why bytes are no object. Display is upstream's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes are not of the encoding at all.
    Syntax(String),
    /// The document is well formed, but a value does not fit its field.
    Type(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(text) | Self::Type(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DecodeError {}

/// An error of strict field validation; otherwise a warning. Display is upstream's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrictError {
    /// A field that the schema does not have.
    Unknown(String),
    /// A field given twice.
    Duplicate(String),
    /// Anything else, in full.
    Other(String),
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::field::show_text;
        match self {
            Self::Unknown(path) => write!(f, "unknown field {}", show_text(path)),
            Self::Duplicate(path) => write!(f, "duplicate field {}", show_text(path)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl StrictError {
    /// The texts of the warnings that stand for this error: YAML's list of errors makes one for each.
    pub fn warnings(&self) -> Vec<String> {
        let text = self.to_string();
        match text.strip_prefix("yaml: unmarshal errors:\n") {
            Some(lines) => lines.lines().map(|line| line.trim().to_owned()).collect(),
            None => vec![text],
        }
    }
}

/// The message of a request refused for its strict errors: `strict decoding error: unknown field "a", ...`.
pub fn strict_message(errors: &[StrictError]) -> String {
    let mut out = String::from("strict decoding error: ");
    for (index, error) in errors.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        out.push_str(&error.to_string());
    }
    out
}

/// A decoded document and its warnings, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The document.
    pub value: serde_json::Value,
    /// Unknown and duplicate fields.
    pub strict: Vec<StrictError>,
}
