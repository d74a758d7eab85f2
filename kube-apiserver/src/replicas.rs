//! Counts of replicas: numbers and percentages of pods, and the counts in the status of a workload.

use machinery::FieldPath;
use machinery::names::percent;
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;

/// A number of pods, or a percentage of them.
pub(crate) fn int_or_percent(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    match value {
        Value::String(text) => errors.text(path, text, percent(text)),
        other => errors.non_negative(path, other.as_i64()),
    }
}

/// The amount of [`int_or_percent`], without its sign; zero for other values.
pub(crate) fn size(value: &Value) -> i64 {
    match value {
        Value::String(text) if percent(text).is_empty() => {
            text.trim_end_matches('%').parse().unwrap_or_default()
        }
        Value::String(text) => text.parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

/// A percentage of at most a hundred.
pub(crate) fn not_above_hundred(errors: &mut Errors, path: &FieldPath<'_>, value: &Value) {
    if value.as_str().is_some_and(|text| text.ends_with('%')) && size(value) > 100 {
        errors.invalid_value(path, value, "must not be greater than 100%");
    }
}

/// The counts in the status of a replica set or a replication controller.
pub(crate) fn replica_counts(errors: &mut Errors, object: &Value) {
    counts(
        errors,
        object,
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    );
}

/// The counts in the status of a workload: none negative, none above the number of replicas.
pub(crate) fn counts(errors: &mut Errors, object: &Value, keys: &[&str]) {
    let path = FieldPath::new("status");
    let status = object.dig("status");
    let count = |key: &str| status.int(key).unwrap_or_default();
    errors.non_negative(
        &path.child("observedGeneration"),
        status.int("observedGeneration"),
    );
    errors.non_negative(&path.child("replicas"), status.int("replicas"));
    for key in keys {
        errors.non_negative(&path.child(key), status.int(key));
    }
    for key in ["terminatingReplicas", "collisionCount"] {
        errors.non_negative(&path.child(key), status.int(key));
    }
    for key in keys.iter().filter(|key| **key != "unavailableReplicas") {
        if count(key) > count("replicas") {
            errors.invalid(
                &path.child(key),
                count(key),
                "cannot be greater than status.replicas",
            );
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let text = match keys.contains(&"currentReplicas") {
            true => "cannot be greater than status.readyReplicas",
            false => "cannot be greater than readyReplicas",
        };
        errors.invalid(&path.child("availableReplicas"), count("availableReplicas"), text);
    }
}

/// `status.collisionCount` only rises.
pub(crate) fn not_decremented(errors: &mut Errors, object: &Value, old: &Value) {
    let (new, before) = (
        object.int("status.collisionCount"),
        old.int("status.collisionCount"),
    );
    if before.is_some_and(|before| new.unwrap_or_default() < before) {
        let path = FieldPath::new("status");
        errors.invalid(
            &path.child("collisionCount"),
            new.unwrap_or_default(),
            "cannot be decremented",
        );
    }
}
