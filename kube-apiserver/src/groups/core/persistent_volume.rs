//! PersistentVolume.

use machinery::names::dns1123_subdomain;
use machinery::time::Timestamp;
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::claim_spec::{access_modes, class, positive, volume_mode};
use super::pod_spec::{csi_driver, no_backsteps, node_selector, shown_source, volume_source};
use crate::errors::{Errors, IMMUTABLE};
use crate::groups::node_labels;
use crate::json::{Json, is_zero, same};
use crate::quantity::{amount, round_lists};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    status: true,
    returns_deleted: true,
    default: |object| {
        let spec = object.ensure("spec");
        spec.fill_text("persistentVolumeReclaimPolicy", "Retain");
        spec.fill("volumeMode", "Filesystem");
        round_lists(spec, &["capacity"]);
        if let Some(path) = spec.dig_mut("hostPath") {
            path.fill("type", "");
        }
        if let Some(iscsi) = spec.dig_mut("iscsi") {
            iscsi.fill_text("iscsiInterface", "default");
        }
        if let Some(rbd) = spec.dig_mut("rbd") {
            rbd.fill_text("pool", "rbd");
            rbd.fill_text("user", "admin");
            rbd.fill_text("keyring", "/etc/ceph/keyring");
        }
        if let Some(disk) = spec.dig_mut("azureDisk") {
            disk.fill("cachingMode", "ReadWrite");
            disk.fill("kind", "Shared");
            disk.fill("fsType", "ext4");
            disk.fill("readOnly", false);
        }
        if let Some(scale) = spec.dig_mut("scaleIO") {
            scale.fill_text("storageMode", "ThinProvisioned");
            scale.fill_text("fsType", "xfs");
        }
        object.ensure("status").fill_text("phase", "Pending");
    },
    prepare_create: |_, object| {
        let now = Timestamp::now().to_rfc3339();
        object.ensure("status").put("lastPhaseTransitionTime", now);
    },
    prepare_status: |object, old| {
        let at = "lastPhaseTransitionTime";
        let (new, before) = (object.dig("status"), old.dig("status"));
        let named = !new.dig(at).is_null();
        if new.text("phase") != before.text("phase") {
            if !named || new.dig(at) == before.dig(at) {
                let now = Timestamp::now().to_rfc3339();
                object.ensure("status").put(at, now);
            }
        } else if !named {
            object.ensure("status").copy_key(at, before);
        }
    },
    validate: |errors, object| {
        validate_spec(errors, &FieldPath::new("spec"), object.dig("spec"));
        mount_options(errors, object);
    },
    validate_update,
    warnings: |object, _| warnings(object),
    ..Rules::PLAIN
};

const RECYCLE: &str = "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";

const ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        "deprecated since v1.8; use \"storageClassName\" attribute instead",
    ),
    (
        "volume.beta.kubernetes.io/mount-options",
        "deprecated since v1.31; use \"mountOptions\" attribute instead",
    ),
];

/// Sources that are mounted with the options that an annotation says.
const MOUNTED: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Other volumes have no such annotation.
fn mount_options(errors: &mut Errors, object: &Value) {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
    let spec = object.dig("spec");
    if object.dig("metadata.annotations").get(ANNOTATION).is_some()
        && !MOUNTED.iter().any(|key| spec.has(key))
    {
        let metadata = FieldPath::new("metadata.annotations");
        let text = "may not specify mount options for this volume type";
        errors.forbidden(&metadata.child(ANNOTATION), text);
    }
}

/// Sources that nothing mounts any more, as they are called in warnings.
const DEPRECATED: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

fn warnings(object: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let annotations = object.dig("metadata.annotations");
    for (key, text) in ANNOTATIONS {
        if annotations.get(key).is_some() {
            out.push(format!("metadata.annotations[{key}]: {text}"));
        }
    }
    let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        out.push(RECYCLE.to_string());
    }
    let terms = path.child("nodeAffinity.required.nodeSelectorTerms");
    for (index, term) in spec
        .list("nodeAffinity.required.nodeSelectorTerms")
        .iter()
        .enumerate()
    {
        node_labels::term(&mut out, &terms.index(index), term, false);
    }
    for (key, name, text) in DEPRECATED {
        if spec.has(key) {
            out.push(format!("{}: {text}", path.child(name)));
        }
    }
    out
}

/// The keys that say where a volume is, in the order they are looked at.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

