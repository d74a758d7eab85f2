//! Deployment.

use generic_server::registry::strategy::MetadataRules;
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::selector_stays;
use crate::errors::Errors;
use crate::groups::core::pod_spec::drop_disabled_at;
use crate::groups::core::pod_template::{
    always_running, default_template, named_workload_warnings, selected, selector, validate_template,
};
use crate::json::Json;
use crate::replicas::{counts, int_or_percent, not_above_hundred, not_decremented, size};
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| drop_disabled_at(features, "spec.template.spec", object, old),
    metadata: MetadataRules::CREATE,
    status: true,
    status_meta: StatusMeta::KeepLabels,
    generation: &["spec", "metadata.annotations"],
    default,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        selector_stays(errors, object, old);
    },
    validate_status: |errors, object, old| {
        counts(
            errors,
            object,
            &[
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
            ],
        );
        not_decremented(errors, object, old);
    },
    warnings: named_workload_warnings,
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

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    errors.non_negative(&path.child("replicas"), spec.int("replicas"));
    replicated_template(errors, &path, spec);
    strategy(errors, &path.child("strategy"), spec.dig("strategy"));
    errors.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    errors.non_negative(
        &path.child("revisionHistoryLimit"),
        spec.int("revisionHistoryLimit"),
    );
    if let Some(seconds) = spec.int("progressDeadlineSeconds") {
        let at = path.child("progressDeadlineSeconds");
        errors.non_negative(&at, Some(seconds));
        if seconds <= spec.int("minReadySeconds").unwrap_or_default() {
            errors.invalid(&at, seconds, "must be greater than minReadySeconds");
        }
    }
}

/// Selector and template of deployments and replica sets.
pub(super) fn replicated_template(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let found = selector(
        errors,
        &path.child("selector"),
        spec.dig("selector"),
        "deployment",
        "invalid label selector",
    );
    let Some(found) = found else { return };
    let at = path.child("template");
    let template = spec.dig("template");
    selected(errors, &at, template, &found, true);
    validate_template(errors, &at, template);
    always_running(errors, &at, template, "ReplicaSet");
}

fn strategy(errors: &mut Errors, path: &FieldPath<'_>, strategy: &Value) {
    let at = path.child("rollingUpdate");
    let rolling = strategy.dig("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if !rolling.is_null() {
                errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            if rolling.is_null() {
                return errors.required(&at, "this should be defaulted and never be nil");
            }
            let (unavailable, surge) = (rolling.dig("maxUnavailable"), rolling.dig("maxSurge"));
            int_or_percent(errors, &at.child("maxUnavailable"), unavailable);
            int_or_percent(errors, &at.child("maxSurge"), surge);
            if size(unavailable) == 0 && size(surge) == 0 {
                // A text that is no percentage counts as zero, as upstream reads it.
                let bad = unavailable.is_string() || surge.is_string();
                if !bad || (size(unavailable) == 0 && size(surge) == 0) {
                    errors.invalid_value(
                        &at.child("maxUnavailable"),
                        unavailable,
                        "may not be 0 when `maxSurge` is 0",
                    );
                }
            }
            not_above_hundred(errors, &at.child("maxUnavailable"), unavailable);
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
            errors.push(error);
        }
    }
}

fn or_zero(value: &Value) -> Value {
    match value {
        Value::Null => Value::from(0),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, template, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("deployments.apps").create(&with(spec), expected);
    }

    #[test]
    fn deployments_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"replicas": -1, "minReadySeconds": 600}),
            &[
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds",
            ],
        );
        check(
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
            &[
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ],
        );
        check(
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}),
            &[
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
            ],
        );
        check(
            json!({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}),
            &[
                r#"spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%"#,
            ],
        );
        check(
            json!({"selector": {"matchLabels": {"a": "c"}}}),
            &[
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
        );
        let mut once = template();
        once["spec"]["restartPolicy"] = "Never".into();
        check(
            json!({"template": once}),
            &[r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#],
        );
    }

    #[test]
    fn deployments_have_defaults() {
        let deployments = kind("deployments.apps");
        deployments.defaults(
            &with(json!({})),
            &json!({"metadata": {"generation": 1}, "spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
                "template": {"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "terminationGracePeriodSeconds": 30,
                    "schedulerName": "default-scheduler"}}}}),
        );
        let annotated = json!({"metadata": {"annotations": {"x": "y"}}});
        assert_eq!(
            deployments.updated("", &with(json!({})), &annotated).unwrap()["metadata"]["generation"],
            2
        );
        deployments.update(
            &with(json!({})),
            &json!({"spec": {"selector": {"matchLabels": {"x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}}),
            &[r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","x":"y"}}: field is immutable"#],
        );
    }

    #[test]
    fn counts_of_a_status_agree() {
        let update = |status: Value, expected: &[&str]| {
            kind("deployments.apps").update_of(
                "status",
                &with(json!({})),
                &json!({"status": status}),
                expected,
            );
        };
        update(
            json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}),
            &[],
        );
        update(
            json!({"replicas": 1, "updatedReplicas": 2}),
            &["status.updatedReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        );
        update(
            json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}),
            &["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
        );
    }
}
