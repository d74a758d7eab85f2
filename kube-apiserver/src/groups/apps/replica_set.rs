//! ReplicaSet.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use serde_json::Value;

use super::deployment::replicated_template;
use super::selector_stays;
use crate::errors::Errors;
use crate::groups::core::pod_spec::drop_disabled_at;
use crate::groups::core::pod_template::{default_template, named_workload_warnings};
use crate::json::Json;
use crate::replicas::replica_counts;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| drop_disabled_at(features, "spec.template.spec", object, old),
    metadata: MetadataRules::CREATE,
    status: true,
    generation: &["spec"],
    default: |object| {
        let spec = object.ensure("spec");
        spec.fill("replicas", 1);
        default_template(spec.ensure("template"));
        object.ensure("status").fill("replicas", 0);
    },
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        selector_stays(errors, object, old);
    },
    validate_status: |errors, object, _| replica_counts(errors, object),
    warnings: named_workload_warnings,
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    errors.non_negative(&path.child("replicas"), spec.int("replicas"));
    errors.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    replicated_template(errors, &path, spec);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, template, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}});
        with_spec(base, &spec)
    }

    #[test]
    fn replica_sets_are_validated() {
        let sets = kind("replicasets.apps");
        sets.create(&with(json!({})), &[]);
        sets.create(
            &with(json!({"replicas": -1, "minReadySeconds": -2})),
            &[
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                "spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
            ],
        );
        sets.defaults(
            &with(json!({})),
            &json!({"spec": {"replicas": 1}, "status": {"replicas": 0}}),
        );
        sets.update_of(
            "status",
            &with(json!({})),
            &json!({"status": {"replicas": 1, "fullyLabeledReplicas": 2}}),
            &["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        );
    }
}
