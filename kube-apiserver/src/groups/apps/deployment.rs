//! Deployment.

use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{counts, int_or_percent, not_above_hundred, not_decremented, size};
use crate::faults::Faults;
use crate::groups::core::pod_template::{
    always_running, default_template, selected, selector, validate_template, warnings,
};
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::KeepLabels,
    generation: &["spec", "metadata.annotations"],
    default,
    validate,
    validate_update: |faults, object, old| {
        validate(faults, object);
        faults.immutable(
            &FieldPath::new("spec"),
            "selector",
            object.dig("spec"),
            old.dig("spec"),
        );
    },
    validate_status: |faults, object, old| {
        counts(
            faults,
            object,
            &[
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
            ],
        );
        not_decremented(faults, object, old);
    },
    warnings: |object, old| {
        warnings(
            "spec.template",
            object.dig("spec.template"),
            old.dig("spec.template"),
        )
    },
    ..Rules::PLAIN
};

fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    spec.fill("replicas", 1);
    let strategy = spec.ensure("strategy");
    strategy.fill_text("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.ensure("rollingUpdate");
        rolling.fill("maxUnavailable", "25%");
        rolling.fill("maxSurge", "25%");
    }
    spec.fill("revisionHistoryLimit", 10);
    spec.fill("progressDeadlineSeconds", 600);
    default_template(spec.ensure("template"));
    object.ensure("status");
}

fn validate(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    faults.non_negative(&path.child("replicas"), spec.int("replicas"));
    replicated_template(faults, &path, spec);
    strategy(faults, &path.child("strategy"), spec.dig("strategy"));
    faults.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    faults.non_negative(
        &path.child("revisionHistoryLimit"),
        spec.int("revisionHistoryLimit"),
    );
    if let Some(seconds) = spec.int("progressDeadlineSeconds") {
        let at = path.child("progressDeadlineSeconds");
        faults.non_negative(&at, Some(seconds));
        if seconds <= spec.int("minReadySeconds").unwrap_or_default() {
            faults.invalid(&at, seconds, "must be greater than minReadySeconds");
        }
    }
}

/// Selector and template of deployments and replica sets.
pub(super) fn replicated_template(faults: &mut Faults, path: &FieldPath<'_>, spec: &Value) {
    let found = selector(
        faults,
        &path.child("selector"),
        spec.dig("selector"),
        "deployment",
        "invalid label selector",
    );
    let Some(found) = found else { return };
    let at = path.child("template");
    let template = spec.dig("template");
    selected(faults, &at, template, &found, true);
    validate_template(faults, &at, template);
    always_running(faults, &at, template, "ReplicaSet");
}

fn strategy(faults: &mut Faults, path: &FieldPath<'_>, strategy: &Value) {
    let at = path.child("rollingUpdate");
    let rolling = strategy.dig("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if !rolling.is_null() {
                faults.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            if rolling.is_null() {
                return faults.required(&at, "this should be defaulted and never be nil");
            }
            let (unavailable, surge) = (rolling.dig("maxUnavailable"), rolling.dig("maxSurge"));
            int_or_percent(faults, &at.child("maxUnavailable"), unavailable);
            int_or_percent(faults, &at.child("maxSurge"), surge);
            if size(unavailable) == 0 && size(surge) == 0 {
                // A text that is no percentage counts as zero, as upstream reads it.
                let bad = unavailable.is_string() || surge.is_string();
                if !bad || (size(unavailable) == 0 && size(surge) == 0) {
                    faults.invalid_value(
                        &at.child("maxUnavailable"),
                        unavailable,
                        "may not be 0 when `maxSurge` is 0",
                    );
                }
            }
            not_above_hundred(faults, &at.child("maxUnavailable"), unavailable);
        }
        _ => {
            // Upstream shows the whole struct, in Go's field names and order.
            let mut error = FieldError::not_supported(path, &json!({}), &["Recreate", "RollingUpdate"]);
            let shown = match rolling.is_null() {
                true => "null".to_string(),
                false => format!(
                    "{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}",
                    or_zero(rolling.dig("maxUnavailable")),
                    or_zero(rolling.dig("maxSurge"))
                ),
            };
            error.value = Some(format!(
                "{{\"Type\":{},\"RollingUpdate\":{shown}}}",
                strategy.dig("type")
            ));
            faults.push(error);
        }
    }
}

fn or_zero(value: &Value) -> Value {
    match value {
        Value::Null => Value::from(0),
        other => other.clone(),
    }
}
