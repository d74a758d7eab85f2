//! The metadata of written objects: the fields that only the server sets, and the faults of the others.

use machinery::{FieldError, FieldPath, meta, names};
use serde_json::Value;

use super::{WriteCall, now};

/// Drops what only the server may say of a new object.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "uid",
        "selfLink",
    ] {
        meta::set(object, key, Value::Null);
    }
}

/// Fields of a new object that only the server sets.
pub(super) fn fill_system_fields(object: &mut Value) {
    wipe_system_fields(object);
    meta::set(object, "creationTimestamp", now());
    meta::set(object, "uid", uuid::Uuid::new_v4().to_string());
}

/// Fields that a client leaves out or may not set are taken from the live object.
pub(super) fn keep_system_fields(object: &mut Value, live: &Value) {
    let has = |object: &Value, key: &str| {
        meta::metadata(object)
            .and_then(|m| m.get(key))
            .is_some_and(|v| !v.is_null() && v != "")
    };
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        let kept = match key {
            "generation" => true,
            "uid" => !has(object, key),
            "deletionGracePeriodSeconds" => has(live, key) && !has(object, key),
            // A change of these is ignored, not refused; a mark that is not there cannot be made, and validation says so.
            _ => has(live, key),
        };
        if kept {
            let live = meta::metadata(live)
                .and_then(|m| m.get(key))
                .cloned()
                .unwrap_or_default();
            meta::set(object, key, live);
        }
    }
    // The store keeps none.
    meta::set(object, "selfLink", Value::Null);
}

/// Faults of the metadata of a new object that its kind looks for.
pub(super) fn create_errors(call: &WriteCall<'_>, object: &Value) -> Vec<FieldError> {
    let rules = call.strategy.metadata_rules();
    if !rules.on_create {
        return Vec::new();
    }
    let empty = serde_json::Map::new();
    let metadata = meta::metadata(object).unwrap_or(&empty);
    let path = FieldPath::new("metadata");
    let mut errors =
        names::validate_object_meta(metadata, call.namespaced(), call.strategy.name_rule(), &path);
    if !call.resource.custom && rules.standard_finalizers {
        errors.extend(finalizer_errors(object));
    }
    errors
}

/// Faults of the metadata of a new object whose kind does not look at it, or lets every name be.
pub(super) fn common_create_errors(call: &WriteCall<'_>, object: &Value) -> Vec<FieldError> {
    if call.strategy.metadata_rules().on_create {
        let metadata = FieldPath::new("metadata");
        let parts = [
            ("generateName", meta::generate_name(object), true),
            ("name", meta::name(object), false),
        ];
        let faults = parts.into_iter().flat_map(|(key, text, prefix)| {
            let texts = names::name_is_path_segment(text, prefix).into_iter();
            let metadata = &metadata;
            texts.map(move |fault| FieldError::invalid_str(&metadata.child(key), text, fault))
        });
        return faults.collect();
    }
    let empty = serde_json::Map::new();
    let metadata = meta::metadata(object).unwrap_or(&empty);
    let path = FieldPath::new("metadata");
    names::validate_object_meta(metadata, call.namespaced(), names::name_is_path_segment, &path)
}

/// Faults of the metadata of a scale that a client writes.
pub(crate) fn scale_errors(scale: &Value) -> Vec<FieldError> {
    let mut metadata = meta::metadata(scale).cloned().unwrap_or_default();
    // Ownership is that of the parent.
    metadata.remove("managedFields");
    let rule = crate::registry::strategy::subdomain_name;
    let mut errors = names::validate_object_meta(&metadata, true, rule, &FieldPath::new("metadata"));
    errors.extend(finalizer_errors(scale));
    errors
}

/// Built-in kinds know which finalizers may go without a domain.
fn finalizer_errors(object: &Value) -> Vec<FieldError> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let metadata = FieldPath::new("metadata");
    let path = metadata.child("finalizers");
    let faulty = meta::finalizers(object)
        .enumerate()
        .filter(|(_, name)| !name.contains('/') && !STANDARD.contains(name));
    faulty
        .map(|(index, name)| {
            FieldError::invalid_str(
                &path.index(index),
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
        })
        .collect()
}

/// Faults of the metadata of a changed object. Every kind's own validation looks at metadata once more after the common
/// one, so that faults are there several times, as upstream's are; its messages name them once.
pub(super) fn update_errors(call: &WriteCall<'_>, object: &Value, live: &Value) -> Vec<FieldError> {
    let empty = serde_json::Map::new();
    let path = FieldPath::new("metadata");
    let new = meta::metadata(object).unwrap_or(&empty);
    let old = meta::metadata(live).unwrap_or(&empty);
    let mut errors = names::validate_object_meta(new, call.namespaced(), names::name_is_path_segment, &path);
    errors.extend(names::validate_object_meta_update(new, old, &path));
    let rules = call.strategy.metadata_rules();
    if call.resource.custom || rules.changes {
        errors.extend(names::validate_object_meta_update(new, old, &path));
    }
    if call.resource.custom {
        return errors;
    }
    if rules.standard_finalizers {
        errors.extend(finalizer_errors(object));
    }
    if call.subresource.is_empty() && rules.on_update {
        errors.extend(names::validate_object_meta(
            new,
            call.namespaced(),
            call.strategy.name_rule(),
            &path,
        ));
        if rules.standard_finalizers {
            errors.extend(finalizer_errors(object));
        }
    }
    errors
}
