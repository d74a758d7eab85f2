//! ControllerRevision: a snapshot of data that never changes.

use machinery::FieldPath;
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    validate: |errors, object| {
        revision(errors, object);
        let path = FieldPath::new("data");
        match object.dig("data") {
            Value::Null => errors.required(&path, "data is mandatory"),
            Value::Object(_) => {}
            _ => errors.required(&path, "data must be a valid JSON object"),
        }
    },
    validate_update: |errors, object, old| {
        revision(errors, object);
        if object.dig("data") != old.dig("data") {
            errors.invalid_value(
                &FieldPath::new("data"),
                object.dig("data"),
                crate::errors::IMMUTABLE,
            );
        }
    },
    ..Rules::PLAIN
};

fn revision(errors: &mut Errors, object: &Value) {
    errors.non_negative(&FieldPath::new("revision"), object.int("revision"));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("controllerrevisions.apps").create(&object, expected);
    }

    #[test]
    fn revisions_have_data() {
        check(json!({"revision": 1, "data": {"a": 1}}), &[]);
        check(
            json!({"revision": -1}),
            &[
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data is mandatory",
            ],
        );
        kind("controllerrevisions.apps").update(
            &json!({"revision": 1, "data": {"a": 1}}),
            &json!({"revision": 2, "data": {"a": 2}}),
            &[r#"data: Invalid value: {"a":2}: field is immutable"#],
        );
    }
}
