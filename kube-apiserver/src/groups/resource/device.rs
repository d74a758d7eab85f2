//! What claims, classes and slices of devices have in common: names, lists, configurations, tolerations and taints.

use machinery::names::object_meta::validate_label_name;
use machinery::names::{c_identifier, dns1123_label, dns1123_subdomain, label_value};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::core::pod_spec::csi_driver;
use crate::json::Json;
use crate::unique::Seen;

/// The most bytes of the parameters of a configuration, and of the data of a device's status.
pub(super) const RAW_BYTES: usize = 10 * 1024;
const POOL_NAME_BYTES: usize = 253;
const IDENTIFIER_BYTES: usize = 32;
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// Whether a list is no longer than it may be. The items of a longer one are not looked at.
pub(super) fn fits(errors: &mut Errors, path: &FieldPath<'_>, count: usize, most: usize) -> bool {
    if count > most {
        errors.push(FieldError::too_many(path, count, most));
    }
    count <= most
}

/// Repetitions in a list, by a key of its items.
pub(super) fn unique<'v>(errors: &mut Errors, path: &FieldPath<'_>, keys: impl Iterator<Item = &'v str>) {
    let mut seen = Seen::default();
    for (index, key) in keys.enumerate() {
        if seen.again(key) {
            errors.duplicate(&path.index(index), key);
        }
    }
}

/// The name of a pool: subdomains, joined by slashes.
pub(super) fn pool_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if !errors.need(path, name) {
        return;
    }
    if name.len() > POOL_NAME_BYTES {
        errors.too_long(path, POOL_NAME_BYTES);
    }
    for part in name.split('/') {
        errors.text(path, part, dns1123_subdomain(part));
    }
}

fn identifier(errors: &mut Errors, path: &FieldPath<'_>, id: &str) {
    if id.len() > IDENTIFIER_BYTES {
        errors.too_long(path, IDENTIFIER_BYTES);
    }
    errors.text(path, id, c_identifier(id));
}

/// The name of an attribute or a capacity: an identifier, which a domain may precede.
pub(super) fn attribute_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    let Some((domain, id)) = name.split_once('/') else {
        return identifier(errors, path, name);
    };
    // Upstream does not look at names of more parts.
    if id.contains('/') {
        return;
    }
    match domain.is_empty() {
        true => errors.invalid(path, "", "the domain must not be empty"),
        false => csi_driver(errors, path, domain),
    }
    match id.is_empty() {
        true => errors.invalid(path, "", "the name must not be empty"),
        false => identifier(errors, path, id),
    }
}

/// The name of an attribute with its domain.
pub(super) fn full_attribute_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    attribute_name(errors, path, name);
    if !name.contains('/') {
        let text = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(path, name, text);
    }
}

/// A unique id as it is printed.
pub(super) fn uid(errors: &mut Errors, path: &FieldPath<'_>, uid: &str) {
    match uuid::Uuid::try_parse(uid) {
        Err(why) => errors.invalid(path, uid, format!("error validating uid: {why}")),
        Ok(_) if uid.len() != 36 || uid.chars().any(|c| c.is_ascii_uppercase()) => errors.invalid(
            path,
            uid,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
        ),
        Ok(_) => {}
    }
}

/// Selectors of devices. Their expressions have been compiled before.
pub(super) fn selectors(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    if !fits(errors, path, list.len(), super::selectors::SELECTORS) {
        return;
    }
    for (index, selector) in list.iter().enumerate() {
        let at = path.index(index);
        let at = at.child("cel");
        if !selector.has("cel") {
            errors.required(&at, "");
            continue;
        }
        let at = at.child("expression");
        if selector.text("cel.expression").len() > super::selectors::EXPRESSION_BYTES {
            errors.too_long(&at, super::selectors::EXPRESSION_BYTES);
        } else {
            errors.expression(&at);
        }
    }
}

/// JSON that has to be an object. `stored`: it was there before and may be of any length.
pub(super) fn raw(errors: &mut Errors, path: &FieldPath<'_>, value: &Value, stored: bool) {
    match value {
        Value::Null => errors.required(path, ""),
        value if !stored && value.to_string().len() > RAW_BYTES => errors.too_long(path, RAW_BYTES),
        Value::Object(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// What a driver is told.
pub(super) fn configuration(errors: &mut Errors, path: &FieldPath<'_>, config: &Value, stored: bool) {
    let at = path.child("opaque");
    if !config.has("opaque") {
        return errors.required(&at, "");
    }
    csi_driver(errors, &at.child("driver"), config.text("opaque.driver"));
    raw(
        errors,
        &at.child("parameters"),
        config.dig("opaque.parameters"),
        stored,
    );
}

fn label_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    for error in validate_label_name(name, path) {
        errors.push(error);
    }
}

fn effect(errors: &mut Errors, path: &FieldPath<'_>, effect: &str) {
    errors.one_of(path, effect, EFFECTS);
}

/// A toleration of a request.
pub(super) fn toleration(errors: &mut Errors, path: &FieldPath<'_>, toleration: &Value) {
    let (key, value) = (toleration.text("key"), toleration.text("value"));
    if !key.is_empty() {
        label_name(errors, &path.child("key"), key);
    }
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(&path.child("value"), value, "must be empty for operator `Exists`")
        }
        "Exists" => {}
        "Equal" => errors.text(&path.child("value"), value, label_value(value)),
        other => {
            errors.required_one_of(&path.child("operator"), other, &["Equal", "Exists"]);
        }
    }
    let wanted = toleration.text("effect");
    if !wanted.is_empty() {
        effect(errors, &path.child("effect"), wanted);
    }
}

