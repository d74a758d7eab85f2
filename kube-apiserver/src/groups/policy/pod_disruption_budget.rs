//! PodDisruptionBudget.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::conditions::validate_conditions;
use machinery::names::percent;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::{Errors, NEGATIVE, Ratchet};
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::NONE,
    status: true,
    generation: &["spec"],
    unconditional_update: false,
    default: |object| {
        let status = object.ensure("status");
        for key in [
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "expectedPods",
        ] {
            status.fill(key, 0);
        }
    },
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    validate_status: |errors, object, _| {
        let path = FieldPath::new("status");
        for error in validate_conditions(object.list("status.conditions"), &path.child("conditions")) {
            errors.push(error);
        }
        for key in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            errors.non_negative(&path.child(key), object.dig("status").int(key));
        }
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let shown = format!(
            r#"{{"MinAvailable":{},"Selector":{},"MaxUnavailable":{},"UnhealthyPodEvictionPolicy":{}}}"#,
            spec.dig("minAvailable"),
            spec.dig("selector"),
            spec.dig("maxUnavailable"),
            spec.dig("unhealthyPodEvictionPolicy")
        );
        let text = "minAvailable and maxUnavailable cannot be both set";
        errors.shown(FieldError::invalid(&path, &Value::Null, text), shown);
    }
    for key in ["minAvailable", "maxUnavailable"] {
        amount(errors, &path.child(key), spec.dig(key));
    }
    if spec.has("selector") {
        let rule = Some(Ratchet::SelectorValues);
        errors.selector(&path.child("selector"), spec.dig("selector"), rule);
    }
    if let Some(policy) = spec.dig("unhealthyPodEvictionPolicy").as_str() {
        errors.one_of(
            &path.child("unhealthyPodEvictionPolicy"),
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        );
    }
}

fn amount(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    match value {
        Value::String(text) => {
            let texts = percent(text);
            if !texts.is_empty() {
                return errors.text(path, text, texts);
            }
            let number: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            if number > 100 {
                errors.invalid(path, text.as_str(), "must not be greater than 100%");
            }
        }
        Value::Number(number) if number.as_i64().unwrap_or_default() < 0 => {
            errors.invalid_value(path, value, NEGATIVE);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("poddisruptionbudgets.policy").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn budgets_are_validated() {
        check(json!({"minAvailable": 1}), &[]);
        check(
            json!({"maxUnavailable": "100%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            &[],
        );
        check(
            json!({"minAvailable": -1}),
            &["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
        );
        check(
            json!({"maxUnavailable": "101%", "unhealthyPodEvictionPolicy": "Never"}),
            &[
                r#"spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
                r#"spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget""#,
            ],
        );
        check(
            json!({"minAvailable": "half"}),
            &[
                r#"spec.minAvailable: Invalid value: "half": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"#,
            ],
        );
        check(
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            &[
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ],
        );
        let both = kind("poddisruptionbudgets.policy")
            .errors(&json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}));
        assert!(
            both[0].ends_with("minAvailable and maxUnavailable cannot be both set"),
            "{both:?}"
        );
    }

    #[test]
    fn the_status_of_a_budget_is_counted() {
        let budgets = kind("poddisruptionbudgets.policy");
        let object = json!({"spec": {"minAvailable": 1}});
        budgets.defaults(
            &object,
            &json!({"metadata": {"generation": 1},
                "status": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}}),
        );
        budgets.update_of(
            "status",
            &object,
            &json!({"status": {"disruptionsAllowed": -1, "expectedPods": -2}}),
            &[
                "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0",
                "status.expectedPods: Invalid value: -2: must be greater than or equal to 0",
            ],
        );
        budgets.update_of(
            "status",
            &object,
            &json!({"status": {"conditions": [{"type": "DisruptionAllowed", "status": "Maybe", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}]}}),
            &[r#"status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown""#],
        );
        assert_eq!(
            budgets
                .updated("", &object, &json!({"spec": {"minAvailable": 2}}))
                .unwrap()["metadata"]["generation"],
            2
        );
    }
}
