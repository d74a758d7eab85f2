//! Validation of `metadata`, on create and on update. Mirrors upstream's `apimachinery/pkg/api/validation/objectmeta.go`.
//!
//! Objects have passed strict decoding by then: members have their types, and a missing member is its zero value.
//!
//! Lists that any client may write have a bound, and each check stops looking once it has more errors than are shown.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Map, Value};

use super::{NameFn, domain_prefixed_key, label_value, name_is_dns_label, qualified_name};
use crate::field::{are_enough, clip};
use crate::go;
use crate::{FieldError, FieldPath, limits, steps};

/// The most that keys and values of all annotations may weigh, in bytes.
pub const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

const FIELD_MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;

fn text<'a>(meta: &'a Map<String, Value>, key: &str) -> &'a str {
    meta.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn strings<'a>(meta: &'a Map<String, Value>, key: &str) -> Vec<&'a str> {
    let list = meta.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn generation(meta: &Map<String, Value>) -> i64 {
    meta.get("generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Checks `metadata` on create, after a name has been generated. `path` is usually `metadata`.
pub fn validate_object_meta(
    meta: &Map<String, Value>,
    namespaced: bool,
    name_fn: NameFn,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        for message in name_fn(generate_name, true) {
            errors.push(FieldError::invalid_str(
                &path.child("generateName"),
                generate_name,
                message,
            ));
        }
    }
    let name = text(meta, "name");
    if name.is_empty() {
        errors.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        ));
    } else {
        for message in name_fn(name, false) {
            errors.push(FieldError::invalid_str(&path.child("name"), name, message));
        }
    }
    let namespace = text(meta, "namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(&path.child("namespace"), "")),
        (true, false) => {
            for message in name_is_dns_label(namespace, false) {
                errors.push(FieldError::invalid_str(
                    &path.child("namespace"),
                    namespace,
                    message,
                ));
            }
        }
        (false, false) => errors.push(FieldError::forbidden(
            &path.child("namespace"),
            "not allowed on this type",
        )),
        (false, true) => {}
    }
    if generation(meta) < 0 {
        errors.push(FieldError::invalid(
            &path.child("generation"),
            &generation(meta).into(),
            "must be greater than or equal to 0",
        ));
    }
    validate_lists(meta, path, true, &mut errors);
    errors
}

/// Checks `metadata` on update against what it was.
pub fn validate_object_meta_update(
    new: &Map<String, Value>,
    old: &Map<String, Value>,
    path: &FieldPath<'_>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old.get("deletionTimestamp").is_some_and(|t| !t.is_null()) {
        errors.extend(no_new_finalizers(
            &strings(new, "finalizers"),
            &strings(old, "finalizers"),
            &path.child("finalizers"),
        ));
    }
    if text(new, "resourceVersion").is_empty() {
        errors.push(FieldError::invalid_str(
            &path.child("resourceVersion"),
            "",
            "must be specified for an update",
        ));
    }
    if generation(new) < generation(old) {
        errors.push(FieldError::invalid(
            &path.child("generation"),
            &generation(new).into(),
            "must not be decremented",
        ));
    }
    for (key, is_text) in [
        ("name", true),
        ("namespace", true),
        ("uid", true),
        ("creationTimestamp", false),
        ("deletionTimestamp", false),
        ("deletionGracePeriodSeconds", false),
    ] {
        let absent = if is_text {
            Value::String(String::new())
        } else {
            Value::Null
        };
        let value = |meta: &Map<String, Value>| {
            meta.get(key)
                .filter(|v| !v.is_null())
                .cloned()
                .unwrap_or_else(|| absent.clone())
        };
        errors.extend(validate_immutable_field(
            &value(new),
            &value(old),
            &path.child(key),
        ));
    }
    validate_lists(new, path, false, &mut errors);
    errors
}

