//! ResourceClaim.

use machinery::FieldPath;
use machinery::names::{dns1123_label, dns1123_subdomain};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    returns_deleted: true,
    default: |object| default_spec(object.ensure("spec")),
    validate: |errors, object| validate_spec(errors, &FieldPath::new("spec"), object.dig("spec")),
    validate_update: |errors, object, old| errors.immutable_at("spec", object, old),
    ..Rules::PLAIN
};

/// The requests, constraints and configurations of a claim or of a template of one.
pub(super) fn validate_spec(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let path = path.child("devices");
    let requests = spec.list("devices.requests");
    let (mut seen, mut alternatives) = (Seen::default(), Seen::default());
    for (index, request) in requests.iter().enumerate() {
        let at = path.child("requests");
        let at = at.index(index);
        let name = request.text("name");
        errors.text(&at.child("name"), name, dns1123_label(name));
        validate_request(errors, &at, request);
        if seen.again(name) {
            errors.duplicate(&at, name);
        }
        let of_request = request.list("firstAvailable").iter();
        alternatives.extend(of_request.map(|alternative| (name, alternative.text("name"))));
    }
    for key in ["constraints", "config"] {
        let at = path.child(key);
        for (index, item) in spec.dig("devices").list(key).iter().enumerate() {
            let at = at.index(index);
            for (index, name) in item.strings("requests").enumerate() {
                // `request`, or `request/alternative`.
                let known = match name.split_once('/') {
                    Some(pair) => alternatives.has(&pair),
                    None => seen.has(name),
                };
                if !known {
                    errors.invalid(
                        &at.child("requests").index(index),
                        name,
                        "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
                    );
                }
            }
            let bare = !item.has("matchAttribute") && !item.has("distinctAttribute");
            if key == "constraints" && bare {
                errors.required(
                    &at,
                    "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
                );
            }
            if key == "config" && !item.has("opaque") {
                errors.required(&at.child("opaque"), "");
            }
        }
    }
}

fn validate_request(errors: &mut Errors, path: &FieldPath<'_>, request: &Value) {
    let (exactly, alternatives) = (request.dig("exactly"), request.list("firstAvailable"));
    match (exactly.is_null(), alternatives.is_empty()) {
        (true, true) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (false, false) => errors.invalid(
            path,
            Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (false, true) => validate_exactly(errors, &path.child("exactly"), exactly),
        (true, false) => {
            let mut seen = Seen::default();
            for (index, alternative) in alternatives.iter().enumerate() {
                let at = path.child("firstAvailable");
                let at = at.index(index);
                let name = alternative.text("name");
                errors.text(&at.child("name"), name, dns1123_label(name));
                validate_exactly(errors, &at, alternative);
                if seen.again(name) {
                    errors.duplicate(&at, name);
                }
            }
        }
    }
}

fn validate_exactly(errors: &mut Errors, path: &FieldPath<'_>, request: &Value) {
    let class = request.text("deviceClassName");
    let at = path.child("deviceClassName");
    if errors.need(&at, class) {
        errors.text(&at, class, dns1123_subdomain(class));
    }
    let (mode, count) = (
        request.text("allocationMode"),
        request.int("count").unwrap_or_default(),
    );
    let at = path.child("count");
    match mode {
        "All" if count != 0 => errors.invalid(
            &at,
            count,
            format!("must not be specified when allocationMode is '{mode}'"),
        ),
        "ExactCount" if count <= 0 => errors.invalid(&at, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        _ => errors.unsupported(&path.child("allocationMode"), mode, &["All", "ExactCount"]),
    }
}

/// The requests of a claim or of a template of one.
pub(super) fn default_spec(spec: &mut Value) {
    for request in spec.list_mut("devices.requests") {
        if let Some(exactly) = request.dig_mut("exactly") {
            count(exactly);
        }
        for alternative in request.list_mut("firstAvailable") {
            count(alternative);
        }
    }
}

fn count(request: &mut Value) {
    request.fill_text("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.fill_int("count", 1);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(requests: Value, expected: &[&str]) {
        let object = json!({"spec": {"devices": {"requests": requests}}});
        kind("resourceclaims.resource.k8s.io").create(&object, expected);
    }

    #[test]
    fn requests_are_validated() {
        check(json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]), &[]);
        check(
            json!([{"name": "r"}]),
            &[
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ],
        );
        check(
            json!([{"name": "r", "exactly": {"deviceClassName": "", "allocationMode": "All", "count": 1}}]),
            &[
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
                "spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'",
            ],
        );
        kind("resourceclaims.resource.k8s.io").defaults(
            &json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}),
            &json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]}}}),
        );
    }
}
