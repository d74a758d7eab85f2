//! Judges objects of custom resources by their schema, in the words of upstream's validator
//! (`k8s.io/kube-openapi/pkg/validation/validate`), quirks included: which branch of an `anyOf` is blamed depends on how
//! many of its checks passed, so checks are counted as there.

mod ratchet;
mod report;

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::{Format, Rules, SchemaRef, Type, formats};
use crate::{FieldError, FieldPath};

pub use ratchet::{Correlated, OldItems};

use report::{Outcome, Place, Violation};

/// The faults of a new value that stands at `path` (the root for a whole object).
pub fn validate(schema: SchemaRef<'_>, value: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let outcome = check(schema, value, &Place::Root, None);
    report::field_errors(outcome, path)
}

/// The faults of a changed value: those of parts that are as they were do not count.
pub fn validate_update(
    schema: SchemaRef<'_>,
    value: &Value,
    old: &Value,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let correlated = Correlated::new(schema, value, old);
    let outcome = check_ratcheting(schema, value, &Place::Root, correlated);
    report::field_errors(outcome, path)
}

/// Checks a value whose old self is known: an unchanged value's faults are forgiven.
fn check_ratcheting(
    schema: SchemaRef<'_>,
    value: &Value,
    place: &Place<'_>,
    correlated: Correlated<'_>,
) -> Outcome {
    let mut outcome = check(schema, value, place, Some(correlated));
    if !outcome.errors.is_empty() && correlated.unchanged() {
        outcome.errors.clear();
    }
    outcome
}

/// Checks the value of a field or item, with its old self where it has one.
fn check_child(
    schema: SchemaRef<'_>,
    value: &Value,
    place: &Place<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    match correlated {
        Some(correlated) => check_ratcheting(schema, value, place, correlated),
        None => check(schema, value, place, None),
    }
}

fn check(
    schema: SchemaRef<'_>,
    value: &Value,
    place: &Place<'_>,
    correlated: Option<Correlated<'_>>,
) -> Outcome {
    static NONE: std::sync::LazyLock<Rules> = std::sync::LazyLock::new(Rules::default);
    let rules = schema.node().rules.as_deref().unwrap_or(&NONE);
    let mut out = Outcome::default();
    if value.is_null() {
        check_type(schema, value, place, &mut out);
        check_enum(rules, value, place, &mut out);
        return out;
    }
    if schema.node().ty != Type::Any || schema.node().format.is_some() {
        check_type(schema, value, place, &mut out);
        out.passed += 1;
    }
    check_junctors(schema, rules, value, place, correlated, &mut out);
    out.passed += 1;
    match value {
        Value::String(text) => {
            check_string(rules, text, place, &mut out);
            out.passed += 1;
            if let Some(Format::Other(name)) = &schema.node().format
                && let Some(is) = formats::find(name)
            {
                if !is(text) {
                    out.add(place, Violation::Type(name, text));
                }
                out.passed += 1;
            }
        }
        Value::Number(number) => {
            check_number(schema, rules, number, place, &mut out);
            out.passed += 2;
        }
        Value::Array(items) => {
            check_items(schema, rules, items, place, correlated, &mut out);
            out.passed += 2;
        }
        _ => {}
    }
    check_enum(rules, value, place, &mut out);
    out.passed += 1;
    if let Value::Object(map) = value {
        check_object(schema, rules, map, place, correlated, &mut out);
        out.passed += 1;
    }
    out.passed += 1;
    out
}

/// The type in upstream's words, as in `must be of type integer,string`.
fn type_words(ty: Type) -> &'static str {
    match ty {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}

fn format_words(format: Option<&Format>) -> &str {
    match format {
        Some(Format::Int32) => "int32",
        Some(Format::Int64) => "int64",
        Some(Format::Double) => "double",
        Some(Format::Other(name)) => name,
        _ => "",
    }
}

