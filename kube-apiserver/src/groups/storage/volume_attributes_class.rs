//! VolumeAttributesClass.

use machinery::FieldPath;
use serde_json::Value;

use super::storage_class::{parameters, provisioner};
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    validate,
    validate_update: |errors, object, old| {
        for key in ["driverName", "parameters"] {
            if !same(object.dig(key), old.dig(key)) {
                errors.forbidden(&FieldPath::new(key), format!("updates to {key} are forbidden."));
            }
        }
        validate(errors, object);
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    provisioner(errors, &FieldPath::new("driverName"), object.text("driverName"));
    let path = FieldPath::new("parameters");
    parameters(errors, &path, object);
    if object.entries("parameters").next().is_none() {
        errors.required(&path, "must contain at least one key/value pair");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("volumeattributesclasses.storage.k8s.io").create(&object, expected);
    }

    #[test]
    fn classes_have_a_driver_and_parameters() {
        check(
            json!({"driverName": "d.example.com", "parameters": {"iops": "1"}}),
            &[],
        );
        check(
            json!({"driverName": ""}),
            &[
                "driverName: Required value",
                "parameters: Required value: must contain at least one key/value pair",
            ],
        );
        check(
            json!({"driverName": "d", "parameters": {"": "x"}}),
            &["parameters: Invalid value: \"\": field can not be empty."],
        );
    }

    #[test]
    fn classes_do_not_change() {
        let object = json!({"driverName": "d", "parameters": {"iops": "1"}});
        kind("volumeattributesclasses.storage.k8s.io").update(
            &object,
            &json!({"driverName": "e", "parameters": {"iops": "2"}}),
            &[
                "driverName: Forbidden: updates to driverName are forbidden.",
                "parameters: Forbidden: updates to parameters are forbidden.",
            ],
        );
    }
}
