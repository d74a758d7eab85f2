//! Policies and configurations that say what users may do.

use generic_server::User;
use generic_server::authz::Attributes;
use kube_apiserver::authorization::parsers::{abac_allows, authorizers_of, conditions_match};
use serde_json::{Value, json};

use crate::halves;

/// A name that no policy of the corpus has.
const NOBODY: &str = "fuzzing:user-of-no-policy";

/// A file of ABAC policies.
pub fn abac(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let user = User {
        name: NOBODY.into(),
        ..User::default()
    };
    let resource = Attributes {
        user: &user,
        verb: "get",
        is_resource: true,
        group: "apps",
        version: "v1",
        resource: "deployments",
        subresource: "",
        namespace: "default",
        name: "x",
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let path = Attributes {
        is_resource: false,
        path: "/metrics",
        ..resource
    };
    for attributes in [resource, path] {
        let allowed = abac_allows(text, &attributes);
        assert_eq!(allowed, abac_allows(text, &attributes), "it is read the same");
        // Policies for all are for those of `system:authenticated`, which this user is none of.
        assert_ne!(allowed, Ok(true), "a user that no policy names may do nothing");
    }
}

/// An `AuthorizationConfiguration`.
pub fn authorization(data: &[u8]) {
    if String::from_utf8_lossy(data).contains("/dev/") {
        return;
    }
    let read = authorizers_of(data);
    assert_eq!(read, authorizers_of(data), "it is read the same");
    assert_ne!(read, Ok(0), "there is an authorizer at least");
}

/// The expressions of a webhook, one a line, a NUL, and the `spec` of a SubjectAccessReview.
pub fn match_conditions(data: &[u8]) {
    let (sources, spec) = halves(data);
    let Ok(sources) = std::str::from_utf8(sources) else {
        return;
    };
    let sources: Vec<String> = sources.lines().map(str::to_string).collect();
    let spec: Value = serde_json::from_slice(spec)
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({"user": "u", "groups": ["g"], "resourceAttributes": {"verb": "get", "resource": "pods"}}));
    let matches = || conditions_match(&sources, spec.clone());
    assert_eq!(matches(), matches(), "the same request matches the same");
}

/// A file of `--audit-policy-file`.
pub fn audit_policy(data: &[u8]) {
    let read = || generic_server::audit::Policy::parse(data).map(|(_, faults)| faults);
    assert_eq!(read(), read(), "the same file is read the same");
}