fn check_type(schema: SchemaRef<'_>, value: &Value, place: &Place<'_>, out: &mut Outcome) {
    let node = schema.node();
    let wanted = type_words(node.ty);
    if value.is_null() {
        if node.ty != Type::Any && !node.nullable {
            out.add(place, Violation::Type(wanted, "null"));
        } else {
            out.passed += 1;
        }
        return;
    }
    let (found, found_format) = match value {
        Value::Null => return,
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let takes = |ty: &str| wanted.split(',').any(|w| w == ty);
    let float_as_integer =
        found == "number" && takes("integer") && value.as_f64().is_some_and(is_json_integer);
    let integer_as_number = found == "integer" && takes("number");
    let fits = takes(found) || float_as_integer || integer_as_number;
    let format = format_words(node.format.as_ref());
    let text_or_list = value.is_string() || value.is_array();
    if !text_or_list && !format.is_empty() && !fits && found_format != format {
        out.add(place, Violation::Type(format, found_format));
        return;
    }
    let numeric = takes("number") || takes("integer");
    // A format alone judges strings and lists, whatever their type.
    let judged_by_format = !numeric && !format.is_empty() && text_or_list;
    if !fits && !judged_by_format {
        out.add(place, Violation::Type(wanted, found));
        return;
    }
    out.passed += 1;
}

fn check_enum(rules: &Rules, value: &Value, place: &Place<'_>, out: &mut Outcome) {
    let Some(allowed) = &rules.enumeration else { return };
    let same = |allowed: &Value| match (allowed, value) {
        (Value::Null, _) => false,
        // The value is converted to the type of what is allowed: 1 is 1.0, and for a whole number 1.5 is 1.
        (Value::Number(a), Value::Number(b)) => match a.as_i64() {
            Some(a) if b.is_f64() => b.as_f64().is_some_and(|b| b.trunc() == a as f64),
            _ => a == b || a.as_f64() == b.as_f64(),
        },
        (a, b) => a == b,
    };
    let found = match value {
        Value::String(text) if !rules.enumerated_texts.is_empty() => {
            let known = |at: &u32| allowed.get(*at as usize).and_then(Value::as_str);
            let found = rules
                .enumerated_texts
                .binary_search_by(|at| known(at).cmp(&Some(text.as_str())));
            found.is_ok()
        }
        _ => allowed.iter().any(same),
    };
    if !found {
        out.add(place, Violation::Enum(value, allowed));
    }
}

fn check_junctors(
    schema: SchemaRef<'_>,
    rules: &Rules,
    value: &Value,
    place: &Place<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    if !rules.any_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut success = None;
        for branch in &rules.any_of {
            let outcome = check(schema.at(*branch), value, place, correlated);
            if outcome.errors.is_empty() {
                success = Some(outcome);
                break;
            }
            if best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
        }
        match (success, best) {
            (Some(success), _) => out.merge(success),
            (None, best) => {
                out.add(place, Violation::AnyOf);
                if let Some(best) = best {
                    out.merge(best);
                }
            }
        }
    }
    if !rules.one_of.is_empty() {
        let mut best: Option<Outcome> = None;
        let mut success = None;
        let mut valid = 0;
        for branch in &rules.one_of {
            let outcome = check(schema.at(*branch), value, place, correlated);
            if outcome.errors.is_empty() {
                valid += 1;
                best = None;
                success.get_or_insert(outcome);
            } else if valid == 0 && best.as_ref().is_none_or(|best| outcome.passed > best.passed) {
                best = Some(outcome);
            }
        }
        if valid == 1 {
            if let Some(success) = success {
                out.merge(success);
            }
        } else {
            out.add(place, Violation::OneOf(valid));
            if let Some(best) = best {
                out.merge(best);
            }
        }
    }
    if !rules.all_of.is_empty() {
        let mut valid = 0;
        for branch in &rules.all_of {
            let outcome = check(schema.at(*branch), value, place, correlated);
            valid += usize::from(outcome.errors.is_empty());
            out.merge(outcome);
        }
        if valid != rules.all_of.len() {
            out.add(place, Violation::AllOf(valid == 0));
        }
    }
    if let Some(not) = rules.not
        && check(schema.at(not), value, place, correlated).errors.is_empty()
    {
        out.add(place, Violation::Not);
    }
    out.passed += 1;
}

fn check_string(rules: &Rules, text: &str, place: &Place<'_>, out: &mut Outcome) {
    let length = || text.chars().count() as u64;
    if let Some(max) = rules.length.1
        && length() > max
    {
        out.add(place, Violation::TooLong(max));
        return;
    }
    if let Some(min) = rules.length.0
        && length() < min
    {
        out.add(place, Violation::TooShort(min, text));
        return;
    }
    if let Some(pattern) = &rules.pattern
        && pattern.matches(text) != Some(true)
    {
        out.add(place, Violation::Pattern(pattern.text(), text));
    }
}

/// Whether a double is whole, within the error that upstream allows.
fn is_json_integer(value: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > LARGEST {
        return false;
    }
    let whole = value.trunc();
    let difference = (value - whole).abs();
    difference == 0.0 || (whole != 0.0 && difference / (value.abs() + whole.abs()) < 1e-9)
}

fn show_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => crate::go::general(float),
        _ => number.to_string(),
    }
}

/// A whole number of 64 bits, also where it is written as a double.
fn whole(number: &Number) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the range")]
    let of_double = |double: f64| (double.fract() == 0.0 && double.abs() < 9.2e18).then_some(double as i64);
    number.as_i64().or_else(|| of_double(number.as_f64()?))
}

/// Whether a number can be of the type and format that the schema asks for.
fn in_range(number: &Number, schema: SchemaRef<'_>) -> bool {
    let node = schema.node();
    match (node.ty, &node.format) {
        (Type::Integer, Some(Format::Int32)) => {
            whole(number).is_some_and(|value| i32::try_from(value).is_ok())
        }
        (Type::Integer, _) => whole(number).is_some(),
        (Type::Number, Some(Format::Other(_))) => number
            .as_f64()
            .is_some_and(|value| value.abs() <= f64::from(f32::MAX)),
        _ => true,
    }
}

