//! Ingress.

use std::net::IpAddr;

use machinery::names::{
    dns1123_subdomain, name_is_dns_label, path_segment_name, port_name, port_number,
    wildcard_dns1123_subdomain,
};
use machinery::{FieldPath, meta};
use serde_json::Value;

use crate::errors::{Errors, Ratchet};
use crate::groups::core::load_balancer::{self, load_balancer_status};
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    status: true,
    generation: &["spec"],
    default: |object| {
        object.ensure("status").ensure("loadBalancer");
    },
    validate: |errors, object| {
        validate(errors, object);
        let class = object.dig("spec.ingressClassName");
        if let (Some(note), Some(class)) = (annotation(object), class.as_str())
            && note != class
        {
            let path = FieldPath::new("annotations");
            errors.invalid(
                &path.child("kubernetes.io/ingress.class"),
                note,
                "must match `ingressClassName` when both are specified",
            );
        }
    },
    validate_update: |errors, object, _| validate(errors, object),
    validate_status: |errors, object, old| load_balancer_status(errors, object, old),
    warnings: |object, old| {
        match annotation(object) {
        Some(_) if old.is_null() && !object.has("spec.ingressClassName") => vec![
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
                .into(),
        ],
        _ => Vec::new(),
    }
    },
    status_warnings: |object| load_balancer::warnings(object.dig("status")),
    ..Rules::PLAIN
};

fn annotation(object: &Value) -> Option<&str> {
    meta::annotations(object)?
        .get("kubernetes.io/ingress.class")?
        .as_str()
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let rules = spec.list("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        errors.invalid(
            &path,
            Value::Null,
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if spec.has("defaultBackend") {
        backend(errors, &path.child("defaultBackend"), spec.dig("defaultBackend"));
    }
    let at = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        let path = at.index(index);
        let host = rule.text("host");
        if !host.is_empty() {
            let at = path.child("host");
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(&at, host, "must be a DNS name, not an IP address");
            } else if host.contains('*') {
                errors.text(&at, host, wildcard_dns1123_subdomain(host));
            } else {
                errors.text(&at, host, dns1123_subdomain(host));
            }
        }
        if rule.has("http") {
            let check = |errors: &mut Errors| paths(errors, &path.child("http"), rule.dig("http"));
            match host.contains('*') {
                true => errors.ratcheted(Ratchet::WildcardRule, check),
                false => check(errors),
            }
        }
    }
    let at = path.child("tls");
    for (index, tls) in spec.list("tls").iter().enumerate() {
        let path = at.index(index);
        let at = path.child("hosts");
        for (index, host) in tls.strings("hosts").enumerate() {
            let texts = match host.contains('*') {
                true => wildcard_dns1123_subdomain(host),
                false => dns1123_subdomain(host),
            };
            errors.text(&at.index(index), host, texts);
        }
        let secret = tls.text("secretName");
        if !secret.is_empty() {
            errors.ratcheted(Ratchet::SecretName, |errors| {
                errors.text(&path.child("secretName"), secret, dns1123_subdomain(secret));
            });
        }
    }
    if let Some(class) = spec.dig("ingressClassName").as_str() {
        errors.text(&path.child("ingressClassName"), class, dns1123_subdomain(class));
    }
}

fn paths(errors: &mut Errors, path: &FieldPath<'_>, http: &Value) {
    let at = path.child("paths");
    if http.list("paths").is_empty() {
        errors.required(&at, "");
    }
    for (index, item) in http.list("paths").iter().enumerate() {
        let path = at.index(index);
        let (at, text) = (path.child("path"), item.text("path"));
        match item.dig("pathType").as_str() {
            None => errors.required(&path.child("pathType"), "pathType must be specified"),
            Some("Exact" | "Prefix") => {
                if !text.starts_with('/') {
                    errors.invalid(&at, text, "must be an absolute path");
                }
                for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                    if text.contains(bad) {
                        errors.invalid(&at, text, format!("must not contain '{bad}'"));
                    }
                }
                for bad in ["/..", "/."] {
                    if text.ends_with(bad) {
                        errors.invalid(&at, text, format!("cannot end with '{bad}'"));
                    }
                }
            }
            Some("ImplementationSpecific") => {
                if !text.is_empty() && !text.starts_with('/') {
                    errors.invalid(&at, text, "must be an absolute path");
                }
            }
            Some(kind) => errors.unsupported(
                &path.child("pathType"),
                kind,
                &["Exact", "ImplementationSpecific", "Prefix"],
            ),
        }
        backend(errors, &path.child("backend"), item.dig("backend"));
    }
}

fn backend(errors: &mut Errors, path: &FieldPath<'_>, backend: &Value) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
        (true, false) => {
            let (at, resource) = (path.child("resource"), backend.dig("resource"));
            if let Some(group) = resource.dig("apiGroup").as_str() {
                errors.text(&at.child("apiGroup"), group, dns1123_subdomain(group));
            }
            for key in ["kind", "name"] {
                let text = resource.text(key);
                if errors.need(&at.child(key), text) {
                    errors.text(&at.child(key), text, path_segment_name(text));
                }
            }
        }
        (false, true) => {
            let (at, service) = (path.child("service"), backend.dig("service"));
            let name = service.text("name");
            if errors.need(&at.child("name"), name) {
                errors.text(&at.child("name"), name, name_is_dns_label(name, false));
            }
            let (label, number) = (
                service.text("port.name"),
                service.int("port.number").unwrap_or_default(),
            );
            let port = at.child("port");
            match (label.is_empty(), number) {
                (true, 0) => errors.required(path, "port name or number is required"),
                (false, 0) => errors.text(&port.child("name"), label, port_name(label)),
                (true, number) => {
                    for text in port_number(number) {
                        errors.invalid(&port.child("number"), number, text);
                    }
                }
                (false, _) => errors.invalid(path, "", "cannot set both port name & port number"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("ingresses.networking.k8s.io").create(&json!({"spec": spec}), expected);
    }

    fn path(path: Value) -> Value {
        json!({"rules": [{"http": {"paths": [path]}}]})
    }

    #[test]
    fn ingresses_are_validated() {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        check(json!({"defaultBackend": backend}), &[]);
        check(
            json!({}),
            &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        );
        check(
            json!({"rules": [{"host": "10.0.0.1"}], "ingressClassName": "x"}),
            &[r#"spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address"#],
        );
        check(
            path(json!({"path": "a", "pathType": "Prefix", "backend": backend})),
            &[r#"spec.rules[0].http.paths[0].path: Invalid value: "a": must be an absolute path"#],
        );
        check(
            path(json!({"path": "/a//b/..", "pathType": "Exact", "backend": backend})),
            &[
                r#"spec.rules[0].http.paths[0].path: Invalid value: "/a//b/..": must not contain '//'"#,
                r#"spec.rules[0].http.paths[0].path: Invalid value: "/a//b/..": cannot end with '/..'"#,
            ],
        );
        check(
            path(json!({"path": "/", "backend": backend})),
            &["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"],
        );
        check(
            json!({"defaultBackend": {"service": {"name": "s", "port": {}}}}),
            &["spec.defaultBackend: Required value: port name or number is required"],
        );
    }

    #[test]
    fn the_class_is_said_once() {
        kind("ingresses.networking.k8s.io").create(
            &json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}},
                "spec": {"ingressClassName": "b", "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
            &[r#"annotations.kubernetes.io/ingress.class: Invalid value: "a": must match `ingressClassName` when both are specified"#],
        );
    }
}
