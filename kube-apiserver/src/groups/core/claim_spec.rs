//! The specification of a claim to storage, as PersistentVolumeClaims, their templates and ephemeral volumes have it, and what it
//! shares with that of a PersistentVolume.

use machinery::FieldPath;
use machinery::names::{dns1123_subdomain, name_is_dns_label, name_is_dns_subdomain};
use serde_json::Value;

use super::resource_names::quantity_value;
use crate::errors::{Errors, Ratchet};
use crate::json::Json;
use crate::quantity::amount;

/// How volumes may be mounted.
const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// Checks the specification of a claim or of a template of one.
pub(crate) fn validate(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    validate_beside(errors, path, spec, &Value::Null);
}

/// The same for an update: `before` is the specification that there is. Where it names a group, any group may be named.
pub(super) fn validate_beside(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, before: &Value) {
    if spec.list("accessModes").is_empty() {
        let text = "at least 1 access mode is required";
        errors.required(&path.child("accessModes"), text);
    }
    if spec.has("selector") {
        let at = path.child("selector");
        errors.selector(&at, spec.dig("selector"), Some(Ratchet::SelectorValues));
    }
    access_modes(errors, path, spec);
    let resources = path.child("resources");
    let at = resources.key("storage");
    match spec.dig("resources.requests.storage") {
        Value::Null => errors.required(&at, ""),
        raw => {
            if positive(errors, &at, raw) {
                quantity_value(errors, &at, "storage", raw);
            }
        }
    }
    class(errors, path, spec, "storageClassName");
    volume_mode(errors, path, spec);
    let sources = ["dataSource", "dataSourceRef"];
    let any_group = sources.iter().any(|key| before.dig(key).has("apiGroup"));
    for key in sources {
        if spec.has(key) {
            data_source(errors, &path.child(key), spec.dig(key), any_group);
        }
    }
    sources_agree(errors, path, spec);
    class(errors, path, spec, "volumeAttributesClassName");
}

fn data_source(errors: &mut Errors, path: &FieldPath<'_>, source: &Value, any_group: bool) {
    for key in ["name", "kind"] {
        errors.need(&path.child(key), source.text(key));
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() {
        if kind != "PersistentVolumeClaim" {
            let text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(path, kind, text);
        }
    } else if !any_group {
        errors.text(&path.child("apiGroup"), group, dns1123_subdomain(group));
    }
    let namespace = source.text("namespace");
    if !namespace.is_empty() {
        let texts = name_is_dns_label(namespace, false);
        errors.text(&path.child("namespace"), namespace, texts);
    }
}

fn sources_agree(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let (old_way, new_way) = (spec.dig("dataSource"), spec.dig("dataSourceRef"));
    if old_way.is_null() || new_way.is_null() {
        return;
    }
    let shown = path.child("dataSource").to_string();
    if !new_way.text("namespace").is_empty() {
        errors.invalid(
            path,
            shown,
            "may not be specified when dataSourceRef.namespace is specified",
        );
    } else if ["apiGroup", "kind", "name"]
        .iter()
        .any(|key| old_way.dig(key) != new_way.dig(key))
    {
        errors.invalid(path, shown, "must match dataSourceRef");
    }
}

/// Checks the access modes of a volume or claim.
pub(super) fn access_modes(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let path = path.child("accessModes");
    let (mut alone, mut others) = (false, false);
    for mode in spec.strings("accessModes") {
        let known = errors.one_of(&path, mode, &ACCESS_MODES);
        match mode {
            "ReadWriteOncePod" => alone = true,
            _ => others |= known,
        }
    }
    if alone && others {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Checks `volumeMode`, when it is there.
pub(super) fn volume_mode(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    if spec.has("volumeMode") {
        let modes = ["Block", "Filesystem"];
        errors.one_of(&path.child("volumeMode"), spec.text("volumeMode"), &modes);
    }
}

/// Checks the name of a class, when it is there.
pub(super) fn class(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value, key: &str) {
    let name = spec.text(key);
    if !name.is_empty() {
        let texts = name_is_dns_subdomain(name, false);
        errors.text(&path.child(key), name, texts);
    }
}

/// An amount above zero.
pub(super) fn positive(errors: &mut Errors, path: &FieldPath<'_>, raw: &Value) -> bool {
    let Some(quantity) = amount(raw) else { return true };
    if quantity.signum() <= 0 {
        errors.invalid(path, quantity.to_string(), "must be greater than zero");
    }
    quantity.signum() > 0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let base = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        with_spec(base, &spec)
    }

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("persistentvolumeclaims").create(&with(spec), expected);
    }

    #[test]
    fn claims_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"accessModes": []}),
            &["spec.accessModes: Required value: at least 1 access mode is required"],
        );
        check(
            json!({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}),
            &["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
        );
        check(
            json!({"resources": {}}),
            &["spec.resources[storage]: Required value"],
        );
        check(
            json!({"resources": {"requests": {"storage": "0"}}}),
            &[r#"spec.resources[storage]: Invalid value: "0": must be greater than zero"#],
        );
        check(
            json!({"volumeMode": "Tape"}),
            &[r#"spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem""#],
        );
        check(
            json!({"dataSourceRef": {"kind": "Pod", "name": "p"}}),
            &[
                r#"spec.dataSource: Invalid value: "Pod": must be 'PersistentVolumeClaim' when referencing the default apiGroup"#,
                r#"spec.dataSourceRef: Invalid value: "Pod": must be 'PersistentVolumeClaim' when referencing the default apiGroup"#,
            ],
        );
    }

    #[test]
    fn groups_of_sources_are_names_where_there_was_none() {
        let spec = |group: Value| {
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"apiGroup": group, "kind": "K", "name": "n"}})
        };
        let path = FieldPath::new("spec");
        let found = |before: Value| {
            let odd = spec(json!("A"));
            Errors::collect(|errors| validate_beside(errors, &path, &odd, &before)).len()
        };
        assert_eq!(found(json!({})), 1);
        assert_eq!(found(spec(json!("a.b"))), 0);
    }
}
