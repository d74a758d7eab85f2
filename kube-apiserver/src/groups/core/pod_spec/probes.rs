//! Probes and lifecycle hooks of containers.

use machinery::FieldPath;
use machinery::names::{http_header_name, port_name, port_number};
use serde_json::Value;

use super::pod_context::Pod;
use crate::errors::Errors;
use crate::json::Json;

pub(super) fn lifecycle(errors: &mut Errors, path: &FieldPath<'_>, value: &Value, pod: &Pod<'_>) {
    for key in ["postStart", "preStop"] {
        if value.has(key) {
            handler(
                errors,
                &path.child(key),
                value.dig(key),
                &["exec", "httpGet", "tcpSocket", "sleep"],
                pod,
            );
        }
    }
    if value.has("stopSignal") && pod.spec.text("os.name").is_empty() {
        errors.forbidden(
            &path.child("stopSignal"),
            "may not be set for containers with empty `spec.os.name`",
        );
    }
}

pub(super) fn probes(errors: &mut Errors, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.dig(key);
        if probe.is_null() {
            continue;
        }
        let path = path.child(key);
        handler(
            errors,
            &path,
            probe,
            &["exec", "httpGet", "tcpSocket", "grpc"],
            pod,
        );
        for key in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            errors.non_negative(&path.child(key), probe.int(key));
        }
        let grace = probe.int("terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|s| *s <= 0) {
            errors.invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if key == "readinessProbe" {
            if let Some(seconds) = grace {
                errors.invalid(
                    &path.child("terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.int("successThreshold") != Some(1) {
            errors.invalid(
                &path.child("successThreshold"),
                probe.int("successThreshold").unwrap_or_default(),
                "must be 1",
            );
        }
    }
}

fn handler(errors: &mut Errors, path: &FieldPath<'_>, value: &Value, kinds: &[&str], pod: &Pod<'_>) {
    let mut found = false;
    for kind in kinds {
        let action = value.dig(kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        if found {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if action.list("command").is_empty() => errors.required(&path.child("command"), ""),
            "exec" => {}
            "httpGet" => {
                errors.need(&path.child("path"), action.text("path"));
                port_number_or_name(errors, &path.child("port"), action.dig("port"));
                errors.one_of(&path.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
                for header in action.list("httpHeaders") {
                    let name = header.text("name");
                    errors.text(&path.child("httpHeaders"), name, http_header_name(name));
                }
            }
            "sleep" => {
                let seconds = action.int("seconds").unwrap_or_default();
                if let Some(grace) = pod.grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    errors.invalid(
                        &path,
                        seconds,
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
                    );
                }
            }
            _ => port_number_or_name(errors, &path.child("port"), action.dig("port")),
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

/// A port by number or by name.
fn port_number_or_name(errors: &mut Errors, path: &FieldPath<'_>, port: &Value) {
    match port {
        Value::String(name) => errors.text(path, name, port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for text in port_number(number) {
                errors.invalid(path, number, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::check_container as check;

    #[test]
    fn handlers() {
        let probe = |probe: Value| json!({"livenessProbe": probe});
        check(&probe(json!({"tcpSocket": {"port": "web"}})), &[]);
        check(&probe(json!({"grpc": {"port": 80}})), &[]);
        check(
            &probe(json!({"periodSeconds": 5})),
            &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        );
        check(
            &probe(json!({"httpGet": {"port": 0, "scheme": "FTP"}})),
            &[
                "spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS""#,
            ],
        );
        check(
            &probe(json!({"tcpSocket": {"port": 65_536}})),
            &[
                "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 65536: must be between 1 and 65535, inclusive",
            ],
        );
    }

    #[test]
    fn thresholds_and_times() {
        let probe =
            |key: &str, field: &str, value: i64| json!({key: {"tcpSocket": {"port": 80}, field: value}});
        check(&probe("readinessProbe", "successThreshold", 2), &[]);
        check(
            &probe("livenessProbe", "successThreshold", 2),
            &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
        );
        check(
            &probe("startupProbe", "initialDelaySeconds", -1),
            &[
                "spec.containers[0].startupProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        );
        check(&probe("livenessProbe", "terminationGracePeriodSeconds", 1), &[]);
        check(
            &probe("livenessProbe", "terminationGracePeriodSeconds", 0),
            &[
                "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            ],
        );
        check(
            &probe("readinessProbe", "terminationGracePeriodSeconds", 1),
            &[
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for readinessProbes",
            ],
        );
    }

    #[test]
    fn hooks() {
        let stop = |hook: Value| json!({"lifecycle": {"preStop": hook}});
        check(&stop(json!({"sleep": {"seconds": 30}})), &[]);
        check(
            &stop(json!({"sleep": {"seconds": 31}})),
            &[
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        );
        // The feature is off: the field is dropped before anything looks at it.
        check(&json!({"lifecycle": {"stopSignal": "SIGTERM"}}), &[]);
    }
}