fn validate_lists(
    meta: &Map<String, Value>,
    path: &FieldPath<'_>,
    with_finalizers: bool,
    errors: &mut Vec<FieldError>,
) {
    if let Some(labels) = meta.get("labels").and_then(Value::as_object) {
        validate_labels_into(labels, &path.child("labels"), errors);
    }
    if let Some(annotations) = meta.get("annotations").and_then(Value::as_object) {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    if let Some(owners) = meta.get("ownerReferences").and_then(Value::as_array) {
        validate_owner_references(owners, &path.child("ownerReferences"), errors);
    }
    if with_finalizers {
        errors.extend(validate_finalizers(
            &strings(meta, "finalizers"),
            &path.child("finalizers"),
        ));
    }
    if let Some(entries) = meta.get("managedFields").and_then(Value::as_array) {
        validate_managed_fields(entries, &path.child("managedFields"), errors);
    }
}

/// `field is immutable`, when the values differ.
pub fn validate_immutable_field(new: &Value, old: &Value, path: &FieldPath<'_>) -> Option<FieldError> {
    (new != old).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// Checks a label key.
pub fn validate_label_name(name: &str, path: &FieldPath<'_>) -> Vec<FieldError> {
    qualified_name(name)
        .into_iter()
        .map(|text| FieldError::invalid_str(path, name, text))
        .collect()
}

/// Checks the keys and values of labels.
pub fn validate_labels(labels: &Map<String, Value>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_labels_into(labels, path, &mut errors);
    errors
}

fn validate_labels_into(labels: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        if are_enough(errors) {
            return;
        }
        errors.extend(validate_label_name(key, path));
        let value = value.as_str().unwrap_or_default();
        for message in label_value(value) {
            errors.push(FieldError::invalid_str(path, value, message));
        }
    }
}

/// Checks the keys of annotations (in any case) and their total size.
pub fn validate_annotations(annotations: &Map<String, Value>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        if are_enough(&errors) {
            continue;
        }
        let messages = if key.bytes().any(|b| b.is_ascii_uppercase()) || !key.is_ascii() {
            qualified_name(&key.to_lowercase())
        } else {
            qualified_name(key)
        };
        for message in messages {
            errors.push(FieldError::invalid_str(path, key, message));
        }
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
    errors
}

/// Checks annotations that users give to others: each key (in any case) is below a domain, and their total size.
pub fn validate_user_annotations(annotations: &Map<String, Value>, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations {
        size += key.len() + value.as_str().map_or(0, str::len);
        if !are_enough(&errors) {
            errors.extend(domain_prefixed_key(path, &key.to_lowercase()));
        }
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.push(FieldError::too_long(path, ANNOTATIONS_MAX_BYTES));
    }
    errors
}

/// Owner references as upstream prints them: JSON in the order of the struct's fields.
struct ShownOwners<'a>(&'a [Value]);

impl fmt::Display for ShownOwners<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, owner) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            ShownOwner(owner).fmt(f)?;
        }
        f.write_str("]")
    }
}

struct ShownOwner<'a>(&'a Value);

impl fmt::Display for ShownOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        steps::count(1);
        let mut before = "{";
        for (key, always) in [
            ("apiVersion", true),
            ("kind", true),
            ("name", true),
            ("uid", true),
            ("controller", false),
            ("blockOwnerDeletion", false),
        ] {
            match self.0.get(key) {
                Some(value) if !value.is_null() => write!(f, "{before}\"{key}\":{value}")?,
                _ if always => write!(f, "{before}\"{key}\":\"\"")?,
                _ => continue,
            }
            before = ",";
        }
        f.write_str("}")
    }
}

fn shown(path: &FieldPath<'_>, shown: String, detail: String) -> FieldError {
    let mut error = FieldError::invalid(path, &Value::Null, detail);
    error.value = Some(shown);
    error
}

