//! PersistentVolumeClaim.

use machinery::names::qualified_name;
use machinery::quantity::Quantity;
use machinery::{FieldPath, meta};
use serde_json::{Value, json};

use super::claim_spec;
use super::pod_spec::claim_fractions;
use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};
use crate::quantity::{RESOURCES, amount, round_lists};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    status: true,
    returns_deleted: true,
    default: |object| {
        let spec = object.ensure("spec");
        spec.fill("volumeMode", "Filesystem");
        spec.fill("resources", json!({}));
        round_lists(spec, RESOURCES);
        round_lists(object, &["status.capacity", "status.allocatedResources"]);
        object.ensure("status").fill_text("phase", "Pending");
    },
    prepare_create: |_, object| complete_sources(object, &Value::Null),
    prepare_update: |_, object, old| complete_sources(object, old.dig("spec")),
    validate: |errors, object| claim_spec::validate(errors, &FieldPath::new("spec"), object.dig("spec")),
    validate_update,
    validate_status,
    warnings: |object, _| {
        let mut out = Vec::new();
        if object.dig("metadata.annotations").get(CLASS).is_some() {
            out.push(format!(
                "metadata.annotations[{CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        claim_fractions(&mut out, &FieldPath::new("spec"), object.dig("spec"));
        out
    },
    ..Rules::PLAIN
};

/// The annotation that named the class.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Drops sources that are not permitted, and says a source that is given in one way in the other, too. `before` is the specification
/// of the claim that there is: its sources stay.
fn complete_sources(object: &mut Value, before: &Value) {
    let spec = object.ensure("spec");
    // Sources of other namespaces are behind a feature that is off.
    if !spec.text("dataSourceRef.namespace").is_empty() && !before.has("dataSourceRef") {
        spec.take_key("dataSourceRef");
    }
    let in_use = before.has("dataSource") || before.has("dataSourceRef");
    if !in_use && !spec.has("dataSourceRef") && !of_claim_or_snapshot(spec.dig("dataSource")) {
        spec.take_key("dataSource");
    }
    if spec.has("dataSource") && !spec.has("dataSourceRef") {
        let source = spec.dig("dataSource").clone();
        spec.put("dataSourceRef", source);
    } else if spec.has("dataSourceRef")
        && !spec.has("dataSource")
        && spec.text("dataSourceRef.namespace").is_empty()
    {
        let mut source = spec.dig("dataSourceRef").clone();
        source.take_key("namespace");
        spec.put("dataSource", source);
    }
}

/// Whether a source is of the kinds that `dataSource` was made for. Others are dropped when they stand there alone.
fn of_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (source.text("apiGroup"), source.text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    )
}

/// A claim's specification with its mutable fields taken from the old one, to compare the immutable rest.
fn fixed_part(object: &Value, old: &Value) -> Value {
    let mut spec = object.dig("spec").clone();
    let before = old.dig("spec");
    if before.text("volumeName").is_empty() {
        spec.copy_key("volumeName", before);
    }
    if spec.has("storageClassName") && !before.has("storageClassName") {
        spec.copy_key("storageClassName", before);
    }
    if object.text("status.phase") == "Bound" {
        spec.copy_key("volumeAttributesClassName", before);
        let sizes = before.dig("resources.requests");
        if let Some(requests) = spec.dig_mut("resources.requests") {
            requests.copy_key("storage", sizes);
        }
    }
    spec
}

/// The annotation that named the class stays, unless the field takes its place.
fn class_annotation(errors: &mut Errors, object: &Value, old: &Value) {
    let of = |claim: &'_ Value| -> Option<String> {
        let annotation = meta::annotations(claim)?.get(CLASS)?;
        annotation.as_str().map(str::to_owned)
    };
    let (new, before) = (of(object), of(old));
    let moved = before.is_some()
        && !old.has("spec.storageClassName")
        && object.dig("spec.storageClassName").as_str() == before.as_deref()
        && (new.is_none() || new == before);
    let (new, before) = (new.unwrap_or_default(), before.unwrap_or_default());
    if !moved && new != before {
        let metadata = FieldPath::new("metadata");
        let path = metadata.child("annotations");
        errors.invalid(&path.child(CLASS), new, IMMUTABLE);
    }
}

