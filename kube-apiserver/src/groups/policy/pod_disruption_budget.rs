//! PodDisruptionBudget.

use machinery::names::percent;
use machinery::selector::label::{SelectorChecks, validate_label_selector};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::faults::{Faults, NEGATIVE};
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
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
    validate_update: |faults, object, _| validate(faults, object),
    validate_status: |faults, object, _| {
        let path = FieldPath::new("status");
        for key in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            faults.non_negative(&path.child(key), object.dig("status").int(key));
        }
    },
    ..Rules::PLAIN
};

fn validate(faults: &mut Faults, object: &Value) {
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
        faults.shown(FieldError::invalid(&path, &Value::Null, text), shown);
    }
    for key in ["minAvailable", "maxUnavailable"] {
        amount(faults, &path.child(key), spec.dig(key));
    }
    if spec.has("selector") {
        for error in validate_label_selector(
            spec.dig("selector"),
            SelectorChecks::default(),
            &path.child("selector"),
        ) {
            faults.push(error);
        }
    }
    if let Some(policy) = spec.dig("unhealthyPodEvictionPolicy").as_str() {
        faults.one_of(
            &path.child("unhealthyPodEvictionPolicy"),
            policy,
            &["AlwaysAllow", "IfHealthyBudget"],
        );
    }
}

fn amount(faults: &mut Faults, path: &FieldPath<'_>, value: &Value) {
    match value {
        Value::String(text) => {
            let texts = percent(text);
            if !texts.is_empty() {
                return faults.text(path, text, texts);
            }
            let number: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
            if number > 100 {
                faults.invalid(path, text.as_str(), "must not be greater than 100%");
            }
        }
        Value::Number(number) if number.as_i64().unwrap_or_default() < 0 => {
            faults.invalid_value(path, value, NEGATIVE);
        }
        _ => {}
    }
}
