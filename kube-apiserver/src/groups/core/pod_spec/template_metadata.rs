//! The metadata of a template of a claim, which may say no more than labels and annotations.

use machinery::FieldPath;
use machinery::names::object_meta::{validate_annotations, validate_labels};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;

/// What only the object that is made of the template may have.
const OTHERS: [&str; 13] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Checks the `metadata` of a template.
pub(crate) fn template_metadata(errors: &mut Errors, path: &FieldPath<'_>, metadata: &Value) {
    let Some(members) = metadata.as_object() else {
        return;
    };
    if let Some(annotations) = metadata.object_at("annotations") {
        for error in validate_annotations(annotations, &path.child("annotations")) {
            errors.push(error);
        }
    }
    if let Some(labels) = metadata.object_at("labels") {
        for error in validate_labels(labels, &path.child("labels")) {
            errors.push(error);
        }
    }
    for key in OTHERS {
        let set = match members.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(_)) => true,
            Some(value) => value.as_i64() != Some(0) || key == "deletionGracePeriodSeconds",
        };
        if set {
            // Upstream makes the name of its field.
            let shown = if key == "uid" { "uID" } else { key };
            errors.forbidden(&path.child(shown), "cannot be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn templates_have_labels_and_annotations_alone() {
        #[track_caller]
        fn check(metadata: Value, expected: &[&str]) {
            let path = FieldPath::new("m");
            check_errors(|errors| template_metadata(errors, &path, &metadata), expected);
        }
        check(Value::Null, &[]);
        check(json!({"labels": {"a": "b"}, "creationTimestamp": null}), &[]);
        check(
            json!({"name": "n", "uid": "", "generation": 0, "finalizers": ["f"]}),
            &[
                "m.name: Forbidden: cannot be set",
                "m.finalizers: Forbidden: cannot be set",
            ],
        );
    }
}
