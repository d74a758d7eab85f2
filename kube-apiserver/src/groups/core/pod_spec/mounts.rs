//! Where containers mount volumes and devices.

use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::paths::local_descending_path;
use super::pod_context::Pod;
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::{Seen, texts};

pub(super) fn mounts(errors: &mut Errors, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let devices = container.list("volumeDevices");
    let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
    let mut points = Seen::default();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let at = path.index(index);
        let (name, point) = (mount.text("name"), mount.text("mountPath"));
        errors.need(&at.child("name"), name);
        if pod.volumes.get(name).is_none() {
            errors.push(FieldError::not_found(&at.child("name"), &Value::from(name)));
        }
        errors.need(&at.child("mountPath"), point);
        if points.again(point) {
            errors.invalid(&at.child("mountPath"), point, "must be unique");
        }
        if device_names.has(name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.has(point) {
            errors.invalid(
                &at.child("mountPath"),
                point,
                "must not already exist as a path in volumeDevices",
            );
        }
        // Upstream names the list, not the item, for what follows.
        let sub = mount.text("subPath");
        if !sub.is_empty() {
            local_descending_path(errors, &path.child("subPath"), sub);
        }
        let expression = mount.text("subPathExpr");
        if !expression.is_empty() {
            if !sub.is_empty() {
                errors.invalid(
                    &at.child("subPathExpr"),
                    expression,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            local_descending_path(errors, &path.child("subPathExpr"), expression);
        }
        propagation(errors, path, mount, container);
    }
}

fn propagation(errors: &mut Errors, path: &FieldPath<'_>, mount: &Value, container: &Value) {
    let at = path.child("mountPropagation");
    if mount.has("mountPropagation") {
        let mode = mount.text("mountPropagation");
        errors.one_of(&at, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !container.flag("securityContext.privileged") {
            errors.forbidden(
                &at,
                "Bidirectional mount propagation is available only to privileged containers",
            );
        }
    }
    if mount.has("recursiveReadOnly") {
        let at = path.child("recursiveReadOnly");
        let mode = mount.text("recursiveReadOnly");
        match mode {
            "Disabled" => {}
            "Enabled" | "IfPossible" => {
                if !mount.flag("readOnly") {
                    errors.forbidden(&at, "may only be specified when readOnly is true");
                }
                if !matches!(mount.text("mountPropagation"), "" | "None") {
                    errors.forbidden(
                        &at,
                        "may only be specified when mountPropagation is None or not specified",
                    );
                }
            }
            _ => errors.unsupported(&at, mode, &["Disabled", "Enabled", "IfPossible"]),
        }
    }
}

pub(super) fn devices(errors: &mut Errors, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    let mounts = container.list("volumeMounts");
    let (mount_names, mount_paths) = (texts(mounts, "name"), texts(mounts, "mountPath"));
    let (mut names, mut paths) = (Seen::default(), Seen::default());
    for (index, device) in container.list("volumeDevices").iter().enumerate() {
        let at = path.index(index);
        let (name, point) = (device.text("name"), device.text("devicePath"));
        errors.need(&at.child("name"), name);
        if names.again(name) {
            errors.invalid(&at.child("name"), name, "must be unique");
        }
        match pod.volumes.get(name) {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                errors.invalid(
                    &at.child("name"),
                    name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
            None => errors.push(FieldError::not_found(&at.child("name"), &Value::from(name))),
        }
        errors.need(&at.child("devicePath"), point);
        if paths.has(point) {
            errors.invalid(&at.child("devicePath"), point, "must be unique");
        }
        if point.contains("..") {
            errors.invalid(&at.child("devicePath"), point, "can not contain backsteps ('..')");
        } else {
            paths.extend([point]);
        }
        if mount_names.has(name) {
            errors.invalid(&at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.has(point) {
            errors.invalid(
                &at.child("devicePath"),
                point,
                "must not already exist as a path in volumeMounts",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, pod};

    #[track_caller]
    fn check(container: &Value, expected: &[&str]) {
        kind("pods").create(&with_volumes(container), expected);
    }

    /// A pod with a directory `v` and a claim `p`, and a container with these fields.
    fn with_volumes(container: &Value) -> Value {
        let mut whole = json!({"name": "c", "image": "i"});
        for (key, value) in container.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}]);
        pod(&json!({"volumes": volumes, "containers": [whole]}))
    }

    #[test]
    fn mounts() {
        let mount = |path: &str| json!({"name": "v", "mountPath": path});
        check(&json!({"volumeMounts": [mount("/a"), mount("/b")]}), &[]);
        check(
            &json!({"volumeMounts": [mount("/a"), mount("/a")]}),
            &[r#"spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique"#],
        );
        check(
            &json!({"volumeMounts": [mount("")]}),
            &["spec.containers[0].volumeMounts[0].mountPath: Required value"],
        );
        let sub = |path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": path}]});
        check(&sub("a/b..c"), &[]);
        check(
            &sub("a/.."),
            &[r#"spec.containers[0].volumeMounts.subPath: Invalid value: "a/..": must not contain '..'"#],
        );
        check(
            &sub("/a"),
            &[r#"spec.containers[0].volumeMounts.subPath: Invalid value: "/a": must be a relative path"#],
        );
    }

    #[test]
    fn propagation() {
        let mount = |fields: Value, privileged: bool| {
            let mut mount = fields;
            mount["name"] = "v".into();
            mount["mountPath"] = "/a".into();
            json!({"volumeMounts": [mount], "securityContext": {"privileged": privileged}})
        };
        check(&mount(json!({"mountPropagation": "Bidirectional"}), true), &[]);
        check(
            &mount(json!({"mountPropagation": "Bidirectional"}), false),
            &[
                "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
            ],
        );
        check(
            &mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true}), false),
            &[],
        );
        check(
            &mount(json!({"recursiveReadOnly": "IfPossible"}), false),
            &[
                "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
            ],
        );
    }

    #[test]
    fn devices() {
        let device = |name: &str, path: &str| json!({"volumeDevices": [{"name": name, "devicePath": path}]});
        check(&device("p", "/dev/x"), &[]);
        check(
            &device("v", "/dev/x"),
            &[
                r#"spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"#,
            ],
        );
        check(
            &device("gone", "/dev/../x"),
            &[
                r#"spec.containers[0].volumeDevices[0].name: Not found: "gone""#,
                r#"spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/dev/../x": can not contain backsteps ('..')"#,
            ],
        );
    }
}
