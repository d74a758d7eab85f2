//! JSON under a declaration, as a value: scalars convert when looked at, lists and maps are borrowed.
//! Mirrors `apiserver/pkg/cel/common/valuesunstructured.go`.

use std::sync::{Arc, LazyLock};

use go_text::Quoted;
use serde_json::Value;

use super::{List, Map, Str, Val};
use crate::{
    error::EvalError,
    scalar::{codec, time as times},
    types::{DeclKind, DeclType, ListType},
};

static DYN: LazyLock<DeclType> = LazyLock::new(DeclType::dynamic);
static UNTYPED: LazyLock<DeclType> = LazyLock::new(DeclType::untyped);

impl<'a> Val<'a> {
    /// The value of JSON under a declaration. Data that does not fit its declaration is an error naming what was expected.
    pub fn json(value: &'a Value, decl: &'a DeclType) -> Result<Val<'a>, EvalError> {
        if value.is_null() && !matches!(decl.kind(), DeclKind::Dyn | DeclKind::Untyped) {
            return match decl.is_nullable() {
                true => Ok(Val::Null),
                false => Err(EvalError::fixed(
                    "invalid data, got null for schema with nullable=false",
                )),
            };
        }
        match decl.kind() {
            DeclKind::Dyn => Ok(Val::dynamic(value)),
            DeclKind::Untyped => Ok(Val::untyped(value)),
            DeclKind::Object(object) => match value {
                Value::Object(map) => Ok(Val::Map(Map::Object { map, object })),
                _ => Err(EvalError::fixed(
                    "invalid data, expected a map for the provided schema with type=object",
                )),
            },
            DeclKind::Map { value: decl } => match value {
                Value::Object(map) => Ok(Val::Map(Map::Json { map, value: decl })),
                _ => Err(EvalError::fixed(
                    "invalid data, expected a map for the provided schema with type=object",
                )),
            },
            DeclKind::List { elem, list_type } => match value {
                Value::Array(items) => Ok(Val::List(List::Json {
                    items,
                    elem,
                    list_type,
                })),
                _ => Err(EvalError::fixed(
                    "invalid data, expected an array for the provided schema with type=array",
                )),
            },
            DeclKind::Preserved => Ok(Val::Preserved(value)),
            _ => scalar(value, decl.kind()),
        }
    }

    /// The value of JSON without a declaration: strings stay strings, whole numbers are ints.
    pub fn dynamic(value: &'a Value) -> Val<'a> {
        match value {
            Value::Null => Val::Null,
            Value::Bool(value) => Val::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(int) => Val::Int(int),
                None => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Val::String(Str::Borrowed(text)),
            Value::Array(items) => Val::List(List::Json {
                items,
                elem: &DYN,
                list_type: &ListType::Atomic,
            }),
            Value::Object(map) => Val::Map(Map::Json { map, value: &DYN }),
        }
    }

    /// The value of JSON as Go decodes it without a type: numbers are doubles, and members can be named escaped.
    pub fn untyped(value: &'a Value) -> Val<'a> {
        match value {
            Value::Number(number) => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
            Value::Array(items) => Val::List(List::Json {
                items,
                elem: &UNTYPED,
                list_type: &ListType::Atomic,
            }),
            Value::Object(map) => Val::Map(Map::Json { map, value: &UNTYPED }),
            other => Val::dynamic(other),
        }
    }
}

impl Val<'_> {
    /// The value as JSON, for results that become part of an object. Timestamps, durations and bytes become their strings;
    /// types, optionals without a value and Kubernetes' own types have no JSON form.
    pub fn to_json(&self) -> Result<Value, EvalError> {
        let none = || EvalError::new(format!("unable to convert {} to JSON", self.type_of().name()));
        Ok(match self {
            Val::Null => Value::Null,
            Val::Bool(value) => Value::Bool(*value),
            Val::Int(value) => Value::from(*value),
            Val::Uint(value) => Value::from(*value),
            Val::Double(value) => serde_json::Number::from_f64(*value)
                .map(Value::Number)
                .ok_or_else(none)?,
            Val::String(text) => Value::String(text.to_string()),
            Val::Bytes(bytes) => Value::String(codec::to_base64(bytes)),
            Val::Timestamp(_) | Val::Duration(_) => self.text().map(Value::String).ok_or_else(none)?,
            Val::List(list) => Value::Array(
                list.iter()
                    .map(|item| item?.to_json())
                    .collect::<Result<_, _>>()?,
            ),
            Val::Map(Map::Object { map, .. } | Map::Json { map, .. }) => Value::Object((*map).clone()),
            Val::Map(map) => {
                let mut out = serde_json::Map::new();
                for (key, value) in map.entries() {
                    let Val::String(key) = key else {
                        return Err(EvalError::new(format!(
                            "map key {key} is of type {}, not string",
                            key.type_of().name()
                        )));
                    };
                    out.insert(key.to_string(), value?.to_json()?);
                }
                Value::Object(out)
            }
            Val::Optional(Some(inner)) => inner.to_json()?,
            Val::Preserved(value) => (*value).clone(),
            Val::Optional(None) | Val::Type(_) | Val::Opaque(_) | Val::Authz(_) => return Err(none()),
        })
    }

    /// Checks that every built object below this one has the type its place demands: what is built as field `spec` of an
    /// `Object` must be an `Object.spec`. Gives what is wrong, in upstream's words.
    pub fn misplaced_types(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let Val::Map(Map::Built { name, .. }) = self {
            place(self, name.to_string(), &mut faults);
        }
        faults
    }
}