fn check_number(schema: SchemaRef<'_>, rules: &Rules, number: &Number, place: &Place<'_>, out: &mut Outcome) {
    let node = schema.node();
    let mut ranged = |what: &'static str, number: &Number| {
        let right = in_range(number, schema);
        if !right {
            let format = match node.ty {
                Type::Integer | Type::Number => format_words(node.format.as_ref()),
                _ => "",
            };
            out.add(place, Violation::Range(what, type_words(node.ty), format));
        }
        right
    };
    ranged("Checked", number);
    let value = number.as_f64().unwrap_or(0.0);
    let exact = number.as_i64();
    let truncated = |bound: &Number| -> i64 {
        #[expect(clippy::cast_possible_truncation, reason = "Go converts the bound so")]
        bound
            .as_i64()
            .unwrap_or_else(|| bound.as_f64().unwrap_or(0.0) as i64)
    };
    let mut found = Vec::new();
    if let Some(factor) = &rules.multiple_of {
        let native = ranged("MultipleOf", factor);
        let float = factor.as_f64().unwrap_or(0.0);
        match exact.filter(|_| native) {
            Some(value) => match truncated(factor) {
                factor if factor <= 0 => found.push(Violation::Factor(factor.to_string())),
                factor if value % factor != 0 => {
                    found.push(Violation::MultipleOf(factor.to_string(), number.clone()));
                }
                _ => {}
            },
            None if float <= 0.0 => found.push(Violation::Factor(show_number(factor))),
            None => {
                let times = if float < 1.0 {
                    1.0 / float * value
                } else {
                    value / float
                };
                if !is_json_integer(times) {
                    found.push(Violation::MultipleOf(show_number(factor), number.clone()));
                }
            }
        }
    }
    // Upstream reports the minimum before the maximum, though it checks them the other way round.
    if let Some((min, exclusive)) = &rules.minimum {
        let native = ranged("Minimum boundary", min);
        let (below, shown) = match exact.filter(|_| native) {
            Some(value) => {
                let min = truncated(min);
                (value < min || (*exclusive && value == min), min.to_string())
            }
            None => {
                let bound = min.as_f64().unwrap_or(0.0);
                (value < bound || (*exclusive && value <= bound), show_number(min))
            }
        };
        if below {
            found.push(Violation::Minimum(shown, *exclusive, number.clone()));
        }
    }
    if let Some((max, exclusive)) = &rules.maximum {
        let native = ranged("Maximum boundary", max);
        let (above, shown) = match exact.filter(|_| native) {
            Some(value) => {
                let max = truncated(max);
                (value > max || (*exclusive && value == max), max.to_string())
            }
            None => {
                let bound = max.as_f64().unwrap_or(0.0);
                (value > bound || (*exclusive && value >= bound), show_number(max))
            }
        };
        if above {
            found.push(Violation::Maximum(shown, *exclusive, number.clone()));
        }
    }
    for violation in found {
        out.add(place, violation);
    }
}

fn check_items(
    schema: SchemaRef<'_>,
    rules: &Rules,
    items: &[Value],
    place: &Place<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    if let Some(inner) = schema.items() {
        let old = correlated.and_then(Correlated::items);
        for (index, item) in items.iter().enumerate() {
            let correlated = old.as_ref().and_then(|old| old.of(item));
            out.merge(check_child(inner, item, &Place::Index(place, index), correlated));
        }
    }
    let size = items.len() as u64;
    if let Some(min) = rules.items.0
        && size < min
    {
        out.add(place, Violation::TooFewItems(min, size));
    }
    if let Some(max) = rules.items.1
        && size > max
    {
        out.add(place, Violation::TooMany(max, size, "items"));
    }
    if rules.unique_items {
        let mut known = HashSet::with_capacity(items.len());
        let repeats = !items.iter().all(|item| known.insert(item));
        if repeats {
            out.add(place, Violation::Duplicates);
        }
    }
}

fn check_object(
    schema: SchemaRef<'_>,
    rules: &Rules,
    map: &Map<String, Value>,
    place: &Place<'_>,
    correlated: Option<Correlated<'_>>,
    out: &mut Outcome,
) {
    let size = map.len() as u64;
    if let Some(min) = rules.properties.0
        && size < min
    {
        out.add(place, Violation::TooFewProperties(min, size));
    }
    if let Some(max) = rules.properties.1
        && size > max
    {
        out.add(place, Violation::TooMany(max, size, "properties"));
    }
    for (name, value) in map {
        // The root's `apiVersion` and `kind` are never compared: both are those of the request.
        let compared = !matches!(place, Place::Root) || !matches!(name.as_str(), "apiVersion" | "kind");
        let child = || correlated.filter(|_| compared)?.key(name);
        if let Some((_, inner)) = schema.field(name) {
            out.merge(check_child(inner, value, &Place::Field(place, name), child()));
        } else if let Some(inner) = schema.additional() {
            out.merge(check_child(inner, value, &Place::Entry(place, name), child()));
        } else if rules.deny_additional {
            out.add(place, Violation::Forbidden(name));
        }
    }
    for name in &rules.required {
        if !map.contains_key(&**name) {
            out.add(&Place::Entry(place, name), Violation::Required);
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod properties;
