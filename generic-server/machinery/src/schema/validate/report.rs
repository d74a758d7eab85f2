//! The findings of a check and their texts.

use std::fmt;

use serde_json::{Number, Value};

use crate::field::{FieldErrorKind, clip, clip_text, show_text, show_value};
use crate::{FieldError, FieldPath, limits, steps};

/// Where a value stands, below the path the caller gave.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Root,
    /// A declared property.
    Field(&'a Place<'a>, &'a str),
    /// A key of a map, or a required name: upstream puts a dot before it even at the root.
    Entry(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Field(Place::Root, name) => f.write_str(name),
            Place::Field(parent, name) | Place::Entry(parent, name) => write!(f, "{parent}.{name}"),
            Place::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A fault, with what its words need.
pub(super) enum Violation<'a> {
    /// The type asked for, and the word that is quoted as the value.
    Type(&'a str, &'a str),
    Enum(&'a Value, &'a [Value]),
    AnyOf,
    /// How many branches were right.
    OneOf(usize),
    /// Whether none was right.
    AllOf(bool),
    Not,
    TooLong(u64),
    TooShort(u64, &'a str),
    Pattern(&'a str, &'a str),
    /// The value out of range, the type and the format.
    Range(&'static str, &'static str, &'a str),
    Factor(String),
    MultipleOf(String, Number),
    Minimum(String, bool, Number),
    Maximum(String, bool, Number),
    TooFewItems(u64, u64),
    TooMany(u64, u64, &'static str),
    Duplicates,
    TooFewProperties(u64, u64),
    Forbidden(&'a str),
    Required,
}

/// A fault in its place, rendered.
pub(super) struct Fault {
    /// `None`: a fault of no field.
    name: Option<String>,
    kind: FieldErrorKind,
    value: Option<String>,
    detail: String,
    /// The text by which upstream removes duplicate errors.
    text: String,
}

/// The result of a check: its faults (as many as are worth gathering), and how many checks passed.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<Fault>,
    pub(super) passed: usize,
}

impl Outcome {
    pub(super) fn add(&mut self, place: &Place<'_>, violation: Violation<'_>) {
        if !self.is_full() {
            self.push(render(place, violation));
        }
    }

    fn is_full(&self) -> bool {
        self.errors.len() >= limits::FIELD_ERRORS
    }

    fn push(&mut self, fault: Fault) {
        if !self.errors.iter().any(|known| known.text == fault.text) {
            self.errors.push(fault);
        }
    }

    pub(super) fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        if self.errors.is_empty() {
            self.errors = other.errors;
            return;
        }
        for fault in other.errors {
            if self.is_full() {
                return;
            }
            self.push(fault);
        }
    }
}

fn plural(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

/// The values of an enumeration, quoted.
struct Allowed<'a>(&'a [Value], &'static str);

impl fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(self.1)?;
            }
            match value {
                Value::String(text) => f.write_str(&show_text(text))?,
                other => f.write_str(&show_text(&other.to_string()))?,
            }
        }
        Ok(())
    }
}

