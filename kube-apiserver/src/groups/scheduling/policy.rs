//! What Workloads and PodGroups have in common: the policy by which the pods of a group are scheduled, and fields of features that are off here
//! (`TopologyAwareWorkloadScheduling`, `DRAWorkloadResourceClaims`, `WorkloadAwarePreemption`).

use machinery::FieldPath;
use serde_json::Value;

use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};

/// The fields of features that are off which a group and a template of groups have.
const DISABLED: [&str; 4] = [
    "schedulingConstraints",
    "resourceClaims",
    "priorityClassName",
    "priority",
];

/// Drops the fields of features that are off, unless the old value has them.
pub(super) fn drop_disabled(group: &mut Value, old: &Value) {
    for key in DISABLED {
        if !is_set(old.dig(key)) {
            group.take_key(key);
        }
    }
}

/// Whether a field has a value: an empty text or list is none.
pub(super) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// Checks a `schedulingPolicy`: one of its two kinds.
pub(super) fn scheduling_policy(errors: &mut Errors, path: &FieldPath<'_>, policy: &Value) {
    match (policy.has("basic"), policy.has("gang")) {
        (true, true) => errors.invalid(
            path,
            "{basic, gang}",
            "must specify exactly one of: `basic`, `gang`",
        ),
        (false, false) => errors.invalid(path, "", "must specify one of: `basic`, `gang`"),
        _ => {}
    }
    if policy.has("gang") {
        let (gang, key) = (path.child("gang"), "minCount");
        match policy.int("gang.minCount").unwrap_or_default() {
            0 => errors.required(&gang.child(key), ""),
            count if count < 0 => {
                errors.invalid(&gang.child(key), count, "must be greater than or equal to 1");
            }
            _ => {}
        }
    }
}

/// A field that has changed and may not; upstream shows no value. `true` when it is so.
pub(super) fn is_changed(errors: &mut Errors, path: &FieldPath<'_>, new: &Value, old: &Value) -> bool {
    let changed = !same(new, old);
    if changed {
        errors.invalid(path, Value::Null, IMMUTABLE);
    }
    changed
}