fn validate_spec(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    access_modes(errors, path, spec);
    capacity(errors, &path.child("capacity"), spec.dig("capacity"));
    let policy = spec.text("persistentVolumeReclaimPolicy");
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        errors.one_of(&policy_path, policy, &["Delete", "Recycle", "Retain"]);
    }
    if spec.has("nodeAffinity") {
        let at = path.child("nodeAffinity");
        match spec.dig("nodeAffinity.required") {
            Value::Null => errors.required(&at.child("required"), "must specify required node constraints"),
            required => node_selector(errors, &at.child("required"), required),
        }
    }
    one_source(errors, path, spec);
    if spec.text("hostPath.path") == "/" && policy == "Recycle" {
        errors.forbidden(&policy_path, "may not be 'recycle' for a hostPath mount of '/'");
    }
    class(errors, path, spec, "storageClassName");
    volume_mode(errors, path, spec);
    attributes_class(errors, path, spec);
}

/// A volume is in one place.
fn one_source(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let mut one = false;
    for key in SOURCES.iter().filter(|key| spec.has(key)) {
        let at = path.child(shown_source(key));
        // Upstream counts a flexible volume, but does not look whether there is another.
        if one && *key != "flexVolume" {
            let at = path.child(if *key == "cephfs" { "cephFS" } else { key });
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        one = true;
        source(errors, &at, key, spec.dig(key));
        if *key == "local" && !spec.has("nodeAffinity") {
            let text = "Local volume requires node affinity";
            errors.required(&path.child("nodeAffinity"), text);
        }
    }
    if !one {
        errors.required(path, "must specify a volume type");
    }
}

fn attributes_class(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    if spec.has("volumeAttributesClassName") {
        let key = "volumeAttributesClassName";
        if spec.text(key).is_empty() {
            errors.required(&path.child(key), "an empty string is disallowed");
        }
        class(errors, path, spec, key);
        if !spec.has("csi") {
            let text = "has to be specified when using volumeAttributesClassName";
            errors.required(&path.child("csi"), text);
        }
    }
}

/// Checks the volume that an attachment writes out: less may be said of it than of one that is an object.
pub(crate) fn validate_inline(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let text = "may not be specified in the context of inline volumes";
    for key in ["claimRef", "capacity"] {
        if !is_zero(spec.dig(key)) {
            errors.forbidden(&path.child(key), text);
        }
    }
    if !spec.has("csi") {
        let text = "has to be specified in the context of inline volumes";
        errors.required(&path.child("csi"), text);
    }
    if spec.list("accessModes").is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    access_modes(errors, path, spec);
    let key = "persistentVolumeReclaimPolicy";
    if !matches!(spec.text(key), "" | "Retain") {
        let text = "may only be Retain in the context of inline volumes";
        errors.forbidden(&path.child(key), text);
    }
    if spec.has("nodeAffinity") {
        errors.forbidden(&path.child("nodeAffinity"), text);
    }
    one_source(errors, path, spec);
    if !spec.text("storageClassName").is_empty() {
        errors.forbidden(&path.child("storageClassName"), text);
    }
    if !matches!(spec.text("volumeMode"), "" | "Filesystem") {
        let text = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(&path.child("volumeMode"), text);
    }
    attributes_class(errors, path, spec);
}

fn capacity(errors: &mut Errors, path: &FieldPath<'_>, capacity: &Value) {
    let count = capacity.as_object().map_or(0, serde_json::Map::len);
    if count == 0 {
        errors.required(path, "");
    }
    if count != 1 || capacity.get("storage").is_none() {
        errors.push(FieldError::not_supported(path, capacity, &["storage"]));
    }
    for (name, raw) in capacity.as_object().into_iter().flatten() {
        let at = path.key(name);
        if let Some(quantity) = amount(raw).filter(|quantity| quantity.signum() < 0) {
            errors.invalid(&at, quantity.value(), "must be a valid resource quantity");
        }
        positive(errors, &at, raw);
    }
}

/// Checks the source of a volume; sources that pods can name too are validated as they are there.
fn source(errors: &mut Errors, path: &FieldPath<'_>, key: &str, source: &Value) {
    match key {
        "local" => {
            errors.need(&path.child("path"), source.text("path"));
            no_backsteps(errors, &path.child("path"), source.text("path"));
        }
        "csi" => {
            csi_driver(errors, &path.child("driver"), source.text("driver"));
            errors.need(&path.child("volumeHandle"), source.text("volumeHandle"));
            for key in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                if source.has(key) {
                    secret(errors, &path.child(key), source.dig(key));
                }
            }
        }
        _ => {
            volume_source(errors, path, key, source);
            if let Some(namespace) = source.dig("endpointsNamespace").as_str() {
                let texts = match namespace {
                    "" => vec!["if the endpointnamespace is set, it must be a valid namespace name".into()],
                    name => machinery::names::dns1123_label(name),
                };
                errors.text(&path.child("endpointsNamespace"), namespace, texts);
            }
            // Secrets of persistent volumes are in any namespace.
            let missing = match key {
                "storageos" | "cinder" => Some("namespace"),
                "iscsi" => Some("name"),
                _ => None,
            };
            if let Some(field) = missing.filter(|_| source.has("secretRef")) {
                let at = path.child("secretRef");
                errors.need(&at.child(field), source.dig("secretRef").text(field));
            }
        }
    }
}