/// A taint of a device, and its effect where that is new.
pub(super) fn taint(errors: &mut Errors, path: &FieldPath<'_>, taint: &Value, effect_is_new: bool) {
    label_name(errors, &path.child("key"), taint.text("key"));
    let value = taint.text("value");
    errors.text(&path.child("value"), value, label_value(value));
    let at = path.child("effect");
    if effect_is_new && errors.need(&at, taint.text("effect")) {
        effect(errors, &at, taint.text("effect"));
    }
}

/// The most conditions of either list.
const BINDING_CONDITIONS: usize = 4;

/// The conditions under which a pod is bound, or not, once its devices are allocated.
pub(super) fn binding_conditions(errors: &mut Errors, path: &FieldPath<'_>, owner: &Value) {
    let keys = ["bindingConditions", "bindingFailureConditions"];
    for key in keys {
        let at = path.child(key);
        if fits(errors, &at, owner.list(key).len(), BINDING_CONDITIONS) {
            for (index, name) in owner.strings(key).enumerate() {
                label_name(errors, &at.index(index), name);
            }
        }
    }
    for key in keys {
        unique(errors, &path.child(key), owner.strings(key));
    }
    let binding: Seen<&str> = owner.strings(keys[0]).collect();
    for (index, name) in owner.strings(keys[1]).enumerate() {
        if binding.has(name) {
            let text = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(&path.child(keys[1]).index(index), name, text);
        }
    }
    for (key, other) in [(keys[0], keys[1]), (keys[1], keys[0])] {
        if owner.list(key).is_empty() && !owner.list(other).is_empty() {
            errors.invalid_value(
                &path.child(key),
                owner.dig(key),
                format!("{key} are required to use {other}"),
            );
        }
    }
}

/// The name of a request, or of an alternative of one.
pub(super) fn request_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    errors.text(path, name, dns1123_label(name));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn names_of_attributes() {
        #[track_caller]
        fn check(name: &str, expected: &[&str]) {
            check_errors(
                |errors| full_attribute_name(errors, &FieldPath::new("a"), name),
                expected,
            );
        }
        check("example.com/model", &[]);
        check("a/b/c", &[]);
        check(
            "model",
            &[
                r#"a: Invalid value: "model": a fully qualified name must be a domain and a name separated by a slash"#,
            ],
        );
        check(
            "/",
            &[
                r#"a: Invalid value: "": the domain must not be empty"#,
                r#"a: Invalid value: "": the name must not be empty"#,
            ],
        );
        let long = format!("e.com/{}", "a".repeat(33));
        check(&long, &["a: Too long: may not be more than 32 bytes"]);
        check(&long[..long.len() - 1], &[]);
    }

    #[test]
    fn tolerations_and_taints() {
        #[track_caller]
        fn check(value: Value, expected: &[&str]) {
            check_errors(
                |errors| toleration(errors, &FieldPath::new("t"), &value),
                expected,
            );
        }
        check(json!({"operator": "Exists"}), &[]);
        check(
            json!({"operator": "Exists", "value": "v", "effect": "Odd"}),
            &[
                r#"t.value: Invalid value: "v": must be empty for operator `Exists`"#,
                r#"t.effect: Unsupported value: "Odd": supported values: "NoExecute", "NoSchedule", "None""#,
            ],
        );
        check(json!({"key": "k"}), &["t.operator: Required value"]);
        check_errors(
            |errors| taint(errors, &FieldPath::new("t"), &json!({"key": "k"}), true),
            &["t.effect: Required value"],
        );
    }

    #[test]
    fn conditions_come_in_pairs() {
        #[track_caller]
        fn check(value: Value, expected: &[&str]) {
            check_errors(
                |errors| binding_conditions(errors, &FieldPath::new("d"), &value),
                expected,
            );
        }
        check(json!({}), &[]);
        check(
            json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]}),
            &[],
        );
        check(
            json!({"bindingConditions": ["a"]}),
            &[
                "d.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions",
            ],
        );
        check(
            json!({"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]}),
            &[
                r#"d.bindingConditions[1]: Duplicate value: "a""#,
                r#"d.bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions"#,
            ],
        );
    }
}
