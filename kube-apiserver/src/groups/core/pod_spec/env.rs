//! Environment variables of containers, and the references to fields and resources that volumes share with them.

use machinery::names::{config_map_key, dns1123_label, dns1123_subdomain, env_var_name, qualified_name};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::paths::no_backsteps;
use crate::errors::Errors;
use crate::json::Json;
use crate::quantity::amount;
use crate::unique::first_by;

/// The names of environment variables alone.
fn validate_env_names(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    if errors.need(path, name) {
        errors.text(path, name, env_var_name(name));
    }
}

pub(super) fn env(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    for (index, variable) in list.iter().enumerate() {
        let path = path.index(index);
        validate_env_names(errors, &path.child("name"), variable.text("name"));
        if variable.has("valueFrom") {
            value_from(errors, &path.child("valueFrom"), variable);
        }
    }
}

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields that volumes of the downward API may show.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn value_from(errors: &mut Errors, path: &FieldPath<'_>, variable: &Value) {
    let source = variable.dig("valueFrom");
    let mut count = 0;
    if source.has("fieldRef") {
        count += 1;
        field_ref(
            errors,
            &path.child("fieldRef"),
            source.dig("fieldRef"),
            ENV_FIELDS,
        );
    }
    if source.has("resourceFieldRef") {
        count += 1;
        resource_ref(
            errors,
            &path.child("resourceFieldRef"),
            source.dig("resourceFieldRef"),
            false,
        );
    }
    for key in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(key) {
            count += 1;
            let path = path.child(key);
            let name = source.dig(key).text("name");
            errors.text(&path.child("name"), name, dns1123_subdomain(name));
            let item = source.dig(key).text("key");
            if errors.need(&path.child("key"), item) {
                errors.text(&path.child("key"), item, config_map_key(item));
            }
        }
    }
    if source.has("fileKeyRef") {
        count += 1;
        let path = path.child("fileKeyRef");
        let reference = source.dig("fileKeyRef");
        validate_env_names(errors, &path.child("key"), reference.text("key"));
        let volume = reference.text("volumeName");
        if errors.need(&path.child("volumeName"), volume) {
            errors.text(&path.child("volumeName"), volume, dns1123_label(volume));
        }
        let file = reference.text("path");
        if errors.need(&path.child("path"), file) {
            no_backsteps(errors, &path.child("path"), file);
        }
    }
    if count == 0 {
        errors.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if !variable.text("value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

/// Fields of a pod that upstream's conversion knows, whether or not they may be used.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn field_ref(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value, allowed: &[&str]) {
    if !errors.need(&path.child("apiVersion"), reference.text("apiVersion")) {
        return;
    }
    let field = reference.text("fieldPath");
    let at = path.child("fieldPath");
    if !errors.need(&at, field) {
        return;
    }
    let subscripted = field.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    if let Some((parent, subscript)) = subscripted {
        match parent {
            "metadata.annotations" => {
                let key = subscript.to_lowercase();
                errors.text(path, &key, qualified_name(&key));
            }
            "metadata.labels" => errors.text(path, subscript, qualified_name(subscript)),
            _ => errors.invalid(
                &at,
                field,
                format!("error converting fieldPath: field label does not support subscript: {field}"),
            ),
        }
        return;
    }
    if reference.text("apiVersion") != "v1" {
        errors.invalid(
            &at,
            field,
            format!(
                "error converting fieldPath: unsupported pod version: {}",
                reference.text("apiVersion")
            ),
        );
    } else if !KNOWN_FIELDS.contains(&field) {
        errors.invalid(
            &at,
            field,
            format!("error converting fieldPath: field label not supported: {field}"),
        );
    } else {
        errors.one_of(&at, field, allowed);
    }
}

pub(super) fn resource_ref(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value, volume: bool) {
    let resource = reference.text("resource");
    let huge = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if volume && reference.text("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !huge {
        errors.one_of(&path.child("resource"), resource, RESOURCE_FIELDS);
    }
    let Some(divisor) = amount(reference.dig("divisor")).filter(|d| !d.is_zero()) else {
        return;
    };
    let sizes = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let (good, kind): (&[&str], &str) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&sizes, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => (&sizes, "local ephemeral storage"),
        _ if huge => (&sizes, "hugepages"),
        _ => return,
    };
    if !good.contains(&divisor.to_string().as_str()) {
        let list = match kind {
            "cpu" => "1m and 1".to_string(),
            _ => good.join(", "),
        };
        errors.invalid(
            &path.child("divisor"),
            resource,
            format!("only divisor's values {list} are supported with the {kind} resource"),
        );
    }
}

