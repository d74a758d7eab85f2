//! Probes and lifecycle hooks of containers.

use machinery::FieldPath;
use machinery::names::{http_header_name, port_name, port_number};
use serde_json::Value;

use super::containers::Pod;
use crate::faults::Faults;
use crate::json::Json;

pub(super) fn lifecycle(faults: &mut Faults, path: &FieldPath<'_>, value: &Value, pod: &Pod<'_>) {
    for key in ["postStart", "preStop"] {
        if value.has(key) {
            handler(
                faults,
                &path.child(key),
                value.dig(key),
                &["exec", "httpGet", "tcpSocket", "sleep"],
                pod,
            );
        }
    }
    if value.has("stopSignal") && pod.spec.text("os.name").is_empty() {
        faults.forbidden(
            &path.child("stopSignal"),
            "may not be set for containers with empty `spec.os.name`",
        );
    }
}

pub(super) fn probes(faults: &mut Faults, path: &FieldPath<'_>, container: &Value, pod: &Pod<'_>) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.dig(key);
        if probe.is_null() {
            continue;
        }
        let path = path.child(key);
        handler(
            faults,
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
            faults.non_negative(&path.child(key), probe.int(key));
        }
        let grace = probe.int("terminationGracePeriodSeconds");
        if let Some(seconds) = grace.filter(|s| *s <= 0) {
            faults.invalid(
                &path.child("terminationGracePeriodSeconds"),
                seconds,
                "must be greater than 0",
            );
        }
        if key == "readinessProbe" {
            if let Some(seconds) = grace {
                faults.invalid(
                    &path.child("terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.int("successThreshold") != Some(1) {
            faults.invalid(
                &path.child("successThreshold"),
                probe.int("successThreshold").unwrap_or_default(),
                "must be 1",
            );
        }
    }
}

fn handler(faults: &mut Faults, path: &FieldPath<'_>, value: &Value, kinds: &[&str], pod: &Pod<'_>) {
    let mut found = false;
    for kind in kinds {
        let action = value.dig(kind);
        if action.is_null() {
            continue;
        }
        let path = path.child(kind);
        if found {
            faults.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if action.list("command").is_empty() => faults.required(&path.child("command"), ""),
            "exec" => {}
            "httpGet" => {
                faults.need(&path.child("path"), action.text("path"));
                port_number_or_name(faults, &path.child("port"), action.dig("port"));
                faults.one_of(&path.child("scheme"), action.text("scheme"), &["HTTP", "HTTPS"]);
                for header in action.list("httpHeaders") {
                    let name = header.text("name");
                    faults.text(&path.child("httpHeaders"), name, http_header_name(name));
                }
            }
            "sleep" => {
                let seconds = action.int("seconds").unwrap_or_default();
                if let Some(grace) = pod.grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    faults.invalid(
                        &path,
                        seconds,
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})"),
                    );
                }
            }
            _ => port_number_or_name(faults, &path.child("port"), action.dig("port")),
        }
    }
    if !found {
        faults.required(path, "must specify a handler type");
    }
}

/// A port by number or by name.
fn port_number_or_name(faults: &mut Faults, path: &FieldPath<'_>, port: &Value) {
    match port {
        Value::String(name) => faults.text(path, name, port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for text in port_number(number) {
                faults.invalid(path, number, text);
            }
        }
    }
}