fn validate_owner_references(owners: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if owners.len() > limits::OWNER_REFERENCES {
        errors.push(FieldError::too_many(path, owners.len(), limits::OWNER_REFERENCES));
        return;
    }
    let mut first_controller: Option<String> = None;
    // Every further controller is an error that shows all references: they are rendered once.
    let mut all: Option<String> = None;
    for owner in owners {
        if are_enough(errors) {
            return;
        }
        let field = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (field("apiVersion"), field("kind"));
        let version_missing = match api_version.split_once('/') {
            None => api_version.is_empty(),
            Some((_, version)) => version.is_empty() || version.contains('/'),
        };
        if version_missing {
            errors.push(FieldError::invalid_str(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if field(key).is_empty() {
                errors.push(FieldError::invalid_str(&path.child(key), "", "must not be empty"));
            }
        }
        if api_version == "v1" && kind == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner".into();
            let value = clip(limits::SHOWN_VALUE_BYTES, &ShownOwner(owner));
            errors.push(shown(path, value, detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let current = format!("{kind}/{}", field("name"));
            match &first_controller {
                Some(first) => {
                    let all =
                        all.get_or_insert_with(|| clip(limits::SHOWN_VALUE_BYTES, &ShownOwners(owners)));
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                    );
                    errors.push(shown(path, all.clone(), detail));
                }
                None => first_controller = Some(current),
            }
        }
    }
}

/// Checks the names of finalizers, and that the two of the garbage collector exclude each other.
pub fn validate_finalizers(finalizers: &[&str], path: &FieldPath<'_>) -> Vec<FieldError> {
    if finalizers.len() > limits::FINALIZERS {
        return vec![FieldError::too_many(path, finalizers.len(), limits::FINALIZERS)];
    }
    let mut errors = Vec::new();
    for finalizer in finalizers {
        if are_enough(&errors) {
            break;
        }
        for message in qualified_name(finalizer) {
            errors.push(FieldError::invalid_str(path, finalizer, message));
        }
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        errors.push(FieldError::invalid(
            path,
            &finalizers.to_vec().into(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    errors
}

/// Refuses finalizers that were not there before; for objects being deleted.
pub fn no_new_finalizers(new: &[&str], old: &[&str], path: &FieldPath<'_>) -> Option<FieldError> {
    let old: HashSet<&str> = old.iter().copied().collect();
    let mut added: Vec<&str> = new.iter().copied().filter(|f| !old.contains(f)).collect();
    if added.is_empty() {
        return None;
    }
    added.sort_unstable();
    added.dedup();
    let list: Vec<String> = added.iter().map(|f| go::quote(f)).collect();
    Some(FieldError::forbidden(
        path,
        format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        ),
    ))
}

/// Checks a field manager's name: its length, and that all of it is printable.
pub fn validate_field_manager(manager: &str, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > FIELD_MANAGER_MAX {
        errors.push(FieldError::too_long(path, FIELD_MANAGER_MAX));
    }
    for (position, c) in manager.char_indices() {
        if are_enough(&errors) {
            break;
        }
        if !go::printable(c) {
            let code = u32::from(c);
            errors.push(FieldError::invalid_str(
                path,
                manager,
                format!("invalid character U+{code:04X} (at position {position})"),
            ));
        }
    }
    errors
}

fn validate_managed_fields(entries: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if entries.len() > limits::MANAGED_FIELDS {
        errors.push(FieldError::too_many(path, entries.len(), limits::MANAGED_FIELDS));
        return;
    }
    for (index, entry) in entries.iter().enumerate() {
        if are_enough(errors) {
            return;
        }
        let path = path.index(index);
        let field = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let operation = field("operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid_str(
                &path.child("operation"),
                operation,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = field("fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid_str(
                &path.child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_field_manager(field("manager"), &path.child("manager")));
        if field("subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(&path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::name_is_dns_subdomain;

    #[track_caller]
    fn check(meta: Value, namespaced: bool, expected: &[&str]) {
        let meta = meta.as_object().unwrap();
        let got: Vec<String> = validate_object_meta(
            meta,
            namespaced,
            name_is_dns_subdomain,
            &FieldPath::new("metadata"),
        )
        .iter()
        .map(ToString::to_string)
        .collect();
        assert_eq!(got.len(), expected.len(), "{got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.starts_with(expected), "{got} / {expected}");
        }
    }

    #[test]
    fn create() {
        check(json!({"name": "a", "namespace": "b"}), true, &[]);
        check(
            json!({}),
            true,
            &[
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Required value",
            ],
        );
        check(
            json!({"name": "a", "namespace": "b"}),
            false,
            &["metadata.namespace: Forbidden: not allowed on this type"],
        );
        check(
            json!({"generateName": "A-", "name": "A-x", "generation": -1}),
            false,
            &[
                "metadata.name: Invalid value: \"A-x\": a lowercase",
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(
            json!({"name": "a", "labels": {"a b": "-"}, "annotations": {"A/B": "", "x y": ""}}),
            false,
            &[
                "metadata.labels: Invalid value: \"a b\": name part must consist",
                "metadata.labels: Invalid value: \"-\": a valid label",
                "metadata.annotations: Invalid value: \"x y\": name part",
            ],
        );
        check(
            json!({"name": "a", "annotations": {"a": "x".repeat(ANNOTATIONS_MAX_BYTES)}}),
            false,
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
        check(
            json!({"name": "a", "ownerReferences": [{"apiVersion": "a/b/c"}]}),
            false,
            &[
                "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty",
                "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ],
        );
        let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
        check(
            json!({"name": "a", "ownerReferences": [owner("x"), owner("y")]}),
            false,
            &[
                "metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"x\",\"uid\":\"u\",\"controller\":true},{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"y\",\"uid\":\"u\",\"controller\":true}]: Only one reference can have Controller set to true. Found \"true\" in references for Pod/x and Pod/y",
            ],
        );
        check(
            json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}),
            false,
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            ],
        );
        check(
            json!({"name": "a", "managedFields": [{"manager": "a\nb", "fieldsType": "x"}]}),
            false,
            &[
                "metadata.managedFields[0].operation: Invalid value: \"\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"x\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
            ],
        );
    }

    #[test]
    fn update() {
        let old = json!({"name": "a", "uid": "1", "generation": 2, "finalizers": ["x/a"], "deletionTimestamp": "2020-01-01T00:00:00Z"});
        let new = json!({"name": "b", "uid": "1", "generation": 1, "finalizers": ["x/a", "x/b"]});
        let got: Vec<String> = validate_object_meta_update(
            new.as_object().unwrap(),
            old.as_object().unwrap(),
            &FieldPath::new("metadata"),
        )
        .iter()
        .map(ToString::to_string)
        .collect();
        assert_eq!(
            got,
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x/b\"}",
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.name: Invalid value: \"b\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            ]
        );
    }

    fn errors_of(meta: &Value) -> Vec<FieldError> {
        let path = FieldPath::new("metadata");
        validate_object_meta(meta.as_object().unwrap(), false, name_is_dns_subdomain, &path)
    }

    fn owner(index: usize, controller: bool) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{index}"), "uid": "u", "controller": controller})
    }

    #[test]
    fn lists_are_bounded() {
        let finalizer = |index: usize| json!(format!("x.io/{index}"));
        let entry = |_| json!({"manager": "m", "operation": "Update", "fieldsType": "FieldsV1"});
        let check = |key: &str, limit: usize, item: &dyn Fn(usize) -> Value| {
            let meta = |count: usize| json!({"name": "a", key: (0..count).map(item).collect::<Vec<_>>()});
            assert_eq!(errors_of(&meta(limit)), [], "{key}");
            let [error] = &errors_of(&meta(limit + 1))[..] else {
                panic!("{key}: one error is expected")
            };
            assert_eq!(
                error.to_string(),
                format!(
                    "metadata.{key}: Too many: {}: must have at most {limit} items",
                    limit + 1
                )
            );
        };
        check("ownerReferences", limits::OWNER_REFERENCES, &|index| {
            owner(index, false)
        });
        check("finalizers", limits::FINALIZERS, &finalizer);
        check("managedFields", limits::MANAGED_FIELDS, &entry);
    }

    #[test]
    fn many_controllers_are_rendered_once_and_cut() {
        let meta = |count| json!({"name": "a", "ownerReferences": (0..count).map(|i| owner(i, true)).collect::<Vec<_>>()});
        let errors = errors_of(&meta(3));
        assert_eq!(errors.len(), 2);
        assert!(errors[1].to_string().ends_with(" for Pod/p0 and Pod/p2"));
        let many = meta(limits::OWNER_REFERENCES);
        let shown = crate::steps::of(|| errors_of(&many));
        assert!(shown < 200, "{shown} references rendered");
        let errors = errors_of(&many);
        assert_eq!(errors.len(), limits::FIELD_ERRORS);
        let bytes: usize = errors.iter().map(|error| error.to_string().len()).sum();
        assert!(bytes < 2 * limits::FIELD_ERRORS * limits::SHOWN_VALUE_BYTES);
    }

    #[test]
    fn no_list_makes_more_errors_than_are_shown() {
        let many = 3 * limits::FIELD_ERRORS;
        let pairs: Map<String, Value> = (0..many).map(|i| (format!("/{i}"), json!("-"))).collect();
        for meta in [
            json!({"name": "a", "labels": pairs}),
            json!({"name": "a", "annotations": pairs}),
            json!({"name": "a", "finalizers": vec!["/"; many]}),
            json!({"name": "a", "ownerReferences": vec![json!({}); many]}),
            json!({"name": "a", "managedFields": vec![json!({}); many]}),
            json!({"name": "a", "managedFields": [{"manager": "\n".repeat(many)}]}),
        ] {
            let count = errors_of(&meta).len();
            assert!(
                (limits::FIELD_ERRORS..limits::FIELD_ERRORS + 10).contains(&count),
                "{count}"
            );
        }
    }
}
