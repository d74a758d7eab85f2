//! StorageClass.

use machinery::FieldPath;
use machinery::names::qualified_name;
use serde_json::Value;

use crate::faults::Faults;
use crate::json::{Json, same};
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    returns_deleted: true,
    default: |object| {
        object.fill_text("reclaimPolicy", "Delete");
        object.fill_text("volumeBindingMode", "Immediate");
    },
    validate,
    validate_update: |faults, object, old| {
        for key in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            // An absent map of parameters and an empty one are the same.
            if !same(object.dig(key), old.dig(key)) {
                faults.immutable_at(key, object, old);
            }
        }
        topologies(faults, object);
    },
    ..Rules::PLAIN
};

fn validate(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("provisioner");
    let provisioner = object.text("provisioner");
    if faults.need(&path, provisioner) {
        let lower = provisioner.to_lowercase();
        faults.text(&path, provisioner, qualified_name(&lower));
    }
    let path = FieldPath::new("parameters");
    let mut size = 0;
    for (key, value) in object.entries("parameters") {
        if key.is_empty() {
            faults.invalid(&path, key, "field can not be empty.");
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if object.entries("parameters").count() > 512 {
        faults.push(machinery::FieldError::too_long(
            &FieldPath::new("Provisioner Parameters"),
            512,
        ));
    }
    if size > 256 * 1024 {
        faults.too_long(&path, 256 * 1024);
    }
    faults.required_one_of(
        &FieldPath::new("reclaimPolicy"),
        object.text("reclaimPolicy"),
        &["Delete", "Retain"],
    );
    faults.required_one_of(
        &FieldPath::new("volumeBindingMode"),
        object.text("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
    topologies(faults, object);
}

fn topologies(faults: &mut Faults, object: &Value) {
    let path = FieldPath::new("allowedTopologies");
    for (index, term) in object.list("allowedTopologies").iter().enumerate() {
        let path = path.index(index);
        let path = path.child("matchLabelExpressions");
        for (index, expression) in term.list("matchLabelExpressions").iter().enumerate() {
            let path = path.index(index);
            if expression.list("values").is_empty() {
                faults.required(&path.child("values"), "");
            }
            let mut seen = Seen::default();
            for (index, value) in expression.strings("values").enumerate() {
                if seen.again(value) {
                    faults.duplicate(&path.child("values").index(index), value);
                }
            }
            let key = expression.text("key");
            faults.text(&path.child("key"), key, machinery::names::label_key(key));
        }
    }
}