pub(super) fn env_from(errors: &mut Errors, path: &FieldPath<'_>, list: &[Value]) {
    for (index, source) in list.iter().enumerate() {
        let at = path.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            errors.text(&at.child("prefix"), prefix, env_var_name(prefix));
        }
        let mut count = 0;
        for key in ["configMapRef", "secretRef"] {
            if source.has(key) {
                count += 1;
                let path = at.child(key);
                let path = path.child("name");
                let name = source.dig(key).text("name");
                if errors.need(&path, name) {
                    // Upstream judges it as a prefix here.
                    let stem = name.trim_end_matches('-');
                    errors.text(&path, name, dns1123_subdomain(stem));
                }
            }
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}

/// The volumes that variables are read from: each is there, and is an `emptyDir`.
pub(super) fn file_volumes(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let mut volumes = None;
    for key in ["initContainers", "containers", "ephemeralContainers"] {
        let at = path.child(key);
        for (index, container) in spec.list(key).iter().enumerate() {
            let at = at.index(index);
            for (index, variable) in container.list("env").iter().enumerate() {
                let reference = variable.dig("valueFrom.fileKeyRef");
                if reference.is_null() {
                    continue;
                }
                let volumes = volumes.get_or_insert_with(|| first_by(spec.list("volumes"), "name"));
                let name = reference.text("volumeName");
                let env = at.child("env");
                let variable = env.index(index);
                let source = variable.child("valueFrom");
                let reference = source.child("fileKeyRef");
                let at = reference.child("volumeName");
                match volumes.get(name) {
                    None => errors.push(FieldError::not_found(&at, &name.into())),
                    Some(volume) if !volume.has("emptyDir") => {
                        errors.invalid(&at, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_container as check;

    fn from(source: Value) -> Value {
        json!({"env": [{"name": "A", "valueFrom": source}]})
    }

    #[test]
    fn names_of_variables() {
        check(&json!({"env": [{"name": "a.b-c_D"}, {"name": "1x"}]}), &[]);
        check(
            &json!({"env": [{"value": "x"}]}),
            &["spec.containers[0].env[0].name: Required value"],
        );
    }

    #[test]
    fn one_source_of_a_value() {
        let reference = json!({"name": "m", "key": "k"});
        check(&from(json!({"configMapKeyRef": reference})), &[]);
        check(
            &from(json!({})),
            &[
                r#"spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#,
            ],
        );
        check(
            &from(json!({"configMapKeyRef": reference, "secretKeyRef": reference})),
            &[
                r#"spec.containers[0].env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time"#,
            ],
        );
        check(
            &json!({"env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": reference}}]}),
            &[
                r#"spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#,
            ],
        );
    }

    #[test]
    fn fields_and_resources() {
        let field = |path: &str| from(json!({"fieldRef": {"fieldPath": path}}));
        check(&field("metadata.name"), &[]);
        check(&field("metadata.annotations['a.b/c']"), &[]);
        check(
            &field("metadata.labels"),
            &[
                r#"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs""#,
            ],
        );
        check(
            &field("spec.x['y']"),
            &[
                r#"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x['y']": error converting fieldPath: field label does not support subscript: spec.x['y']"#,
            ],
        );
        let resource =
            |divisor: &str| from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": divisor}}));
        check(&resource("1m"), &[]);
        check(
            &resource("1Mi"),
            &[
                r#"spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            ],
        );
    }

    #[test]
    fn whole_maps() {
        check(
            &json!({"envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}]}),
            &[],
        );
        check(
            &json!({"envFrom": [{}]}),
            &[
                r#"spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`"#,
            ],
        );
        check(
            &json!({"envFrom": [{"configMapRef": {"name": ""}}]}),
            &["spec.containers[0].envFrom[0].configMapRef.name: Required value"],
        );
    }

    #[test]
    fn variables_from_files_need_their_volume() {
        let container = json!({"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]});
        let at = "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName";
        let found = |volumes: Value, expected: &[&str]| {
            let spec = json!({"containers": [container], "volumes": volumes});
            let path = machinery::FieldPath::new("spec");
            crate::groups::check::check_errors(|errors| super::file_volumes(errors, &path, &spec), expected);
        };
        found(json!([{"name": "v", "emptyDir": {}}]), &[]);
        found(json!([]), &[&format!(r#"{at}: Not found: "v""#)]);
        found(
            json!([{"name": "v", "configMap": {"name": "m"}}]),
            &[&format!(
                r#"{at}: Invalid value: "v": referenced volume must be of type emptyDir"#
            )],
        );
    }
}
