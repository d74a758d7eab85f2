//! Secret.

mod key_pair;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use generic_server::registry::strategy::SelectableField;
use machinery::names::config_map_key;
use machinery::{FieldPath, meta};
use serde_json::{Map, Value};

use super::config_map::{MAX_BYTES, decoded_len, frozen};
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    default,
    validate,
    validate_update: |errors, object, old| {
        errors.immutable_at("type", object, old);
        frozen(errors, object, old, &["data"]);
        validate(errors, object);
    },
    prepare_update: |_, object, old| {
        // A client that leaves the type out means the same.
        object.fill_text("type", old.text("type"));
    },
    warnings: |object, _| warnings(object),
    fields: || vec![SelectableField::path("type")],
    ..Rules::PLAIN
};

fn default(object: &mut Value) {
    object.fill_text("type", "Opaque");
    if let Some(Value::Object(texts)) = object.take_key("stringData") {
        if texts.is_empty() {
            return;
        }
        let data = object.ensure("data");
        for (key, text) in texts {
            data.put(&key, STANDARD.encode(text.as_str().unwrap_or_default()));
        }
    }
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("data");
    let mut total = 0;
    for (key, value) in object.entries("data") {
        errors.text(&path.key(key), key, config_map_key(key));
        total += decoded_len(value.as_str().unwrap_or_default());
    }
    if total > MAX_BYTES {
        errors.too_long(&path, MAX_BYTES);
    }
    let none = Map::new();
    let data = object.object_at("data").unwrap_or(&none);
    let need = |errors: &mut Errors, key: &str| {
        if !data.contains_key(key) {
            errors.required(&path.key(key), "");
        }
    };
    let json = |errors: &mut Errors, key: &str| {
        let Some(value) = data.get(key) else {
            return errors.required(&path.key(key), "");
        };
        let bytes = STANDARD.decode(value.as_str().unwrap_or_default());
        let parsed: Result<Map<String, Value>, _> = serde_json::from_slice(&bytes.unwrap_or_default());
        if parsed.is_err() {
            errors.invalid(&path.key(key), "<secret contents redacted>", "invalid JSON");
        }
    };
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let name = meta::annotations(object).and_then(|notes| notes.get(NAME));
            if name.and_then(Value::as_str).unwrap_or_default().is_empty() {
                let metadata = FieldPath::new("metadata");
                errors.required(&metadata.child("annotations").key(NAME), "");
            }
        }
        "kubernetes.io/dockercfg" => json(errors, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => json(errors, ".dockerconfigjson"),
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            need(errors, "username");
            need(errors, "password");
        }
        "kubernetes.io/ssh-auth" => {
            let value = data.get("ssh-privatekey").and_then(Value::as_str);
            if value.unwrap_or_default().is_empty() {
                errors.required(&path.key("ssh-privatekey"), "");
            }
        }
        "kubernetes.io/tls" => {
            need(errors, "tls.crt");
            need(errors, "tls.key");
        }
        _ => {}
    }
}

fn warnings(object: &Value) -> Vec<String> {
    if object.text("type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let bytes = |key: &str| {
        let value = object.object_at("data").and_then(|data| data.get(key));
        let text = value.and_then(Value::as_str).unwrap_or_default();
        STANDARD.decode(text).unwrap_or_default()
    };
    key_pair::check(&bytes("tls.crt"), &bytes("tls.key"))
        .err()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(object: Value, expected: &[&str]) {
        kind("secrets").create(&object, expected);
    }

    #[test]
    fn types_have_their_keys() {
        check(json!({}), &[]);
        check(
            json!({"type": "kubernetes.io/tls"}),
            &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        );
        check(
            json!({"type": "kubernetes.io/basic-auth"}),
            &["data[username]: Required value", "data[password]: Required value"],
        );
        check(
            json!({"type": "kubernetes.io/basic-auth", "stringData": {"password": "p"}}),
            &[],
        );
        check(
            json!({"type": "kubernetes.io/ssh-auth"}),
            &["data[ssh-privatekey]: Required value"],
        );
        check(
            json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "no"}}),
            &[r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid JSON"#],
        );
        check(
            json!({"type": "kubernetes.io/service-account-token"}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
    }

    #[test]
    fn texts_become_data() {
        let secrets = kind("secrets");
        secrets.defaults(
            &json!({"stringData": {"a": "b"}}),
            &json!({"type": "Opaque", "data": {"a": "Yg=="}, "stringData": null}),
        );
        secrets.update(
            &json!({}),
            &json!({"type": "example.com/x"}),
            &[r#"type: Invalid value: "example.com/x": field is immutable"#],
        );
        secrets.update(
            &json!({"immutable": true}),
            &json!({"data": {"a": "Yg=="}}),
            &["data: Forbidden: field is immutable when `immutable` is set"],
        );
    }
}
