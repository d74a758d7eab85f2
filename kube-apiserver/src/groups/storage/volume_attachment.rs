//! VolumeAttachment.

use machinery::FieldPath;
use machinery::names::{inclusive_range_error, name_is_dns_subdomain};
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::core::persistent_volume::validate_inline;
use crate::groups::core::pod_spec::csi_driver;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    default: |object| object.ensure("status").fill("attached", false),
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    returns_deleted: true,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable(&FieldPath::ROOT, "spec", object, old);
    },
    validate_status: |errors, object, _| validate(errors, object),
    ..Rules::PLAIN
};

/// The most that a driver may say of an attached volume, in bytes.
const METADATA_BYTES: usize = 256 * 1024;
/// The longest message of an error.
const MESSAGE_BYTES: usize = 1024;

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    csi_driver(errors, &path.child("attacher"), spec.text("attacher"));
    source(errors, &path.child("source"), spec.dig("source"));
    let node = spec.text("nodeName");
    errors.text(&path.child("nodeName"), node, name_is_dns_subdomain(node, false));
    let path = FieldPath::new("status");
    let metadata = object.entries("status.attachmentMetadata");
    let bytes: usize = metadata
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if bytes > METADATA_BYTES {
        errors.too_long(&path.child("attachmentMetadata"), METADATA_BYTES);
    }
    for key in ["attachError", "detachError"] {
        volume_error(errors, &path.child(key), object.dig("status").dig(key));
    }
    if let Some(name) = spec.dig("source.persistentVolumeName").as_str() {
        let path = FieldPath::new("spec.source.persistentVolumeName");
        errors.text(&path, name, name_is_dns_subdomain(name, false));
    }
}

fn source(errors: &mut Errors, path: &FieldPath<'_>, source: &Value) {
    let exactly = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => errors.required(path, exactly),
        (true, true) => errors.forbidden(path, exactly),
        (false, true) if source.text("persistentVolumeName").is_empty() => errors.required(
            &path.child("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        ),
        (false, true) => {}
        (true, false) => {
            let spec = source.dig("inlineVolumeSpec");
            validate_inline(errors, &path.child("inlineVolumeSpec"), spec);
        }
    }
}

fn volume_error(errors: &mut Errors, path: &FieldPath<'_>, error: &Value) {
    if error.text("message").len() > MESSAGE_BYTES {
        // Upstream names the wrong bound.
        errors.too_long(&path.child("message"), METADATA_BYTES);
    }
    if let Some(code) = error.int("errorCode").filter(|code| *code < 0) {
        let text = inclusive_range_error(0, i64::from(i32::MAX));
        errors.invalid(&path.child("errorCode"), code, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("volumeattachments.storage.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn attachments_are_validated() {
        let source = json!({"persistentVolumeName": "pv"});
        check(
            json!({"attacher": "d.example.com", "nodeName": "n", "source": source}),
            &[],
        );
        check(
            json!({"attacher": "", "nodeName": "n", "source": source}),
            &["spec.attacher: Required value"],
        );
        check(
            json!({"attacher": "d", "nodeName": "n", "source": {}}),
            &[
                "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            ],
        );
        check(
            json!({"attacher": "d", "nodeName": "n", "source": {"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}}}),
            &[
                "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
            ],
        );
    }

    #[test]
    fn attachments_are_immutable() {
        let attachments = kind("volumeattachments.storage.k8s.io");
        let object =
            json!({"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
        let errors = attachments
            .updated("", &object, &json!({"spec": {"nodeName": "m"}}))
            .unwrap_err();
        assert!(
            errors[0].starts_with("spec: Invalid value: ") && errors[0].ends_with(": field is immutable"),
            "{errors:?}"
        );
        attachments.update_of("status", &object, &json!({"status": {"attached": true}}), &[]);
        attachments.update_of(
            "status",
            &object,
            &json!({"status": {"detachError": {"errorCode": -1}}}),
            &["status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"],
        );
    }
}
