//! PriorityClass.

use generic_server::registry::strategy::MetadataRules;
use machinery::{ApiError, FieldPath, GroupResource, meta};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules::CREATE,
    default: |object| object.fill("preemptionPolicy", "PreemptLowerPriority"),
    prepare_create: |_, object| meta::set(object, "generation", 1),
    prepare_update: |_, object, old| meta::set(object, "generation", meta::generation(old)),
    validate,
    validate_update: |errors, object, old| {
        if object.int("value").unwrap_or_default() != old.int("value").unwrap_or_default() {
            errors.forbidden(&FieldPath::new("value"), "may not be changed in an update.");
        }
        errors.immutable_at("preemptionPolicy", object, old);
    },
    validate_delete: |object| match meta::name(object) {
        name @ ("system-node-critical" | "system-cluster-critical") => {
            let resource = GroupResource::new("scheduling.k8s.io", "priorityclasses");
            let text = "this is a system priority class and cannot be deleted";
            Err(ApiError::forbidden(&resource, name, text))
        }
        _ => Ok(()),
    },
    ..Rules::PLAIN
};

/// The highest value that is not the system's.
const HIGHEST: i64 = 1_000_000_000;

fn validate(errors: &mut Errors, object: &Value) {
    let (name, value) = (meta::name(object), object.int("value").unwrap_or_default());
    if name.starts_with("system-") {
        let known = match name {
            "system-node-critical" => Some(2_000_001_000),
            "system-cluster-critical" => Some(2_000_000_000),
            _ => None,
        };
        let fault = match known {
            None => Some(format!("{name} is not a known system priority class")),
            Some(wanted) if wanted != value => {
                Some(format!("value of {name} PriorityClass must be {wanted}"))
            }
            Some(_) if object.flag("globalDefault") => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(fault) = fault {
            let metadata = FieldPath::new("metadata");
            errors.forbidden(
                &metadata.child("name"),
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {fault}"),
            );
        }
    } else if value > HIGHEST {
        errors.forbidden(
            &FieldPath::new("value"),
            format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    errors.required_one_of(
        &FieldPath::new("preemptionPolicy"),
        object.text("preemptionPolicy"),
        &["PreemptLowerPriority", "Never"],
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("priorityclasses.scheduling.k8s.io").create(&object, expected);
    }

    #[test]
    fn classes_are_validated() {
        check(json!({"value": 1_000_000_000}), &[]);
        check(
            json!({"value": 1_000_000_001, "preemptionPolicy": "Always"}),
            &[
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                r#"preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never""#,
            ],
        );
        check(
            json!({"value": 1, "preemptionPolicy": ""}),
            &["preemptionPolicy: Required value"],
        );
        let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: ";
        for (name, value, default, why) in [
            (
                "system-mine",
                1,
                false,
                "system-mine is not a known system priority class",
            ),
            (
                "system-node-critical",
                1,
                false,
                "value of system-node-critical PriorityClass must be 2000001000",
            ),
            (
                "system-cluster-critical",
                2_000_000_000,
                true,
                "globalDefault of system-cluster-critical PriorityClass must be false",
            ),
        ] {
            let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
            check(class, &[&format!("{reserved}{why}")]);
        }
    }

    #[test]
    fn a_priority_stays() {
        let classes = kind("priorityclasses.scheduling.k8s.io");
        classes.defaults(
            &json!({"value": 1}),
            &json!({"preemptionPolicy": "PreemptLowerPriority"}),
        );
        classes.update(
            &json!({"value": 1}),
            &json!({"value": 2, "preemptionPolicy": "Never"}),
            &[
                "value: Forbidden: may not be changed in an update.",
                r#"preemptionPolicy: Invalid value: "Never": field is immutable"#,
            ],
        );
        classes.update(&json!({"value": 1}), &json!({"globalDefault": true}), &[]);
    }
}
