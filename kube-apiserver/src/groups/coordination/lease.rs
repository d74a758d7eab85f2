//! Lease.

use machinery::FieldPath;
use serde_json::Value;

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    create_on_update: true,
    unconditional_update: false,
    default: |object| {
        object.ensure("spec");
    },
    validate,
    validate_update: |faults, object, _| validate(faults, object),
    ..Rules::PLAIN
};

fn validate(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("spec");
    if let Some(seconds) = object
        .int("spec.leaseDurationSeconds")
        .filter(|seconds| *seconds <= 0)
    {
        faults.invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        );
    }
    faults.non_negative(
        &path.child("leaseTransitions"),
        object.int("spec.leaseTransitions"),
    );
    let strategy = object.dig("spec.strategy");
    if object.has("spec.preferredHolder") && strategy.as_str().unwrap_or_default().is_empty() {
        faults.forbidden(
            &path.child("preferredHolder"),
            "may only be specified when `strategy` is defined",
        );
    }
}
