//! The selectors of a review's resource attributes, as authorizers take them: in the form of a query.
//!
//! Requirements that cannot be read are left out: selectors only narrow, so that the question becomes a broader one.

use std::borrow::Cow;

use machinery::FieldPath;
use machinery::names::{label_key, label_value};
use machinery::selector::field::escape;
use machinery::selector::label::{Operator, Requirement};
use machinery::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;

/// The selectors of a review, and which of them could not be read whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selectors<'a> {
    /// The `fieldSelector` of a query; empty for none.
    pub(super) field: Cow<'a, str>,
    /// The `labelSelector` of a query; empty for none.
    pub(super) label: Cow<'a, str>,
    /// What the review's `evaluationError` says of them.
    pub(super) errors: Vec<String>,
}

impl<'a> Selectors<'a> {
    pub(super) fn of(review: &'a Value) -> Self {
        let attributes = review.dig("spec.resourceAttributes");
        let mut errors = Vec::new();
        let mut read = |key: &str, one: fn(&Value) -> Option<String>, parses: fn(&str) -> bool| {
            let (text, how) = selector(attributes.dig(key), one, parses);
            errors.extend(how.map(|how| format!("spec.resourceAttributes.{key} {how} due to parse error")));
            text
        };
        let field = read("fieldSelector", field_term, |raw| {
            FieldSelector::parse(raw).is_ok()
        });
        let label = read("labelSelector", label_term, |raw| {
            LabelSelector::parse(raw).is_ok()
        });
        Selectors { field, label, errors }
    }
}

/// A selector's text, and how much of it was ignored.
fn selector<'a>(
    selector: &'a Value,
    one: fn(&Value) -> Option<String>,
    parses: fn(&str) -> bool,
) -> (Cow<'a, str>, Option<&'static str>) {
    let requirements = selector.list("requirements");
    if requirements.is_empty() {
        let raw = selector.text("rawSelector");
        return match parses(raw) {
            true => (raw.into(), None),
            false => ("".into(), Some("ignored")),
        };
    }
    let terms: Vec<String> = requirements.iter().filter_map(one).collect();
    let how = match terms.len() {
        n if n == requirements.len() => None,
        0 => Some("ignored"),
        _ => Some("partially ignored"),
    };
    (terms.join(",").into(), how)
}

/// Checks a requirement of a selector. Operators that are not known are not refused: newer clients may know them.
pub(super) fn requirement(errors: &mut Errors, path: &FieldPath<'_>, requirement: &Value, of_labels: bool) {
    let (key, values) = (requirement.text("key"), requirement.list("values"));
    if !of_labels && key.is_empty() {
        errors.required(&path.child("key"), "must be specified");
    }
    match (requirement.text("operator"), values.is_empty()) {
        ("In" | "NotIn", true) => errors.required(
            &path.child("values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        ("Exists" | "DoesNotExist", false) => errors.forbidden(
            &path.child("values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        _ => {}
    }
    if of_labels {
        errors.text(&path.child("key"), key, label_key(key));
        for (index, value) in requirement.strings("values").enumerate() {
            errors.text(&path.child("values").index(index), value, label_value(value));
        }
    }
}

/// A query compares a field with one value.
fn field_term(requirement: &Value) -> Option<String> {
    let mut values = requirement.strings("values");
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    let operator = match requirement.text("operator") {
        "In" => "=",
        "NotIn" => "!=",
        _ => return None,
    };
    Some(format!("{}{operator}{}", requirement.text("key"), escape(value)))
}

fn label_term(requirement: &Value) -> Option<String> {
    let key = requirement.text("key");
    let values: Vec<Box<str>> = requirement.strings("values").map(Into::into).collect();
    let (operator, text) = match requirement.text("operator") {
        "In" => (Operator::In, format!("{key} in ({})", values.join(","))),
        "NotIn" => (Operator::NotIn, format!("{key} notin ({})", values.join(","))),
        "Exists" => (Operator::Exists, key.to_string()),
        "DoesNotExist" => (Operator::DoesNotExist, format!("!{key}")),
        _ => return None,
    };
    Requirement::new(key, operator, values).ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_take_the_form_of_queries() {
        #[track_caller]
        fn check(attributes: Value, field: &str, label: &str, errors: &[&str]) {
            let review = json!({"spec": {"resourceAttributes": attributes}});
            let found = Selectors::of(&review);
            assert_eq!((&*found.field, &*found.label), (field, label), "{attributes}");
            assert_eq!(found.errors, errors, "{attributes}");
        }
        let need = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
        check(json!({}), "", "", &[]);
        check(
            json!({"fieldSelector": {"rawSelector": "spec.nodeName=n"}, "labelSelector": {"rawSelector": "a in (b)"}}),
            "spec.nodeName=n",
            "a in (b)",
            &[],
        );
        check(
            json!({"fieldSelector": {"rawSelector": "x"}, "labelSelector": {"rawSelector": "a in"}}),
            "",
            "",
            &[
                "spec.resourceAttributes.fieldSelector ignored due to parse error",
                "spec.resourceAttributes.labelSelector ignored due to parse error",
            ],
        );
        check(
            json!({"fieldSelector": {"requirements": [need("f", "In", &["a,b=c\\"]), need("g", "NotIn", &["v"])]}}),
            "f=a\\,b\\=c\\\\,g!=v",
            "",
            &[],
        );
        check(
            json!({"fieldSelector": {"requirements": [need("f", "In", &["a", "b"]), need("g", "NotIn", &["v"])]}}),
            "g!=v",
            "",
            &["spec.resourceAttributes.fieldSelector partially ignored due to parse error"],
        );
        check(
            json!({"fieldSelector": {"requirements": [need("f", "Exists", &[])]}}),
            "",
            "",
            &["spec.resourceAttributes.fieldSelector ignored due to parse error"],
        );
        check(
            json!({"labelSelector": {"requirements": [
                need("a", "In", &["b", "c"]), need("d", "NotIn", &["e"]), need("f", "Exists", &[]), need("g", "DoesNotExist", &[]),
            ]}}),
            "",
            "a in (b,c),d notin (e),f,!g",
            &[],
        );
        check(
            json!({"labelSelector": {"requirements": [need("a", "In", &[]), need("f", "Exists", &[])]}}),
            "",
            "f",
            &["spec.resourceAttributes.labelSelector partially ignored due to parse error"],
        );
        check(
            json!({"labelSelector": {"requirements": [need("!", "Exists", &[]), need("f", "Gt", &["1"])]}}),
            "",
            "",
            &["spec.resourceAttributes.labelSelector ignored due to parse error"],
        );
    }

    #[test]
    fn requirements_are_validated() {
        #[track_caller]
        fn check(value: Value, of_labels: bool, expected: &[&str]) {
            let path = FieldPath::new("r");
            crate::groups::check::check_errors(
                |errors| requirement(errors, &path, &value, of_labels),
                expected,
            );
        }
        check(json!({"key": "a", "operator": "Odd"}), true, &[]);
        check(json!({"key": "a", "operator": "In", "values": ["b"]}), false, &[]);
        check(
            json!({"operator": "In"}),
            false,
            &[
                "r.key: Required value: must be specified",
                "r.values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        );
        check(
            json!({"key": "a", "operator": "Exists", "values": ["b"]}),
            true,
            &["r.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"],
        );
    }
}
