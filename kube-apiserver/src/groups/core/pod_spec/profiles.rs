//! Seccomp and AppArmor profiles: as fields, and as the annotations that were there before the fields.

use machinery::{FieldError, FieldPath, go};
use serde_json::{Value, json};

use super::{CONTAINERS, each_container, paths};
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const RUNTIME_DEFAULT: &str = "runtime/default";
const DOCKER_DEFAULT: &str = "docker/default";
const UNCONFINED: &str = "unconfined";
const LOCALHOST: &str = "localhost/";
/// The longest path of an AppArmor profile: Linux's, without the final zero.
const PATH_BYTES: usize = 4_095;
const TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// Checks the profiles of a pod's or a container's security context.
pub(super) fn fields(errors: &mut Errors, path: &FieldPath<'_>, context: &Value) {
    for (key, check) in [
        (
            "seccompProfile",
            seccomp as fn(&mut Errors, &FieldPath<'_>, &Value),
        ),
        ("appArmorProfile", app_armor),
    ] {
        let profile = context.dig(key);
        if profile.is_null() {
            continue;
        }
        let path = path.child(key);
        let at = path.child("type");
        match profile.text("type") {
            "" => errors.required(&at, &format!("type is required when {key} is set")),
            kind => drop(errors.one_of(&at, kind, TYPES)),
        }
        check(errors, &path.child("localhostProfile"), profile);
    }
}

fn seccomp(errors: &mut Errors, path: &FieldPath<'_>, profile: &Value) {
    let (kind, local) = (profile.text("type"), profile.dig("localhostProfile").as_str());
    match (kind == "Localhost", local) {
        (true, None) => errors.required(path, "must be set when seccomp type is Localhost"),
        (true, Some(file)) => paths::local_descending_path(errors, path, file),
        (false, Some(file)) => {
            let error = FieldError::invalid(
                path,
                &Value::Null,
                "can only be set when seccomp type is Localhost",
            );
            let shown = format!(
                r#"{{"Type":{},"LocalhostProfile":{}}}"#,
                Value::from(kind),
                Value::from(file)
            );
            errors.shown(error, shown);
        }
        (false, None) => {}
    }
}

fn app_armor(errors: &mut Errors, path: &FieldPath<'_>, profile: &Value) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let local = profile.dig("localhostProfile").as_str();
    match (profile.text("type"), local) {
        ("Localhost", None) => errors.required(path, NEEDED),
        ("Localhost", Some(file)) => {
            if file.trim() != file {
                errors.invalid(path, file, "must not be padded with whitespace");
            } else if file.is_empty() {
                errors.required(path, NEEDED);
            }
            if file.len() > PATH_BYTES {
                errors.too_long(path, PATH_BYTES);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            errors.invalid(path, file, "can only be set when AppArmor type is Localhost");
        }
        _ => {}
    }
}

/// Checks the annotations of a pod or template that hold profiles.
pub(crate) fn annotations(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    let annotations = || {
        pod.entries("metadata.annotations")
            .filter_map(|(key, value)| Some((key, value.as_str()?)))
    };
    for (key, value) in annotations() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let path = path.child(key);
            match value.strip_prefix(LOCALHOST) {
                Some(file) => paths::local_descending_path(errors, &path, file),
                None if matches!(value, RUNTIME_DEFAULT | DOCKER_DEFAULT | UNCONFINED) => {}
                None => errors.invalid(&path, value, "must be a valid seccomp profile"),
            }
        }
    }
    // Gathered once: there may be many of both.
    let mut names: Option<Seen<&str>> = None;
    for (key, value) in annotations() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        let path = path.key(key);
        let names = names.get_or_insert_with(|| {
            let lists = CONTAINERS.iter().flat_map(|list| pod.dig("spec").list(list));
            lists.map(|one| one.text("name")).collect()
        });
        if !names.has(container) {
            errors.invalid(&path, container, "container not found");
        }
        if !matches!(value, "" | RUNTIME_DEFAULT | UNCONFINED) && !value.starts_with(LOCALHOST) {
            let text = format!("invalid AppArmor profile name: {}", go::quote(value));
            errors.invalid(&path, value, text);
        }
    }
}