fn validate_update(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    claim_spec::validate_beside(errors, &path, object.dig("spec"), old.dig("spec"));
    if !same(&fixed_part(object, old), old.dig("spec")) {
        let text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.forbidden(&path, text);
    }
    class_annotation(errors, object, old);
    let size = |object: &Value| amount(object.dig("spec.resources.requests.storage"));
    // What is not said is nothing.
    let amount_or_zero = |found: Option<Quantity>| found.unwrap_or(Quantity::ZERO);
    let (new, before) = (amount_or_zero(size(object)), amount_or_zero(size(old)));
    if new < before && new <= amount_or_zero(amount(old.dig("status.capacity.storage"))) {
        let path = FieldPath::new("spec.resources.requests.storage");
        errors.forbidden(&path, "field can not be less than status.capacity");
    }
    let mode = object.dig("spec.volumeMode");
    if !same(mode, old.dig("spec.volumeMode")) {
        errors.invalid_value(&FieldPath::new("volumeMode"), mode, IMMUTABLE);
    }
    let key = "volumeAttributesClassName";
    if old.has("status.currentVolumeAttributesClassName") && object.dig("spec").text(key).is_empty() {
        let what = if object.dig("spec").has(key) {
            "empty string"
        } else {
            "nil"
        };
        if !same(object.dig("spec").dig(key), old.dig("spec").dig(key)) {
            let text = format!(
                "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            );
            errors.forbidden(&path.child(key), text);
        }
    }
}

fn validate_status(errors: &mut Errors, object: &Value, _old: &Value) {
    const STATES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let path = FieldPath::new("status");
    let status = object.dig("status");
    let at = path.child("capacity");
    for (name, raw) in status.entries("capacity") {
        not_negative(errors, &at.key(name), raw);
    }
    let at = path.child("allocatedResourceStatuses");
    for (name, state) in status.entries("allocatedResourceStatuses") {
        resource_key(errors, &at, name);
        if !STATES.contains(&state.as_str().unwrap_or_default()) {
            errors.unsupported(&at, name, &STATES);
        }
    }
    let at = path.child("allocatedResources");
    for (name, raw) in status.entries("allocatedResources") {
        if resource_key(errors, &at, name) {
            not_negative(errors, &at.key(name), raw);
        }
    }
}

fn not_negative(errors: &mut Errors, path: &FieldPath<'_>, raw: &Value) {
    if let Some(quantity) = amount(raw).filter(|quantity| quantity.signum() < 0) {
        errors.invalid(path, quantity.value(), "must be a valid resource quantity");
    }
}

/// A resource a claim can hold: storage, or one with a domain of its own.
fn resource_key(errors: &mut Errors, path: &FieldPath<'_>, name: &str) -> bool {
    let before = errors.len();
    errors.text(path, name, qualified_name(name));
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if errors.len() == before && native && name != "storage" {
        errors.unsupported(path, name, &["storage"]);
    }
    errors.len() == before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::check::kind;

    #[test]
    fn claims_have_defaults() {
        kind("persistentvolumeclaims").defaults(
            &json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            &json!({"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}),
        );
    }

    #[test]
    fn the_annotation_of_the_class_stays() {
        #[track_caller]
        fn check(before: &Value, change: &Value, expected: &[&str]) {
            let mut claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
            if !before.is_null() {
                claim["metadata"] = json!({"annotations": {CLASS: before}});
            }
            kind("persistentvolumeclaims").update(&claim, change, expected);
        }
        let annotated = |class: Value| json!({"metadata": {"annotations": {CLASS: class}}});
        let fault = |class: &str| {
            format!("metadata.annotations.{CLASS}: Invalid value: {class:?}: field is immutable")
        };
        check(&Value::Null, &json!({}), &[]);
        check(&Value::Null, &annotated(json!("a")), &[&fault("a")]);
        check(&json!("a"), &annotated(json!("a")), &[]);
        check(&json!("a"), &annotated(json!("b")), &[&fault("b")]);
        check(
            &json!("a"),
            &json!({"metadata": {"annotations": null}}),
            &[&fault("")],
        );
        // The field takes its place.
        let moved = json!({"metadata": {"annotations": null}, "spec": {"storageClassName": "a"}});
        check(&json!("a"), &moved, &[]);
    }

    #[test]
    fn sources_are_said_in_both_ways() {
        #[track_caller]
        fn check(spec: &Value, before: &Value, expected: &Value) {
            let mut object = json!({"spec": spec});
            complete_sources(&mut object, before);
            assert_eq!(object["spec"], *expected, "{spec}");
        }
        let none = Value::Null;
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let other = json!({"apiGroup": "x.example", "kind": "Volume", "name": "a"});
        let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "n"});
        let both = |source: &Value| json!({"dataSource": source, "dataSourceRef": source});
        check(&json!({}), &none, &json!({}));
        check(&json!({"dataSource": claim}), &none, &both(&claim));
        check(&json!({"dataSourceRef": other}), &none, &both(&other));
        check(&json!({"dataSource": other}), &none, &json!({}));
        check(&json!({"dataSourceRef": elsewhere}), &none, &json!({}));
        // A client that knows one way alone sends a claim back as it was made.
        check(&json!({"dataSource": claim}), &both(&claim), &both(&claim));
        check(&json!({"dataSource": other}), &both(&other), &both(&other));
        check(
            &json!({"dataSourceRef": elsewhere}),
            &json!({"dataSourceRef": elsewhere}),
            &json!({"dataSourceRef": elsewhere}),
        );
    }
}
