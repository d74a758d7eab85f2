//! DaemonSet.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use serde_json::{Value, json};

use super::selector_stays;
use crate::errors::{Errors, Ratchet};
use crate::groups::core::pod_spec::drop_disabled_at;
use crate::groups::core::pod_template::{
    always_running, default_template, parse, selected, validate_template, workload_warnings,
};
use crate::json::{Json, same};
use crate::replicas::{int_or_percent, not_above_hundred, not_decremented, size};
use crate::rules::Rules;

/// Where v1 keeps the internal count of template changes.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| drop_disabled_at(features, "spec.template.spec", object, old),
    metadata: MetadataRules::CREATE,
    status: true,
    generation: &["spec"],
    default,
    prepare_create: |_, object| {
        let given = template_generation(object).max(1);
        set_template_generation(object, given);
    },
    prepare_update: |_, object, old| {
        let changed = !same(object.dig("spec.template"), old.dig("spec.template"));
        set_template_generation(object, template_generation(old) + i64::from(changed));
    },
    validate,
    validate_update: |errors, object, old| {
        selector_stays(errors, object, old);
        validate(errors, object);
    },
    validate_status: |errors, object, old| {
        let path = FieldPath::new("status");
        for key in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            errors.non_negative(&path.child(key), object.dig("status").int(key));
        }
        not_decremented(errors, object, old);
    },
    warnings: workload_warnings,
    ..Rules::PLAIN
};

fn template_generation(object: &Value) -> i64 {
    object
        .dig("metadata.annotations")
        .get(TEMPLATE_GENERATION)
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let metadata = object.ensure("metadata");
    metadata
        .ensure("annotations")
        .put(TEMPLATE_GENERATION, generation.to_string());
}

fn complete_status(status: &mut Value) {
    for key in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
    ] {
        status.fill(key, 0);
    }
}

fn default(object: &mut Value) {
    let spec = object.ensure("spec");
    let strategy = spec.ensure("updateStrategy");
    strategy.fill_text("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.ensure("rollingUpdate");
        rolling.fill("maxUnavailable", 1);
    }
    // Upstream keeps both as numbers that are always there.
    if let Some(rolling) = strategy.dig_mut("rollingUpdate") {
        rolling.fill("maxUnavailable", 0);
        rolling.fill("maxSurge", 0);
    }
    spec.fill("revisionHistoryLimit", 10);
    default_template(spec.ensure("template"));
    if object
        .dig("metadata.annotations")
        .get(TEMPLATE_GENERATION)
        .is_none()
    {
        set_template_generation(object, 0);
    }
    complete_status(object.ensure("status"));
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let value = spec.dig("selector");
    let at = path.child("selector");
    errors.selector(&at, value, Some(Ratchet::SelectorValues));
    let template_path = path.child("template");
    let template = spec.dig("template");
    if let Ok(selector) = parse(value) {
        selected(errors, &template_path, template, &selector, false);
    }
    if !value.is_null() && value.entries("matchLabels").count() + value.list("matchExpressions").len() == 0 {
        errors.invalid_value(&at, value, "empty selector is invalid for daemonset");
    }
    validate_template(errors, &template_path, template);
    always_running(errors, &template_path, template, "DaemonSet");
    errors.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    update_strategy(errors, &path.child("updateStrategy"), spec.dig("updateStrategy"));
    errors.non_negative(
        &path.child("revisionHistoryLimit"),
        spec.int("revisionHistoryLimit"),
    );
}

fn update_strategy(errors: &mut Errors, path: &FieldPath<'_>, strategy: &Value) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let rolling = strategy.dig("rollingUpdate");
            if rolling.is_null() {
                return errors.required(&at, "");
            }
            let (unavailable, surge) = (rolling.dig("maxUnavailable"), rolling.dig("maxSurge"));
            int_or_percent(errors, &at.child("maxUnavailable"), unavailable);
            int_or_percent(errors, &at.child("maxSurge"), surge);
            not_above_hundred(errors, &at.child("maxUnavailable"), unavailable);
            not_above_hundred(errors, &at.child("maxSurge"), surge);
            match (size(unavailable) != 0, size(surge) != 0) {
                (true, true) => errors.invalid_value(
                    &at.child("maxSurge"),
                    surge,
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => {
                    errors.required(&at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => {
            let mut error =
                machinery::FieldError::not_supported(path, &json!({}), &["RollingUpdate", "OnDelete"]);
            error.value = Some(format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                strategy.dig("type"),
                strategy.dig("rollingUpdate")
            ));
            errors.push(error);
        }
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
        kind("daemonsets.apps").create(&with(spec), expected);
    }

    #[test]
    fn daemon_sets_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"minReadySeconds": -1, "revisionHistoryLimit": -1}),
            &[
                "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(
            json!({"selector": {}}),
            &["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"],
        );
        check(
            json!({"selector": {"matchLabels": {"a": "c"}}}),
            &[
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
        );
        check(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}}),
            &[
                "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
            ],
        );
        check(
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}}),
            &[
                "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
            ],
        );
    }

    #[test]
    fn templates_are_counted() {
        let sets = kind("daemonsets.apps");
        sets.defaults(
            &with(json!({})),
            &json!({"metadata": {"generation": 1, "annotations": {"deprecated.daemonset.template.generation": "1"}},
                "spec": {"revisionHistoryLimit": 10, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
                "status": {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}}),
        );
        let change = json!({"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}});
        let updated = sets.updated("", &with(json!({})), &change).unwrap();
        assert_eq!(
            updated["metadata"]["annotations"]["deprecated.daemonset.template.generation"],
            "2"
        );
        assert_eq!(updated["metadata"]["generation"], 2);
        sets.update(
            &with(json!({})),
            &json!({"spec": {"selector": {"matchLabels": {"x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}}),
            &[r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","x":"y"}}: field is immutable"#],
        );
        sets.update_of(
            "status",
            &with(json!({})),
            &json!({"status": {"numberReady": -1}}),
            &["status.numberReady: Invalid value: -1: must be greater than or equal to 0"],
        );
    }
}
