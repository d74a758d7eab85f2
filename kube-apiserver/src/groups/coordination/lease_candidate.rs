//! LeaseCandidate: a component that may become the holder of a lease, and the versions by which it is chosen.

use generic_server::registry::strategy::MetadataRules;
use std::cmp::Ordering;

use generic_server::registry::strategy::SelectableField;
use kube_cel::Semver;
use machinery::FieldPath;
use machinery::names::config_map_key;
use serde_json::Value;

use super::lease::coordination_strategy;
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    metadata: MetadataRules {
        on_update: false,
        ..MetadataRules::ANY_FINALIZER
    },
    name: |name, _| config_map_key(name),
    create_on_update: true,
    unconditional_update: false,
    default: |object| {
        object.ensure("spec");
    },
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        let path = FieldPath::new("spec");
        errors.immutable(&path, "leaseName", object.dig("spec"), old.dig("spec"));
    },
    fields: || vec![SelectableField::path("spec.leaseName")],
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
    let binary_path = path.child("binaryVersion");
    let emulation_path = path.child("emulationVersion");
    let (binary, emulation) = (spec.text("binaryVersion"), spec.text("emulationVersion"));
    errors.need(&path.child("leaseName"), spec.text("leaseName"));
    let emulated = match emulation {
        "" => Semver::default(),
        text => version(errors, &emulation_path, text),
    };
    let built = match errors.need(&binary_path, binary) {
        true => version(errors, &binary_path, binary),
        false => Semver::default(),
    };
    if !binary.is_empty() && !emulation.is_empty() && built.order(&emulated) == Ordering::Less {
        let text = "must be greater than or equal to `emulationVersion`";
        errors.invalid(&binary_path, binary, text);
    }
    let strategy = spec.text("strategy");
    if !errors.need(&path.child("strategy"), strategy) {
        return;
    }
    if strategy == "OldestEmulationVersion" && emulated == Semver::default() {
        let text = "must be specified when `strategy` is 'OldestEmulationVersion'";
        errors.required(&emulation_path, text);
    }
    coordination_strategy(errors, &path.child("strategy"), strategy);
}

/// The version; 0.0.0 beside an error, as upstream goes on with.
fn version(errors: &mut Errors, path: &FieldPath<'_>, text: &str) -> Semver {
    Semver::parse(text).unwrap_or_else(|_| {
        errors.invalid(path, text, "must be a valid semantic version");
        Semver::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn candidate(over: Value) -> Value {
        let spec = json!({"leaseName": "scheduler", "binaryVersion": "1.36.0", "emulationVersion": "1.35.0",
            "strategy": "OldestEmulationVersion"});
        with_spec(json!({"spec": spec}), &over)
    }

    #[track_caller]
    fn check(over: Value, expected: &[&str]) {
        kind("leasecandidates.coordination.k8s.io").create(&candidate(over), expected);
    }

    #[test]
    fn candidates_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"strategy": "example.com/mine", "emulationVersion": ""}),
            &[],
        );
        check(json!({"leaseName": ""}), &["spec.leaseName: Required value"]);
        check(
            json!({"binaryVersion": "", "strategy": ""}),
            &[
                "spec.binaryVersion: Required value",
                "spec.strategy: Required value",
            ],
        );
        check(
            json!({"strategy": "Youngest"}),
            &[
                r#"spec.strategy.strategy: Unsupported value: "Youngest": supported values: "OldestEmulationVersion""#,
            ],
        );
    }

    #[test]
    fn versions_are_semantic_and_in_order() {
        check(json!({"binaryVersion": "1.35.0"}), &[]);
        check(
            json!({"binaryVersion": "1.35.0-alpha.1", "emulationVersion": "1.34.9"}),
            &[],
        );
        check(
            json!({"binaryVersion": "1.34.9"}),
            &[
                r#"spec.binaryVersion: Invalid value: "1.34.9": must be greater than or equal to `emulationVersion`"#,
            ],
        );
        check(
            json!({"binaryVersion": "1.36"}),
            &[
                r#"spec.binaryVersion: Invalid value: "1.36": must be a valid semantic version"#,
                r#"spec.binaryVersion: Invalid value: "1.36": must be greater than or equal to `emulationVersion`"#,
            ],
        );
        check(
            json!({"emulationVersion": "v1.35.0"}),
            &[
                r#"spec.emulationVersion: Invalid value: "v1.35.0": must be a valid semantic version"#,
                "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
            ],
        );
        check(
            json!({"emulationVersion": ""}),
            &[
                "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
            ],
        );
    }

    #[test]
    fn a_candidate_stays_with_its_lease() {
        let candidates = kind("leasecandidates.coordination.k8s.io");
        let object = candidate(json!({}));
        candidates.update(&object, &json!({"spec": {"binaryVersion": "1.37.0"}}), &[]);
        candidates.update(
            &object,
            &json!({"spec": {"leaseName": "other"}}),
            &[r#"spec.leaseName: Invalid value: "other": field is immutable"#],
        );
    }
}
