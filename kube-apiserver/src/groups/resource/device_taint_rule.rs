//! DeviceTaintRule: a taint of all devices that a selector finds.
//!
//! v1alpha3 is stored; v1beta2 differs in its name alone.

use generic_server::ApiError;
use generic_server::resource::Converter;
use machinery::names::conditions::validate_conditions;
use machinery::time::Timestamp;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::device::{pool_name, taint};
use crate::errors::Errors;
use crate::groups::core::pod_spec::{csi_driver, label};
use crate::json::{Json, same};
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    generation: &["spec"],
    default: |object| {
        let taint = object.ensure("spec").ensure("taint");
        taint.fill("timeAdded", Timestamp::now().to_rfc3339());
    },
    prepare_update: |_, object, old| {
        let (new, before) = (object.dig("spec.taint"), old.dig("spec.taint"));
        let keeps = |key: &str| same(new.dig(key), before.dig(key));
        // The time is that of the effect, unless the client has said another.
        if !keeps("effect") && keeps("timeAdded") {
            let now = Timestamp::now().to_rfc3339();
            object.ensure("spec").ensure("taint").put("timeAdded", now);
        }
    },
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: validate,
    validate_status: |errors, object, _| {
        let (path, list) = (FieldPath::new("status"), object.list("status.conditions"));
        let path = path.child("conditions");
        for error in validate_conditions(list, &path) {
            errors.push(error);
        }
        if list.len() > CONDITIONS {
            errors.push(FieldError::too_many(&path, list.len(), CONDITIONS));
        }
    },
    ..Rules::PLAIN
};

/// The most conditions of a rule. Upstream's.
const CONDITIONS: usize = 8;

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
    let (at, selector) = (path.child("deviceSelector"), spec.dig("deviceSelector"));
    if selector.has("driver") {
        csi_driver(errors, &at.child("driver"), selector.text("driver"));
    }
    if selector.has("pool") {
        pool_name(errors, &at.child("pool"), selector.text("pool"));
    }
    if selector.has("device") {
        label(errors, &at.child("device"), selector.text("device"));
    }
    let (new, before) = (spec.dig("taint"), old.dig("spec.taint"));
    // What is stored stays valid, whatever effects there are by then.
    let judged = old.is_null() || new.text("effect") != before.text("effect");
    taint(errors, &path.child("taint"), new, judged);
}

/// Reads and writes v1beta2.
#[derive(Debug)]
pub(super) struct V1Beta2;

impl Converter for V1Beta2 {
    fn from_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "resource.k8s.io/v1beta2");
        Ok(object)
    }

    fn to_stored(&self, mut object: Value) -> Result<Value, ApiError> {
        object.put("apiVersion", "resource.k8s.io/v1alpha3");
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::{kind, with_spec};

    fn rule(over: &Value) -> Value {
        let taint =
            json!({"key": "example.com/bad", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"});
        with_spec(json!({"spec": {"taint": taint}}), over)
    }

    #[track_caller]
    fn check(over: Value, expected: &[&str]) {
        kind("devicetaintrules.resource.k8s.io").create(&rule(&over), expected);
    }

    #[test]
    fn rules_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"deviceSelector": {"driver": "example.com", "pool": "a/b", "device": "d"}}),
            &[],
        );
        check(
            json!({"deviceSelector": {"driver": "", "pool": ""}}),
            &[
                "spec.deviceSelector.driver: Required value",
                "spec.deviceSelector.pool: Required value",
            ],
        );
        check(
            json!({"taint": {"key": "a", "effect": "Never"}}),
            &[
                r#"spec.taint.effect: Unsupported value: "Never": supported values: "NoExecute", "NoSchedule", "None""#,
            ],
        );
        check(
            json!({"taint": {"key": "a"}}),
            &["spec.taint.effect: Required value"],
        );
    }

    #[test]
    fn an_effect_has_its_time() {
        let rules = kind("devicetaintrules.resource.k8s.io");
        let made = rules.created(&json!({"spec": {"taint": {"key": "a", "effect": "None"}}}));
        assert!(made["spec"]["taint"]["timeAdded"].is_string());
        assert_eq!(made["metadata"]["generation"], 1);
        let change = json!({"spec": {"taint": {"effect": "NoExecute"}}});
        let changed = rules.updated("", &rule(&json!({})), &change).unwrap();
        assert_ne!(changed["spec"]["taint"]["timeAdded"], "2026-01-01T00:00:00Z");
        let said = json!({"spec": {"taint": {"effect": "NoExecute", "timeAdded": "2026-02-02T00:00:00Z"}}});
        let changed = rules.updated("", &rule(&json!({})), &said).unwrap();
        assert_eq!(changed["spec"]["taint"]["timeAdded"], "2026-02-02T00:00:00Z");
    }

    #[test]
    fn a_rule_has_few_conditions() {
        let conditions = |count: usize| -> Vec<Value> {
            let one = |n| {
                json!({"type": format!("T{n}"), "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            (0..count).map(one).collect()
        };
        let rules = kind("devicetaintrules.resource.k8s.io");
        let status = |count| json!({"status": {"conditions": conditions(count)}});
        rules.update_of("status", &rule(&json!({})), &status(8), &[]);
        rules.update_of(
            "status",
            &rule(&json!({})),
            &status(9),
            &["status.conditions: Too many: 9: must have at most 8 items"],
        );
    }
}
