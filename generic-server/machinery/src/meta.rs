//! Accessors for what every object has: `apiVersion`, `kind` and `metadata`.

use serde_json::{Map, Value};

/// `metadata`, when the object has one.
pub fn metadata(object: &Value) -> Option<&Map<String, Value>> {
    object.get("metadata")?.as_object()
}

/// `metadata`, made when missing. `None` only when `object` is not a JSON object.
pub fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let meta = object
        .as_object_mut()?
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if !meta.is_object() {
        *meta = Value::Object(Map::new());
    }
    meta.as_object_mut()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    metadata(object)
        .and_then(|m| m.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `metadata.name`, empty when absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.generateName`, empty when absent.
pub fn generate_name(object: &Value) -> &str {
    text(object, "generateName")
}

/// `metadata.namespace`, empty when absent.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`, empty when absent.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// `metadata.resourceVersion`, empty when absent.
pub fn resource_version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

/// `metadata.deletionTimestamp`, when the object is being deleted.
pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    metadata(object)?.get("deletionTimestamp")?.as_str()
}

/// `metadata.generation`, zero when absent.
pub fn generation(object: &Value) -> i64 {
    metadata(object)
        .and_then(|m| m.get("generation"))
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// `metadata.labels`, when present and not empty.
pub fn labels(object: &Value) -> Option<&Map<String, Value>> {
    metadata(object)?.get("labels")?.as_object()
}

/// `metadata.annotations`, when present.
pub fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    metadata(object)?.get("annotations")?.as_object()
}

/// `metadata.finalizers` as strings.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let list = metadata(object)
        .and_then(|m| m.get("finalizers"))
        .and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// `metadata.ownerReferences`.
pub fn owner_references(object: &Value) -> &[Value] {
    let list = metadata(object)
        .and_then(|m| m.get("ownerReferences"))
        .and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// `apiVersion`, empty when absent.
pub fn api_version(object: &Value) -> &str {
    object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `kind`, empty when absent.
pub fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Sets a field of `metadata`; an empty string or null removes it.
pub fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    let value = value.into();
    let Some(meta) = metadata_mut(object) else { return };
    if value.is_null() || value.as_str() == Some("") {
        meta.remove(key);
    } else {
        meta.insert(key.into(), value);
    }
}

/// The value at a path of object keys (`&["spec", "replicas"]`).
pub fn dig<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The string at a path, empty when absent or of another type.
pub fn dig_str<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    dig(object, path).and_then(Value::as_str).unwrap_or_default()
}