fn render(place: &Place<'_>, violation: Violation<'_>) -> Fault {
    steps::count(1);
    let name = clip(limits::SHOWN_VALUE_BYTES, place);
    let bound = |what: &str, exclusive: bool, bound: &str| {
        let or_equal = if exclusive { "" } else { " or equal to" };
        format!("{name} in body should be {what} than{or_equal} {bound}")
    };
    let shown = |number: &Number| show_value(&Value::Number(number.clone()));
    let invalid = FieldErrorKind::Invalid;
    let (kind, value, text) = match violation {
        Violation::Type(wanted, found) => {
            let quoted = show_text(found);
            let text = format!("{name} in body must be of type {wanted}: {quoted}");
            (FieldErrorKind::TypeInvalid, Some(quoted), text)
        }
        Violation::Enum(value, allowed) => {
            let words = |separator| clip(limits::SHOWN_VALUE_BYTES, &Allowed(allowed, separator));
            return Fault {
                text: format!("{name} in body should be one of {}", words(" ")),
                name: Some(name),
                kind: FieldErrorKind::NotSupported,
                value: Some(show_value(value)),
                detail: format!("supported values: {}", words(", ")),
            };
        }
        Violation::Required => {
            return Fault {
                text: format!("{name} in body is required"),
                name: Some(name),
                kind: FieldErrorKind::Required,
                value: None,
                detail: String::new(),
            };
        }
        Violation::TooLong(max) => {
            return Fault {
                text: format!("{name} in body should be at most {max} chars long"),
                name: Some(name),
                kind: FieldErrorKind::TooLong,
                value: None,
                detail: format!("may not be more than {max} {}", plural(max, "byte", "bytes")),
            };
        }
        Violation::TooMany(max, size, what) => {
            return Fault {
                text: format!("{name} in body should have at most {max} {what}"),
                name: Some(name),
                kind: FieldErrorKind::TooMany,
                value: Some(size.to_string()),
                detail: format!("must have at most {max} {}", plural(max, "item", "items")),
            };
        }
        Violation::AnyOf => {
            return composite(format!("\"{name}\" must validate at least one schema (anyOf)"));
        }
        Violation::OneOf(valid) => {
            let more = match valid {
                0 => "Found none valid".to_owned(),
                valid => format!("Found {valid} valid alternatives"),
            };
            return composite(format!(
                "\"{name}\" must validate one and only one schema (oneOf). {more}"
            ));
        }
        Violation::AllOf(none) => {
            let more = if none { ". None validated" } else { "" };
            return composite(format!("\"{name}\" must validate all the schemas (allOf){more}"));
        }
        Violation::Not => return composite(format!("\"{name}\" must not validate the schema (not)")),
        Violation::Range(what, ty, format) => {
            let format = match format {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            return composite(format!("{what} value must be of type {ty} {format} in {name}"));
        }
        Violation::TooShort(min, value) => (
            invalid,
            Some(show_text(value)),
            format!("{name} in body should be at least {min} chars long"),
        ),
        Violation::Pattern(pattern, value) => (
            invalid,
            Some(show_text(value)),
            format!("{name} in body should match '{pattern}'"),
        ),
        Violation::Factor(factor) => (
            invalid,
            Some(factor.clone()),
            format!("factor MultipleOf declared for {name} must be positive: {factor}"),
        ),
        Violation::MultipleOf(factor, value) => (
            invalid,
            Some(shown(&value)),
            format!("{name} in body should be a multiple of {factor}"),
        ),
        Violation::Minimum(min, exclusive, value) => {
            (invalid, Some(shown(&value)), bound("greater", exclusive, &min))
        }
        Violation::Maximum(max, exclusive, value) => {
            (invalid, Some(shown(&value)), bound("less", exclusive, &max))
        }
        Violation::TooFewItems(min, size) => (
            invalid,
            Some(size.to_string()),
            format!("{name} in body should have at least {min} items"),
        ),
        Violation::TooFewProperties(min, size) => (
            invalid,
            Some(size.to_string()),
            format!("{name} in body should have at least {min} properties"),
        ),
        Violation::Duplicates => (
            invalid,
            Some("\"\"".into()),
            format!("{name} in body shouldn't contain duplicates"),
        ),
        Violation::Forbidden(key) => (
            invalid,
            Some(show_text(key)),
            format!("{name}.{key} in body is a forbidden property"),
        ),
    };
    let text = clip_text(limits::SHOWN_VALUE_BYTES, text);
    Fault {
        name: Some(name),
        kind,
        value,
        detail: text.clone(),
        text,
    }
}

/// A fault that names its place in its words alone.
fn composite(text: String) -> Fault {
    Fault {
        name: None,
        kind: FieldErrorKind::Invalid,
        value: Some("\"\"".into()),
        detail: text.clone(),
        text,
    }
}

/// The faults as field errors below `path`.
pub(super) fn field_errors(outcome: Outcome, path: &FieldPath<'_>) -> Vec<FieldError> {
    let base = path.to_string();
    outcome
        .errors
        .into_iter()
        .map(|fault| {
            let name = fault
                .name
                .as_deref()
                .map_or("", |name| name.trim_start_matches('.'));
            let field = match (base.as_str(), name) {
                (_, "") => base.clone(),
                ("<nil>", name) => name.to_owned(),
                (base, name) => format!("{base}.{name}"),
            };
            FieldError {
                kind: fault.kind,
                field,
                value: fault.value,
                detail: fault.detail,
            }
        })
        .collect()
}
