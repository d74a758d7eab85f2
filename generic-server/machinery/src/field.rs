//! Errors about one field of an object, and the path that names it. Mirrors `k8s.io/apimachinery/pkg/util/validation/field`.

mod clip;

use std::fmt::{self, Write};

use serde_json::Value;

use crate::go::{self, Quoted};
use crate::limits;

pub use clip::{clip, clip_escaped, clip_text};

/// A path to a field: `spec.containers[0].name`, `metadata.labels[a/b]`. Cheap to extend, rendered only on error.
#[derive(Debug, Clone, Copy)]
pub struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    segment: Segment<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Segment<'a> {
    Root,
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> FieldPath<'a> {
    /// The path of the whole object; renders as upstream's `<nil>` when nothing is appended.
    pub const ROOT: FieldPath<'static> = FieldPath {
        parent: None,
        segment: Segment::Root,
    };

    /// A path of one name.
    pub const fn new(name: &'a str) -> Self {
        FieldPath {
            parent: None,
            segment: Segment::Child(name),
        }
    }

    /// `self.name`. `name` may hold dots: `child("metadata.name")`.
    pub const fn child<'b>(&'b self, name: &'b str) -> FieldPath<'b>
    where
        'a: 'b,
    {
        FieldPath {
            parent: Some(self),
            segment: Segment::Child(name),
        }
    }

    /// `self[index]`.
    pub const fn index<'b>(&'b self, index: usize) -> FieldPath<'b>
    where
        'a: 'b,
    {
        FieldPath {
            parent: Some(self),
            segment: Segment::Index(index),
        }
    }

    /// `self[key]`.
    pub const fn key<'b>(&'b self, key: &'b str) -> FieldPath<'b>
    where
        'a: 'b,
    {
        FieldPath {
            parent: Some(self),
            segment: Segment::Key(key),
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn write(path: &FieldPath<'_>, f: &mut fmt::Formatter<'_>) -> Result<bool, fmt::Error> {
            let begun = match path.parent {
                Some(parent) => write(parent, f)?,
                None => false,
            };
            match path.segment {
                Segment::Root => return Ok(begun),
                Segment::Child(name) if begun => write!(f, ".{name}")?,
                Segment::Child(name) => f.write_str(name)?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => write!(f, "[{key}]")?,
            }
            Ok(true)
        }
        if !write(self, f)? {
            f.write_str("<nil>")?;
        }
        Ok(())
    }
}

/// The kind of a field error; the text is upstream's `ErrorType.String()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A reference to something that is not there.
    NotFound,
    /// A required value is missing.
    Required,
    /// A value collides with another that must be unique.
    Duplicate,
    /// A malformed or out-of-range value.
    Invalid,
    /// A value outside an enumeration.
    NotSupported,
    /// A value that is well formed but not allowed here.
    Forbidden,
    /// A string that is too long; the value is not repeated.
    TooLong,
    /// A string that is too short.
    TooShort,
    /// A list or map with too many items.
    TooMany,
    /// A list or map with too few items.
    TooFew,
    /// A failure of the server itself.
    Internal,
    /// A value of the wrong type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The words in messages.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
        }
    }

    /// The `reason` in `details.causes`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// One field error. [`FieldError::body`] is its text without the path, Display is the text with it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The kind of error.
    pub kind: FieldErrorKind,
    /// The rendered path.
    pub field: String,
    /// The offending value as it is shown; `None` shows none.
    pub value: Option<String>,
    /// The explanation.
    pub detail: String,
}

/// Whether so many errors are gathered that a check need not look for more ([`limits::FIELD_ERRORS`]).
pub fn are_enough(errors: &[FieldError]) -> bool {
    errors.len() >= limits::FIELD_ERRORS
}

/// How upstream prints a bad value: strings quoted as Go does, numbers and booleans bare, null as `null`, the rest as JSON. What
/// is longer than [`limits::SHOWN_VALUE_BYTES`] is cut.
pub fn show_value(value: &Value) -> String {
    match value {
        Value::String(s) => show_text(s),
        Value::Number(number) if number.is_f64() => go::general(number.as_f64().unwrap_or_default()),
        other => clip(limits::SHOWN_VALUE_BYTES, other),
    }
}