fn secret(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value) {
    for key in ["name", "namespace"] {
        let text = reference.text(key);
        if errors.need(&path.child(key), text) {
            let texts = match key {
                "name" => dns1123_subdomain(text),
                _ => machinery::names::dns1123_label(text),
            };
            errors.text(&path.child(key), text, texts);
        }
    }
}

fn validate_update(errors: &mut Errors, object: &Value, old: &Value) {
    let (spec, before) = (object.dig("spec"), old.dig("spec"));
    errors.twice(|errors| {
        validate_spec(errors, &FieldPath::new("spec"), spec);
        mount_options(errors, object);
    });
    let sources = |spec: &Value| -> Value {
        let mut found = json!({});
        for key in SOURCES {
            found.copy_key(key, spec);
        }
        found
    };
    let (mut new_source, old_source) = (sources(spec), sources(before));
    if !before.has("csi.controllerExpandSecretRef")
        && let Some(csi) = new_source.dig_mut("csi")
    {
        csi.take_key("controllerExpandSecretRef");
    }
    if !same(&new_source, &old_source) {
        let text = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(&FieldPath::new("spec.persistentvolumesource"), text);
    }
    if !same(spec.dig("volumeMode"), before.dig("volumeMode")) {
        errors.invalid_value(&FieldPath::new("volumeMode"), spec.dig("volumeMode"), IMMUTABLE);
    }
    let key = "nodeAffinity";
    if before.has(key) && !same(spec.dig(key), before.dig(key)) {
        let text = format!("{IMMUTABLE}, except for updating from beta label to GA");
        errors.invalid_value(&FieldPath::new(key), spec.dig(key), text);
    }
    let key = "volumeAttributesClassName";
    if before.has(key) && !spec.has(key) {
        let text = "update from non-nil value to nil is forbidden";
        errors.forbidden(&FieldPath::new("spec").child(key), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut spec: Value, expected: &[&str]) {
        let mut object = json!({"spec": spec.take()});
        (RULES.default)(&mut object);
        let found = Errors::collect(|errors| (RULES.validate)(errors, &object));
        let found: Vec<String> = found
            .iter()
            .map(|e| format!("{}: {}", e.field, e.body()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn one_source_and_one_capacity() {
        let base = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}});
        let with = |key: &str, value: Value| {
            let mut spec = base.clone();
            spec.put(key, value);
            spec
        };
        check(with("hostPath", json!({"path": "/a"})), &[]);
        check(
            base.clone(),
            &["spec: Required value: must specify a volume type"],
        );
        check(
            with("local", json!({"path": "/a"})),
            &["spec.nodeAffinity: Required value: Local volume requires node affinity"],
        );
        check(
            json!({"accessModes": ["X"], "hostPath": {"path": "/a/../b"}, "nfs": {}}),
            &[
                r#"spec.accessModes: Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
                "spec.capacity: Required value",
                r#"spec.capacity: Unsupported value: null: supported values: "storage""#,
                r#"spec.hostPath.path: Invalid value: "/a/../b": must not contain '..'"#,
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
            ],
        );
    }

    #[test]
    fn the_time_of_a_phase_is_kept() {
        let volumes = crate::groups::check::kind("persistentvolumes");
        let object = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}});
        let kept = volumes
            .updated(
                "status",
                &object,
                &json!({"status": {"lastPhaseTransitionTime": null}}),
            )
            .unwrap();
        assert!(kept["status"]["lastPhaseTransitionTime"].is_string(), "{kept}");
        let changed =
            json!({"status": {"phase": "Bound", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z"}});
        let moved = volumes.updated("status", &object, &changed).unwrap();
        assert_eq!(moved["status"]["lastPhaseTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