/// The AppArmor annotations of a pod stay as they are.
pub(crate) fn annotations_stay(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value, old: &Value) {
    let (new, before) = (pod.dig("metadata.annotations"), old.dig("metadata.annotations"));
    for (key, value) in old.entries("metadata.annotations") {
        if key.starts_with(APP_ARMOR) && new.get(key) != Some(value) {
            errors.forbidden(&path.key(key), "may not remove or update AppArmor annotations");
        }
    }
    for (key, _) in pod.entries("metadata.annotations") {
        if key.starts_with(APP_ARMOR) && before.get(key).is_none() {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
    }
}

/// Where a new pod or template, whose specification is at `path`, has a profile in both forms they have to agree.
pub(crate) fn forms_agree(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    let annotations = pod.dig("metadata.annotations");
    let Some(all) = annotations.as_object().filter(|all| !all.is_empty()) else {
        return;
    };
    let (spec, annotation) = (pod.dig("spec"), |key: &str| all.get(key).and_then(Value::as_str));
    let of_pod = spec.dig("securityContext");
    if let Some(value) = annotation(SECCOMP_POD) {
        let context = path.child("securityContext");
        agree(
            errors,
            &context.child("seccompProfile"),
            value,
            of_pod.dig("seccompProfile"),
            "seccomp",
        );
    }
    let mut each = |prefix: &str, key: &str, word: &str, inherited: &Value| {
        each_container(path, spec, |at, container| {
            let Some(value) = annotation(&format!("{prefix}{}", container.text("name"))) else {
                return;
            };
            let own = container.dig("securityContext").dig(key);
            let profile = if own.is_null() { inherited } else { own };
            let context = at.child("securityContext");
            agree(errors, &context.child(key), value, profile, word);
        });
    };
    each(SECCOMP_CONTAINER, "seccompProfile", "seccomp", &Value::Null);
    if spec.text("os.name") != "windows" {
        each(
            APP_ARMOR,
            "appArmorProfile",
            "apparmor",
            of_pod.dig("appArmorProfile"),
        );
    }
}

fn agree(errors: &mut Errors, path: &FieldPath<'_>, annotation: &str, profile: &Value, word: &str) {
    let same_type = match profile.text("type") {
        "Unconfined" => annotation == UNCONFINED,
        "RuntimeDefault" => {
            annotation == RUNTIME_DEFAULT || word == "seccomp" && annotation == DOCKER_DEFAULT
        }
        "Localhost" => annotation.starts_with(LOCALHOST),
        _ => return,
    };
    if !same_type {
        let text = format!("{word} type in annotation and field must match");
        errors.forbidden(&path.child("type"), text);
    } else if profile.text("type") == "Localhost"
        && profile.dig("localhostProfile").as_str() != annotation.strip_prefix(LOCALHOST)
    {
        let text = format!("{word} profile in annotation and field must match");
        errors.forbidden(&path.child("localhostProfile"), text);
    }
}

/// The profile that an AppArmor annotation means; null for none.
fn app_armor_of(annotation: &str) -> Value {
    match annotation {
        UNCONFINED => json!({"type": "Unconfined"}),
        RUNTIME_DEFAULT => json!({"type": "RuntimeDefault"}),
        _ => match annotation.strip_prefix(LOCALHOST) {
            Some(file) if !file.is_empty() => json!({"type": "Localhost", "localhostProfile": file}),
            _ => Value::Null,
        },
    }
}

/// The annotations of a new pod become fields of its containers where these have none. Gives the warnings. KEP-24.
pub(crate) fn take_annotations(pod: &mut Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotations = pod.dig("metadata.annotations");
    let has_any = annotations
        .as_object()
        .is_some_and(|all| all.keys().any(|key| key.starts_with(APP_ARMOR)));
    if !has_any || pod.text("spec.os.name") == "windows" {
        return warnings;
    }
    let (annotations, of_pod) = (
        annotations.clone(),
        pod.dig("spec.securityContext.appArmorProfile").clone(),
    );
    for list in CONTAINERS {
        for container in pod.list_mut(&format!("spec.{list}")) {
            let key = format!("{APP_ARMOR}{}", container.text("name"));
            let Some(annotation) = annotations.get(&key).and_then(Value::as_str) else {
                continue;
            };
            if container.has("securityContext.appArmorProfile") {
                continue;
            }
            let mut profile = app_armor_of(annotation);
            let faults = Errors::collect(|errors| app_armor(errors, &FieldPath::new(""), &profile));
            if !faults.is_empty() {
                profile = Value::Null;
            }
            if profile.is_null() || profile != of_pod {
                warnings.push(deprecated("metadata", &key));
            }
            if !profile.is_null() && profile != of_pod {
                container
                    .ensure("securityContext")
                    .put("appArmorProfile", profile);
            }
        }
    }
    warnings
}

/// Adds the warning about the annotation of a pod or template whose metadata is at `meta`.
pub(super) fn warnings(out: &mut Vec<String>, meta: &str, template: &Value) {
    let used = template.has("spec.securityContext.seccompProfile");
    if template.dig("metadata.annotations").get(SECCOMP_POD).is_some() && !used {
        out.push(unused(meta, SECCOMP_POD));
    }
}

/// The same of a container. The annotations of a pod about AppArmor are warned of by [`take_annotations`].
pub(super) fn container_warnings(
    out: &mut Vec<String>,
    meta: &str,
    template: &Value,
    container: &Value,
    is_pod: bool,
) {
    let Some(annotations) = template
        .object_at("metadata.annotations")
        .filter(|all| !all.is_empty())
    else {
        return;
    };
    let (name, context) = (container.text("name"), container.dig("securityContext"));
    let key = format!("{SECCOMP_CONTAINER}{name}");
    if annotations.contains_key(&key) && !context.has("seccompProfile") {
        out.push(unused(meta, &key));
    }
    let key = format!("{APP_ARMOR}{name}");
    if let Some(annotation) = annotations.get(&key).and_then(Value::as_str)
        && !is_pod
        && !context.has("appArmorProfile")
    {
        let inherited = template.dig("spec.securityContext.appArmorProfile");
        if inherited.is_null() || *inherited != app_armor_of(annotation) {
            out.push(deprecated(meta, &key));
        }
    }
}

fn unused(meta: &str, key: &str) -> String {
    format!("{meta}.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead")
}

fn deprecated(meta: &str, key: &str) -> String {
    format!("{meta}.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{check_pod, kind, pod};

    fn annotated(annotations: &Value, spec: &Value) -> Value {
        let mut pod = pod(spec);
        pod["metadata"] = json!({"annotations": annotations});
        pod
    }

    #[test]
    fn fields_are_checked() {
        check_pod(
            &json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}, "appArmorProfile": {}}}),
            &[
                r#"spec.securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"RuntimeDefault","LocalhostProfile":"x"}: can only be set when seccomp type is Localhost"#,
                "spec.securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set",
            ],
        );
        let long = "x".repeat(super::PATH_BYTES + 1);
        check_pod(
            &json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": long}}}),
            &[
                "spec.securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes",
            ],
        );
    }

    #[test]
    fn annotations_become_fields_and_are_checked() {
        let key = format!("{}c", super::APP_ARMOR);
        let pods = kind("pods");
        let made = pods.created(&annotated(&json!({&key: "localhost/x"}), &json!({})));
        let profile = json!({"type": "Localhost", "localhostProfile": "x"});
        assert_eq!(
            made["spec"]["containers"][0]["securityContext"]["appArmorProfile"],
            profile
        );
        pods.warnings(
            &annotated(&json!({&key: "localhost/x"}), &json!({})),
            &[&format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")],
        );
        pods.create(
            &annotated(&json!({&key: "x"}), &json!({})),
            &[&format!(
                r#"metadata.annotations[{key}]: Invalid value: "x": invalid AppArmor profile name: "x""#
            )],
        );
        let unconfined = json!({"containers": [{"name": "c", "image": "i", "securityContext": {
            "appArmorProfile": {"type": "Unconfined"}, "seccompProfile": {"type": "Unconfined"}}}]});
        pods.create(
            &annotated(&json!({&key: "localhost/x", format!("{}c", super::SECCOMP_CONTAINER): "runtime/default"}), &unconfined),
            &[
                "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
                "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match",
            ],
        );
        let change = json!({"metadata": {"annotations": {&key: "unconfined"}}});
        pods.update(
            &pod(&json!({})),
            &change,
            &[&format!(
                "metadata.annotations[{key}]: Forbidden: may not add AppArmor annotations"
            )],
        );
    }
}
