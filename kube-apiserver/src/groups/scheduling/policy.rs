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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn a_policy_is_one_of_two() {
        #[track_caller]
        fn check(policy: &Value, expected: &[&str]) {
            let path = FieldPath::new("p");
            check_errors(|errors| scheduling_policy(errors, &path, policy), expected);
        }
        check(&json!({"basic": {}}), &[]);
        check(&json!({"gang": {"minCount": 1}}), &[]);
        check(&json!({"gang": {}}), &["p.gang.minCount: Required value"]);
        check(
            &json!({}),
            &[r#"p: Invalid value: "": must specify one of: `basic`, `gang`"#],
        );
        check(
            &json!({"basic": {}, "gang": {"minCount": -1}}),
            &[
                r#"p: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`"#,
                "p.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
            ],
        );
    }

    #[test]
    fn fields_of_features_that_are_off_stay_where_they_were() {
        let all = || json!({"priority": 1, "priorityClassName": "p", "resourceClaims": [{}], "schedulingConstraints": {}});
        let mut group = all();
        drop_disabled(&mut group, &Value::Null);
        assert_eq!(group, json!({}));
        let mut group = all();
        drop_disabled(&mut group, &all());
        assert_eq!(group, all());
    }
}
