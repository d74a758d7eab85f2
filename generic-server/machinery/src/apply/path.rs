//! The steps of a path into an object: a field's name, a list item's keys, a set's value, an index.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use crate::field::{clip, show_value};
use crate::{limits, steps};

/// One step of a path. Borrows from the object, the schema or the recorded sets where it can.
#[derive(Debug, Clone)]
pub enum PathElement<'a> {
    /// A member of an object: `f:name`.
    Field(Cow<'a, str>),
    /// The list item whose key fields have these values: `k:{"name":"a"}`. Sorted by field.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The item of a set: `v:"a"`.
    Value(Cow<'a, Value>),
    /// The item at an index: `i:0`.
    Index(i64),
}

impl<'a> PathElement<'a> {
    /// A field.
    pub fn field(name: impl Into<Cow<'a, str>>) -> Self {
        PathElement::Field(name.into())
    }

    /// The same without borrowing.
    pub fn into_owned(self) -> PathElement<'static> {
        match self {
            PathElement::Field(name) => PathElement::Field(Cow::Owned(name.into_owned())),
            PathElement::Key(keys) => {
                let own = |(name, value): (Cow<'_, str>, Cow<'_, Value>)| {
                    (Cow::Owned(name.into_owned()), Cow::Owned(value.into_owned()))
                };
                PathElement::Key(keys.into_iter().map(own).collect())
            }
            PathElement::Value(value) => PathElement::Value(Cow::Owned(value.into_owned())),
            PathElement::Index(index) => PathElement::Index(index),
        }
    }

    /// Reads the recorded form. `Ok(None)` for a type of step that is not known, which is to be passed over.
    pub(super) fn parse(text: &'a str) -> Result<Option<Self>, String> {
        let Some((kind, rest)) = text.split_at_checked(2) else {
            return Err(if text.len() < 2 {
                "key must be 2 characters long:".into()
            } else {
                format!("missing colon: {text}")
            });
        };
        if !kind.ends_with(':') {
            return Err(format!("missing colon: {text}"));
        }
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|e| e.to_string());
        Ok(Some(match kind {
            "f:" => PathElement::Field(Cow::Borrowed(rest)),
            "v:" => PathElement::Value(Cow::Owned(json(rest)?)),
            "i:" => PathElement::Index(rest.parse().map_err(|_| format!("invalid index: {rest}"))?),
            "k:" => match json(rest)? {
                // A map is sorted by key already.
                Value::Object(map) => PathElement::Key(
                    map.into_iter()
                        .map(|(k, v)| (Cow::Owned(k), Cow::Owned(v)))
                        .collect(),
                ),
                _ => return Err(format!("keys must be an object: {rest}")),
            },
            _ => return Ok(None),
        }))
    }

    /// The recorded form.
    pub(super) fn encode(&self) -> String {
        match self {
            PathElement::Field(name) => {
                let mut out = String::with_capacity(name.len() + 2);
                out.push_str("f:");
                out.push_str(name);
                out
            }
            PathElement::Key(keys) => {
                let mut out = String::from("k:{");
                for (index, (name, value)) in keys.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(&**name).to_string());
                    out.push(':');
                    out.push_str(&value.to_string());
                }
                out.push('}');
                out
            }
            PathElement::Value(value) => format!("v:{value}"),
            PathElement::Index(index) => format!("i:{index}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
                    let order = a_name.cmp(b_name).then_with(|| compare_values(a_value, b_value));
                    if order.is_ne() {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare_values(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement<'_> {}

impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(keys) => {
                f.write_str("[")?;
                for (index, (name, value)) in keys.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", show_value(value))?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={}]", show_value(value)),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as messages show it: `.spec.containers[name="a"].image`. A long one is cut.
pub(super) fn show_path(path: &[PathElement<'_>]) -> String {
    struct Shown<'x, 'a>(&'x [PathElement<'a>]);
    impl fmt::Display for Shown<'_, '_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.iter().try_for_each(|element| element.fmt(f))
        }
    }
    clip(limits::SHOWN_VALUE_BYTES, &Shown(path))
}

/// The way from the root to a place, while a pass is there; rendered only for what it finds.
#[derive(Clone, Copy)]
pub(super) struct Trail<'x> {
    parent: Option<&'x Trail<'x>>,
    element: Option<&'x PathElement<'x>>,
}

impl<'x> Trail<'x> {
    pub(super) const ROOT: Trail<'static> = Trail {
        parent: None,
        element: None,
    };

    pub(super) fn below<'y>(&'y self, element: &'y PathElement<'y>) -> Trail<'y>
    where
        'x: 'y,
    {
        Trail {
            parent: Some(self),
            element: Some(element),
        }
    }

    /// The path as messages show it.
    pub(super) fn show(&self) -> String {
        clip(limits::SHOWN_VALUE_BYTES, self)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        steps::count(1);
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        self.element.map_or(Ok(()), |element| element.fmt(f))
    }
}

fn as_float(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Whether two values are the same: numbers by what they mean, not how they are written.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            x == y || ((x.is_f64() || y.is_f64()) && as_float(a) == as_float(b))
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| equal(a, b)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|((ka, a), (kb, b))| ka == kb && equal(a, b))
        }
        _ => a == b,
    }
}

/// Numbers by what they mean. Exactly: as doubles, two whole numbers could both equal a third and yet differ, and what sorts by such
/// an order panics.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    let float = |number: &Number| number.as_f64().unwrap_or_default();
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_with_float(a, float(b)),
        (None, Some(b)) => compare_with_float(b, float(a)).reverse(),
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

fn compare_with_float(whole: i128, float: f64) -> Ordering {
    let floor = float.floor();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "larger values saturate, and are beyond any number of 64 bits"
    )]
    let below = floor as i128;
    let fraction = if float > floor {
        Ordering::Less
    } else {
        Ordering::Equal
    };
    whole.cmp(&below).then(fraction)
}

/// A total order over values of all types: numbers, strings, booleans, lists, objects, null.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => compare_numbers(x, y),
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            let items = x.iter().zip(y).map(|(a, b)| compare_values(a, b));
            items
                .into_iter()
                .find(|o| o.is_ne())
                .unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let members = x
                .iter()
                .zip(y)
                .map(|((ka, a), (kb, b))| ka.cmp(kb).then_with(|| compare_values(a, b)));
            members
                .into_iter()
                .find(|o| o.is_ne())
                .unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_a_total_order() {
        let sorted = [
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(0.5),
            json!(9_007_199_254_740_992_i64),
            json!(9_007_199_254_740_993_i64),
            json!(i64::MAX - 1),
            json!(i64::MAX),
            json!(9_223_372_036_854_775_808_u64),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("a"),
            json!(false),
            json!([1]),
            json!([1, 0]),
            json!({"a": 1}),
            json!(null),
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare_values(a, b), i.cmp(&j), "{a} {b}");
            }
        }
        for (a, b) in [
            (json!(0.0), json!(-0.0)),
            (json!(1), json!(1.0)),
            (json!(9_007_199_254_740_992_i64), json!(9_007_199_254_740_992.0)),
        ] {
            assert_eq!(compare_values(&a, &b), Ordering::Equal, "{a} {b}");
        }
    }
}