/// A string as errors show it: quoted, and cut like [`show_value`].
pub fn show_text(text: &str) -> String {
    clip(limits::SHOWN_VALUE_BYTES, &Quoted(text))
}

impl FieldError {
    fn build(
        kind: FieldErrorKind,
        path: &FieldPath<'_>,
        value: Option<String>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError {
            kind,
            field: clip(limits::SHOWN_VALUE_BYTES, path),
            value,
            detail: clip_text(limits::SHOWN_VALUE_BYTES, detail.into()),
        }
    }

    /// `Invalid value: "x": detail`.
    pub fn invalid(path: &FieldPath<'_>, value: &Value, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::Invalid, path, Some(show_value(value)), detail)
    }

    /// `invalid` for a string.
    pub fn invalid_str(path: &FieldPath<'_>, value: &str, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::Invalid, path, Some(show_text(value)), detail)
    }

    /// `Invalid value: "type": detail`, reported as `FieldValueTypeInvalid`.
    pub fn type_invalid(path: &FieldPath<'_>, value: &Value, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::TypeInvalid, path, Some(show_value(value)), detail)
    }

    /// `Required value` with an optional detail.
    pub fn required(path: &FieldPath<'_>, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::Required, path, None, detail)
    }

    /// `Duplicate value: "x"`.
    pub fn duplicate(path: &FieldPath<'_>, value: &Value) -> Self {
        Self::build(FieldErrorKind::Duplicate, path, Some(show_value(value)), "")
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(path: &FieldPath<'_>, value: &Value, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!(
                "supported values: {}",
                supported
                    .iter()
                    .map(|s| go::quote(s))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        };
        Self::build(
            FieldErrorKind::NotSupported,
            path,
            Some(show_value(value)),
            detail,
        )
    }

    /// `Forbidden: detail`.
    pub fn forbidden(path: &FieldPath<'_>, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::Forbidden, path, None, detail)
    }

    /// `Not found: "x"`.
    pub fn not_found(path: &FieldPath<'_>, value: &Value) -> Self {
        Self::build(FieldErrorKind::NotFound, path, Some(show_value(value)), "")
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(path: &FieldPath<'_>, max_bytes: usize) -> Self {
        Self::build(
            FieldErrorKind::TooLong,
            path,
            None,
            format!("may not be more than {max_bytes} bytes"),
        )
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(path: &FieldPath<'_>, actual: usize, max: usize) -> Self {
        Self::build(
            FieldErrorKind::TooMany,
            path,
            Some(actual.to_string()),
            format!("must have at most {max} items"),
        )
    }

    /// `Internal error: detail`.
    pub fn internal(path: &FieldPath<'_>, detail: impl Into<String>) -> Self {
        Self::build(FieldErrorKind::Internal, path, None, detail)
    }

    /// The text without the path, for `details.causes[].message`.
    pub fn body(&self) -> String {
        let mut out = String::from(self.kind.text());
        if let Some(value) = &self.value {
            let _ = write!(out, ": {value}");
        }
        if !self.detail.is_empty() {
            let _ = write!(out, ": {}", self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_upstreams() {
        let spec = FieldPath::new("spec");
        let containers = spec.child("containers");
        let path = containers.index(0);
        assert_eq!(
            FieldError::invalid(&path.child("name"), &json!("A_b"), "a lowercase RFC 1123 label").to_string(),
            "spec.containers[0].name: Invalid value: \"A_b\": a lowercase RFC 1123 label"
        );
        assert_eq!(
            FieldError::required(&FieldPath::ROOT, "").to_string(),
            "<nil>: Required value"
        );
        assert_eq!(
            FieldError::not_supported(&spec.key("x/y"), &json!("z"), &["a", "b"]).to_string(),
            "spec[x/y]: Unsupported value: \"z\": supported values: \"a\", \"b\""
        );
    }
}
