//! ControllerRevision: a snapshot of data that never changes.

use machinery::FieldPath;
use serde_json::Value;

use crate::faults::Faults;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    validate: |faults, object| {
        revision(faults, object);
        let path = FieldPath::new("data");
        match object.dig("data") {
            Value::Null => faults.required(&path, "data is mandatory"),
            Value::Object(_) => {}
            _ => faults.required(&path, "data must be a valid JSON object"),
        }
    },
    validate_update: |faults, object, old| {
        revision(faults, object);
        if object.dig("data") != old.dig("data") {
            faults.invalid_value(
                &FieldPath::new("data"),
                object.dig("data"),
                crate::faults::IMMUTABLE,
            );
        }
    },
    ..Rules::PLAIN
};

fn revision(faults: &mut Faults, object: &Value) {
    faults.non_negative(&FieldPath::new("revision"), object.int("revision"));
}
