//! Lease.

use generic_server::registry::strategy::MetadataRules;
use machinery::FieldPath;
use machinery::names::qualified_name;
use serde_json::Value;

use crate::deps::KindFeatures;
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules {
        on_update: false,
        ..MetadataRules::ANY_FINALIZER
    },
    create_on_update: true,
    unconditional_update: false,
    default: |object| {
        object.ensure("spec");
    },
    drop_disabled,
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    ..Rules::PLAIN
};

/// Coordinated leader election is off: what it is about goes, unless it was there before.
fn drop_disabled(_: KindFeatures, object: &mut Value, old: &Value) {
    for key in ["strategy", "preferredHolder"] {
        if !old.dig("spec").has(key) {
            object.ensure("spec").take_key(key);
        }
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    if let Some(seconds) = object
        .int("spec.leaseDurationSeconds")
        .filter(|seconds| *seconds <= 0)
    {
        errors.invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    errors.non_negative(
        &path.child("leaseTransitions"),
        object.int("spec.leaseTransitions"),
    );
    let spec = object.dig("spec");
    if let Some(strategy) = spec.dig("strategy").as_str() {
        coordination_strategy(errors, &path.child("strategy"), strategy);
    }
    if !spec.text("preferredHolder").is_empty() && spec.text("strategy").is_empty() {
        errors.forbidden(
            &path.child("preferredHolder"),
            "may only be specified if `strategy` is defined",
        );
    }
}

/// One of Kubernetes' own, or a qualified name.
pub(super) fn coordination_strategy(errors: &mut Errors, path: &FieldPath<'_>, strategy: &str) {
    // Upstream's path says it twice.
    let path = path.child("strategy");
    if strategy.contains('/') {
        errors.text(&path, strategy, qualified_name(strategy));
    } else {
        errors.one_of(&path, strategy, &["OldestEmulationVersion"]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("leases.coordination.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn leases_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"leaseDurationSeconds": 1, "leaseTransitions": 0, "preferredHolder": ""}),
            &[],
        );
        check(
            json!({"leaseDurationSeconds": 0, "leaseTransitions": -1}),
            &[
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(
            json!({"strategy": "OldestEmulationVersion", "preferredHolder": "h"}),
            &[],
        );
        check(json!({"strategy": "example.com/mine"}), &[]);
        // Objects that are stored already may have one.
        crate::groups::check::check_errors(
            |errors| {
                super::validate(
                    errors,
                    &json!({"spec": {"strategy": "Youngest", "preferredHolder": "h"}}),
                )
            },
            &[
                r#"spec.strategy.strategy: Unsupported value: "Youngest": supported values: "OldestEmulationVersion""#,
            ],
        );
        crate::groups::check::check_errors(
            |errors| super::validate(errors, &json!({"spec": {"preferredHolder": "h"}})),
            &["spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"],
        );
    }

    #[test]
    fn leases_are_updated_by_version() {
        let leases = kind("leases.coordination.k8s.io");
        let bad = &["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"];
        leases.update(
            &json!({"spec": {}}),
            &json!({"spec": {"leaseTransitions": -1}}),
            bad,
        );
        leases.update(
            &json!({"spec": {}}),
            &json!({"spec": {"holderIdentity": "me"}}),
            &[],
        );
    }

    #[test]
    fn coordinated_election_is_off() {
        let leases = kind("leases.coordination.k8s.io");
        let made = leases.created(&json!({"spec": {"strategy": "Odd", "preferredHolder": "h"}}));
        assert_eq!(made["spec"], json!({}));
    }
}
