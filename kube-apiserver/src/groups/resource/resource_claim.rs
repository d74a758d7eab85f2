//! ResourceClaim.

use machinery::FieldPath;
use machinery::names::dns1123_subdomain;
use serde_json::Value;

use super::device::{configuration, fits, full_attribute_name, request_name, selectors, toleration, unique};
use super::requests::{CONFIGURATIONS, Requests};
use super::selectors::{ALTERNATIVES, REQUESTS};
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    returns_deleted: true,
    default: |object| default_spec(object.ensure("spec")),
    expression_faults: Some(super::selectors::of_claim),
    validate: |errors, object| validate_spec(errors, &FieldPath::new("spec"), object.dig("spec")),
    validate_update: |errors, object, old| errors.immutable_at("spec", object, old),
    validate_status: super::claim_status::validate,
    ..Rules::PLAIN
};

/// The most constraints.
const CONSTRAINTS: usize = 32;

/// The requests, constraints and configurations of a claim or of a template of one.
pub(super) fn validate_spec(errors: &mut Errors, path: &FieldPath<'_>, spec: &Value) {
    let path = path.child("devices");
    let known = Requests::of(spec);
    let requests = spec.list("devices.requests");
    let at = path.child("requests");
    if fits(errors, &at, requests.len(), REQUESTS) {
        for (index, request) in requests.iter().enumerate() {
            validate_request(errors, &at.index(index), request);
        }
        unique(errors, &at, requests.iter().map(|request| request.text("name")));
    }
    let constraints = spec.list("devices.constraints");
    let at = path.child("constraints");
    if fits(errors, &at, constraints.len(), CONSTRAINTS) {
        for (index, constraint) in constraints.iter().enumerate() {
            let at = at.index(index);
            known.check_all(errors, &at, constraint);
            validate_constraint(errors, &at, constraint);
        }
    }
    let configurations = spec.list("devices.config");
    let at = path.child("config");
    if fits(errors, &at, configurations.len(), CONFIGURATIONS) {
        for (index, item) in configurations.iter().enumerate() {
            let at = at.index(index);
            known.check_all(errors, &at, item);
            configuration(errors, &at, item, false);
        }
    }
}

fn validate_constraint(errors: &mut Errors, path: &FieldPath<'_>, constraint: &Value) {
    for key in ["matchAttribute", "distinctAttribute"] {
        if let Some(name) = constraint.dig(key).as_str() {
            return full_attribute_name(errors, &path.child(key), name);
        }
    }
    let text =
        r#"exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#;
    errors.required(path, text);
}

fn validate_request(errors: &mut Errors, path: &FieldPath<'_>, request: &Value) {
    request_name(errors, &path.child("name"), request.text("name"));
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
            let at = path.child("firstAvailable");
            if !fits(errors, &at, alternatives.len(), ALTERNATIVES) {
                return;
            }
            for (index, alternative) in alternatives.iter().enumerate() {
                let at = at.index(index);
                request_name(errors, &at.child("name"), alternative.text("name"));
                validate_exactly(errors, &at, alternative);
            }
            unique(errors, &at, alternatives.iter().map(|item| item.text("name")));
        }
    }
}

fn validate_exactly(errors: &mut Errors, path: &FieldPath<'_>, request: &Value) {
    let class = request.text("deviceClassName");
    let at = path.child("deviceClassName");
    if errors.need(&at, class) {
        errors.text(&at, class, dns1123_subdomain(class));
    }
    selectors(errors, &path.child("selectors"), request.list("selectors"));
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
    let at = path.child("tolerations");
    for (index, item) in request.list("tolerations").iter().enumerate() {
        toleration(errors, &at.index(index), item);
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
    for toleration in request.list_mut("tolerations") {
        toleration.fill_text("operator", "Equal");
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
        check(
            json!([{"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "1"}}], "tolerations": [{"operator": "Odd"}]}}]),
            &[
                r#"spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int"#,
                r#"spec.devices.requests[0].exactly.tolerations[0].operator: Unsupported value: "Odd": supported values: "Equal", "Exists""#,
            ],
        );
        kind("resourceclaims.resource.k8s.io").defaults(
            &json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}}),
            &json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}]}}}),
        );
    }

    #[test]
    fn constraints_name_requests_and_attributes() {
        let check = |devices: Value, expected: &[&str]| {
            let request = json!({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]});
            let mut object = json!({"spec": {"devices": {"requests": [request]}}});
            for (key, value) in devices.as_object().into_iter().flatten() {
                object["spec"]["devices"][key] = value.clone();
            }
            kind("resourceclaims.resource.k8s.io").create(&object, expected);
        };
        check(
            json!({"constraints": [{"requests": ["r", "r/a"], "matchAttribute": "e.com/x"}]}),
            &[],
        );
        check(
            json!({"constraints": [{"requests": ["r/b", "r/a/c"], "distinctAttribute": "x"}, {"requests": ["r", "r"]}]}),
            &[
                r#"spec.devices.constraints[0].requests[0]: Invalid value: "r/b": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                r#"spec.devices.constraints[0].requests[1]: Invalid value: "r/a/c": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                r#"spec.devices.constraints[0].distinctAttribute: Invalid value: "x": a fully qualified name must be a domain and a name separated by a slash"#,
                r#"spec.devices.constraints[1].requests[1]: Duplicate value: "r""#,
                r#"spec.devices.constraints[1]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#,
            ],
        );
        check(
            json!({"config": [{}, {"opaque": {"driver": "d", "parameters": 1}}]}),
            &[
                "spec.devices.config[0].opaque: Required value",
                r#"spec.devices.config[1].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object"#,
            ],
        );
    }
}
