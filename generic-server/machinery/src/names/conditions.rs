//! Checks of `metav1.Condition` lists.

use std::collections::HashSet;

use serde_json::Value;

use super::condition_reason;
use super::object_meta::validate_label_name;
use crate::field::are_enough;
use crate::{FieldError, FieldPath};

const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;

/// Checks every condition, and that no type comes twice.
pub fn validate_conditions(conditions: &[Value], path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen = HashSet::with_capacity(conditions.len());
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let ty = condition.get("type").and_then(Value::as_str).unwrap_or_default();
        if are_enough(&errors) {
            break;
        }
        if !seen.insert(ty) {
            errors.push(FieldError::duplicate(&path.child("type"), &ty.into()));
        }
        validate_condition(condition, &path, &mut errors);
    }
    errors
}

fn validate_condition(condition: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
    errors.extend(validate_label_name(text("type"), &path.child("type")));
    let status = text("status");
    if !matches!(status, "True" | "False" | "Unknown") {
        let supported = ["False", "True", "Unknown"];
        errors.push(FieldError::not_supported(
            &path.child("status"),
            &status.into(),
            &supported,
        ));
    }
    if let Some(generation) = condition
        .get("observedGeneration")
        .filter(|g| g.as_i64().is_some_and(|g| g < 0))
    {
        let field = path.child("observedGeneration");
        errors.push(FieldError::invalid(
            &field,
            generation,
            "must be greater than or equal to zero",
        ));
    }
    if text("lastTransitionTime").is_empty() {
        errors.push(FieldError::required(&path.child("lastTransitionTime"), ""));
    }
    let reason = text("reason");
    if reason.is_empty() {
        errors.push(FieldError::required(&path.child("reason"), ""));
    } else {
        let field = path.child("reason");
        errors.extend(
            condition_reason(reason)
                .into_iter()
                .map(|text| FieldError::invalid_str(&field, reason, text)),
        );
        if reason.len() > REASON_MAX {
            errors.push(FieldError::too_long(&field, REASON_MAX));
        }
    }
    if text("message").len() > MESSAGE_MAX {
        errors.push(FieldError::too_long(&path.child("message"), MESSAGE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults() {
        let good = json!({"type": "Ready", "status": "True", "reason": "A", "lastTransitionTime": "2024-01-01T00:00:00Z"});
        let path = FieldPath::new("status");
        let path = path.child("conditions");
        assert!(validate_conditions(std::slice::from_ref(&good), &path).is_empty());
        let bad = json!({"type": "Ready", "status": "x", "reason": "1", "observedGeneration": -1});
        let got: Vec<String> = validate_conditions(&[good, bad], &path)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(got[0], "status.conditions[1].type: Duplicate value: \"Ready\"");
        assert_eq!(
            got[1],
            "status.conditions[1].status: Unsupported value: \"x\": supported values: \"False\", \"True\", \"Unknown\""
        );
        assert_eq!(
            got[2],
            "status.conditions[1].observedGeneration: Invalid value: -1: must be greater than or equal to zero"
        );
        assert_eq!(got[3], "status.conditions[1].lastTransitionTime: Required value");
        assert!(
            got[4].starts_with(
                "status.conditions[1].reason: Invalid value: \"1\": a condition reason must start"
            )
        );
    }
}
