//! ConfigMap.

use machinery::names::config_map_key;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    validate,
    validate_update: |errors, object, old| {
        frozen(errors, object, old, &["data", "binaryData"]);
        validate(errors, object);
    },
    ..Rules::PLAIN
};

/// The most that a config map or secret may hold.
pub(super) const MAX_BYTES: usize = 1024 * 1024;

/// Updates of immutable objects.
pub(super) fn frozen(errors: &mut Errors, object: &Value, old: &Value, keys: &[&'static str]) {
    if !old.flag("immutable") {
        return;
    }
    const WHY: &str = "field is immutable when `immutable` is set";
    if !object.flag("immutable") {
        errors.forbidden(&FieldPath::new("immutable"), WHY);
    }
    for key in keys {
        if !same(object.dig(key), old.dig(key)) {
            errors.forbidden(&FieldPath::new(key), WHY);
        }
    }
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

fn validate(errors: &mut Errors, object: &Value) {
    let mut total = 0;
    let path = FieldPath::new("data");
    for (key, value) in object.entries("data") {
        errors.text(&path.key(key), key, config_map_key(key));
        if object
            .object_at("binaryData")
            .is_some_and(|binary| binary.contains_key(key))
        {
            errors.invalid(&path.key(key), key, "duplicate of key present in binaryData");
        }
        total += value.as_str().unwrap_or_default().len();
    }
    let path = FieldPath::new("binaryData");
    for (key, value) in object.entries("binaryData") {
        errors.text(&path.key(key), key, config_map_key(key));
        total += decoded_len(value.as_str().unwrap_or_default());
    }
    if total > MAX_BYTES {
        let mut error = FieldError::too_long(&FieldPath::new(""), MAX_BYTES);
        // Upstream has no path here.
        error.field = "[]".into();
        errors.push(error);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("configmaps").create(&object, expected);
    }

    #[test]
    fn keys_are_of_one_kind() {
        check(json!({"data": {"a": "b"}}), &[]);
        check(
            json!({"data": {"a": "b"}, "binaryData": {"a": "AA=="}}),
            &[r#"data[a]: Invalid value: "a": duplicate of key present in binaryData"#],
        );
        check(
            json!({"data": {"..": "x"}}),
            &[r#"data[..]: Invalid value: "..": must not be '..'"#],
        );
    }

    #[test]
    fn a_map_holds_a_mebibyte() {
        check(json!({"data": {"a": "x".repeat(1024 * 1024)}}), &[]);
        check(
            json!({"data": {"a": "x".repeat(1024 * 1024 + 1)}}),
            &["[]: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn an_immutable_map_stays() {
        let maps = kind("configmaps");
        let old = json!({"data": {"a": "b"}, "immutable": true});
        let why = "Forbidden: field is immutable when `immutable` is set";
        maps.update(&old, &json!({"data": {"a": "c"}}), &[&format!("data: {why}")]);
        maps.update(
            &old,
            &json!({"immutable": false}),
            &[&format!("immutable: {why}")],
        );
        maps.update(&old, &json!({"metadata": {"labels": {"x": "y"}}}), &[]);
    }
}
