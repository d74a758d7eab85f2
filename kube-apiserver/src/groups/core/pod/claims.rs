//! What the status of a pod says of its claims to devices.

use machinery::FieldPath;
use machinery::names::{dns1123_label, dns1123_subdomain};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::unique::{Seen, first_by, texts};

/// Checks the claims in `status`, at `path`.
pub(super) fn claims(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    named_claims(errors, &path.child("resourceClaimStatuses"), pod);
    if pod.has("status.extendedResourceClaimStatus") {
        extended_claim(errors, &path.child("extendedResourceClaimStatus"), pod);
    }
}

fn named_claims(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    let list = pod.list("status.resourceClaimStatuses");
    if list.is_empty() {
        return;
    }
    let known = texts(pod.list("spec.resourceClaims"), "name");
    let mut seen = Seen::default();
    for (index, claim) in list.iter().enumerate() {
        let at = path.index(index);
        let name = claim.text("name");
        if !known.has(name) {
            let text = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&at.child("name"), name, text);
        }
        if seen.again(name) {
            errors.duplicate(&at.child("name"), name);
        }
        if let Some(claim) = claim.dig("resourceClaimName").as_str() {
            errors.text(&at.child("resourceClaimName"), claim, dns1123_subdomain(claim));
        }
    }
}

/// The claim that the scheduler made for extended resources.
fn extended_claim(errors: &mut Errors, path: &FieldPath<'_>, pod: &Value) {
    let status = pod.dig("status.extendedResourceClaimStatus");
    let at = path.child("requestMappings");
    let mappings = status.list("requestMappings");
    if mappings.is_empty() {
        errors.required(&at, "at least one request mapping is required");
    }
    let init = first_by(pod.list("spec.initContainers"), "name");
    let main = first_by(pod.list("spec.containers"), "name");
    let mut seen = Seen::default();
    for (index, mapping) in mappings.iter().enumerate() {
        let at = at.index(index);
        let keys = ["containerName", "resourceName", "requestName"];
        let [container, resource, request] = keys.map(|key| mapping.text(key));
        match main.get(container).or_else(|| init.get(container)) {
            None => errors.invalid(
                &at.child("containerName"),
                container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            Some(found) if found.dig("resources.requests").get(resource).is_none() => errors.invalid(
                &at.child("resourceName"),
                resource,
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
            ),
            Some(_) => {}
        }
        // Upstream's path is not that of the item.
        errors.text(&path.child("requestName"), request, dns1123_label(request));
        if seen.again([container, resource, request]) {
            for key in keys {
                errors.duplicate(&at.child(key), mapping.text(key));
            }
        }
    }
    let name = status.text("resourceClaimName");
    if errors.need(&path.child("resourceClaimName"), name) {
        errors.text(&path.child("resourceClaimName"), name, dns1123_subdomain(name));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(status: Value, expected: &[&str]) {
        let containers = json!([{"name": "c", "resources": {"requests": {"e.com/x": "1"}}}]);
        let pod =
            json!({"spec": {"containers": containers, "resourceClaims": [{"name": "r"}]}, "status": status});
        check_errors(|errors| claims(errors, &FieldPath::new("status"), &pod), expected);
    }

    #[test]
    fn claims_are_those_of_the_specification() {
        check(json!({}), &[]);
        check(
            json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "a"}]}),
            &[],
        );
        check(
            json!({"resourceClaimStatuses": [{"name": "s"}, {"name": "s"}]}),
            &[
                r#"status.resourceClaimStatuses[0].name: Invalid value: "s": must match the name of an entry in `spec.resourceClaims`"#,
                r#"status.resourceClaimStatuses[1].name: Invalid value: "s": must match the name of an entry in `spec.resourceClaims`"#,
                r#"status.resourceClaimStatuses[1].name: Duplicate value: "s""#,
            ],
        );
    }

    #[test]
    fn mappings_are_of_containers() {
        let mapping = |container: &str, resource: &str| json!({"containerName": container, "resourceName": resource, "requestName": "r"});
        let of = |mapping: Value| json!({"extendedResourceClaimStatus": {"resourceClaimName": "a", "requestMappings": [mapping]}});
        check(of(mapping("c", "e.com/x")), &[]);
        check(
            of(mapping("d", "e.com/x")),
            &[
                r#"status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "d": must match the name of an entry in spec.initContainers.name or spec.containers.name"#,
            ],
        );
        check(
            json!({"extendedResourceClaimStatus": {"requestMappings": []}}),
            &[
                "status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required",
                "status.extendedResourceClaimStatus.resourceClaimName: Required value",
            ],
        );
    }
}