/// Built objects nest no deeper than the expression does.
fn place(val: &Val<'_>, path: String, faults: &mut Vec<String>) {
    match val {
        Val::Map(Map::Built { name, entries }) => {
            if **name != *path {
                faults.push(format!(
                    "unexpected type name {}, expected {path}, which matches field name path from root Object type",
                    Quoted(name), path = Quoted(&path)
                ));
            }
            for (key, value) in entries.values() {
                place(value, format!("{path}.{key}"), faults);
            }
        }
        Val::List(List::Vals { items, .. }) => {
            for item in items.iter() {
                place(item, path.clone(), faults);
            }
        }
        Val::Map(Map::Vals(entries)) => {
            for (_, value) in entries.values() {
                place(value, path.clone(), faults);
            }
        }
        _ => {}
    }
}

fn scalar<'a>(value: &'a Value, kind: &DeclKind) -> Result<Val<'a>, EvalError> {
    let wrong = |expected: &str| {
        Err(EvalError::new(format!(
            "invalid data, expected {expected}, got {}",
            go_text::type_name(value)
        )))
    };
    match (kind, value) {
        (DeclKind::IntOrString, Value::String(text)) => Ok(Val::String(Str::Borrowed(text))),
        (DeclKind::IntOrString, Value::Number(number)) if number.is_i64() => Ok(Val::dynamic(value)),
        (DeclKind::IntOrString, _) => Err(EvalError::fixed(
            "invalid data, expected XIntOrString value to be either a string or integer",
        )),
        (DeclKind::Bool, Value::Bool(value)) => Ok(Val::Bool(*value)),
        (DeclKind::Bool, _) => wrong("bool"),
        (DeclKind::Int, Value::Number(number)) if number.is_i64() => Ok(Val::dynamic(value)),
        (DeclKind::Int, _) => wrong("int"),
        (DeclKind::Double, Value::Number(number)) => Ok(Val::Double(number.as_f64().unwrap_or(f64::NAN))),
        (DeclKind::Double, _) => wrong("float"),
        (DeclKind::String, Value::String(text)) => Ok(Val::String(Str::Borrowed(text))),
        (DeclKind::Bytes, Value::String(text)) => codec::base64(text)
            .map(|bytes| Val::Bytes(Arc::from(bytes)))
            .ok_or_else(|| {
                EvalError::new(format!(
                    "Invalid byte formatted string {text}: illegal base64 data"
                ))
            }),
        (DeclKind::Date, Value::String(text)) => times::parse_date(text)
            .map(Val::Timestamp)
            .ok_or_else(|| EvalError::new(format!("Invalid date formatted string {text}"))),
        (DeclKind::DateTime, Value::String(text)) => times::parse_open_timestamp(text)
            .map(Val::Timestamp)
            .ok_or_else(|| EvalError::new(format!("Invalid date-time formatted string {text}"))),
        (DeclKind::Duration, Value::String(text)) => times::parse_open_duration(text)
            .map(Val::Duration)
            .ok_or_else(|| {
                EvalError::new(format!(
                    "Invalid duration {text}: unable to parse \"{text}\" as duration"
                ))
            }),
        _ => wrong("string"),
    }
}
