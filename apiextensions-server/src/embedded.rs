//! Whole objects inside an object (`x-kubernetes-embedded-resource`): their type and metadata.
//! Mirrors `pkg/apiserver/schema/objectmeta/validation.go`.

use machinery::names::object_meta::validate_object_meta;
use machinery::names::{dns1035_label, name_is_path_segment};
use machinery::schema::SchemaRef;
use machinery::{FieldError, FieldPath, GroupVersion};
use serde_json::{Map, Value};

/// Faults of the objects embedded in an object.
pub(crate) fn validate(schema: SchemaRef<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, &FieldPath::ROOT, true, &mut errors);
    errors
}

/// Faults of objects embedded in a value, which is one itself when its schema says so.
pub(crate) fn validate_within(schema: SchemaRef<'_>, value: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, path, false, &mut errors);
    errors
}

/// Faults of an object and of those embedded in it.
pub(crate) fn validate_whole(schema: SchemaRef<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object.is_object() {
        embedded(object, &FieldPath::ROOT, &mut errors);
    }
    walk(schema, object, &FieldPath::ROOT, true, &mut errors);
    errors
}

fn meta_text<'a>(metadata: &'a Map<String, Value>, key: &str) -> &'a str {
    metadata.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn walk(
    schema: SchemaRef<'_>,
    value: &Value,
    path: &FieldPath<'_>,
    root: bool,
    errors: &mut Vec<FieldError>,
) {
    match value {
        Value::Object(map) => {
            if schema.node().embedded && !root {
                embedded(value, path, errors);
            }
            for (key, value) in map {
                if let Some((_, property)) = schema.field(key) {
                    walk(property, value, &path.child(key), false, errors);
                } else if let Some(values) = schema.additional() {
                    walk(values, value, &path.key(key), false, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(of) = schema.items() else { return };
            for (i, item) in items.iter().enumerate() {
                walk(of, item, &path.index(i), false, errors);
            }
        }
        _ => {}
    }
}

fn embedded(object: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        let at = path.child(key);
        let Some(value) = object.get(key) else {
            errors.push(FieldError::required(&at, ""));
            continue;
        };
        let Some(text) = value.as_str() else {
            errors.push(FieldError::invalid(&at, value, "must be a string"));
            continue;
        };
        let faults = dns1035_label(&text.to_lowercase());
        if text.is_empty() {
            errors.push(FieldError::invalid_str(&at, text, "must not be empty"));
        } else if key == "apiVersion" && GroupVersion::parse(text).is_none() {
            let detail = format!("unexpected GroupVersion string: {text}");
            errors.push(FieldError::invalid_str(&at, text, detail));
        } else if key == "kind" && !faults.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                faults.join(",")
            );
            errors.push(FieldError::invalid_str(&at, text, detail));
        }
    }
    let Some(metadata) = object.get("metadata") else {
        return;
    };
    let at = path.child("metadata");
    let Some(metadata) = metadata.as_object() else {
        let detail = "json: cannot unmarshal into Go value of type v1.ObjectMeta";
        errors.push(FieldError::invalid(&at, metadata, detail));
        return;
    };
    let mut metadata = metadata.clone();
    if meta_text(&metadata, "name").is_empty() {
        // It need not have a name, so none is missed.
        metadata.insert("name".into(), "fakename".into());
    }
    let namespaced = !meta_text(&metadata, "namespace").is_empty();
    errors.extend(validate_object_meta(
        &metadata,
        namespaced,
        name_is_path_segment,
        &at,
    ));
}
