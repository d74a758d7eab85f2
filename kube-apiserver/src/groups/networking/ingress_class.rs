//! IngressClass.

use machinery::FieldPath;
use machinery::names::{dns1123_subdomain, domain_prefixed_path, name_is_dns_label, path_segment_name};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    default: |object| {
        if let Some(parameters) = object.ensure("spec").dig_mut("parameters") {
            parameters.fill("scope", "Cluster");
        }
    },
    validate,
    validate_update: |errors, object, old| {
        let path = FieldPath::new("spec");
        errors.immutable(&path, "controller", object.dig("spec"), old.dig("spec"));
        validate(errors, object);
    },
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    const MAX_CONTROLLER: usize = 250;
    let path = FieldPath::new("spec");
    let controller = object.text("spec.controller");
    if controller.len() > MAX_CONTROLLER {
        errors.too_long(&path.child("controller"), MAX_CONTROLLER);
    }
    for error in domain_prefixed_path(&path.child("controller"), controller) {
        errors.push(error);
    }
    let parameters = object.dig("spec.parameters");
    if parameters.is_null() {
        return;
    }
    let path = path.child("parameters");
    reference(errors, &path, parameters);
    let namespace = path.child("namespace");
    match parameters.text("scope") {
        "Namespace" if !parameters.has("namespace") => {
            errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => {
            let name = parameters.text("namespace");
            errors.text(&namespace, name, name_is_dns_label(name, false));
        }
        "Cluster" => {
            if parameters.has("namespace") {
                errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
            }
        }
        scope => errors.unsupported(&path.child("scope"), scope, &["Cluster", "Namespace"]),
    }
}

/// An object of any kind.
pub(super) fn reference(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value) {
    if reference.has("apiGroup") {
        let group = reference.text("apiGroup");
        errors.text(&path.child("apiGroup"), group, dns1123_subdomain(group));
    }
    for key in ["kind", "name"] {
        let text = reference.text(key);
        if errors.need(&path.child(key), text) {
            errors.text(&path.child(key), text, path_segment_name(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("ingressclasses.networking.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn classes_are_validated() {
        check(json!({"controller": "example.com/c"}), &[]);
        let parameters = |scope: &str, namespace: Value| json!({"controller": "example.com/c", "parameters": {"kind": "K", "name": "n", "scope": scope, "namespace": namespace}});
        check(parameters("Namespace", json!("ns")), &[]);
        check(
            parameters("Namespace", Value::Null),
            &["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        );
        check(
            parameters("Cluster", json!("ns")),
            &["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
        );
        check(
            parameters("World", Value::Null),
            &[
                r#"spec.parameters.scope: Unsupported value: "World": supported values: "Cluster", "Namespace""#,
            ],
        );
    }

    #[test]
    fn a_controller_stays() {
        kind("ingressclasses.networking.k8s.io").update(
            &json!({"spec": {"controller": "example.com/c"}}),
            &json!({"spec": {"controller": "example.com/d"}}),
            &[r#"spec.controller: Invalid value: "example.com/d": field is immutable"#],
        );
    }
}
