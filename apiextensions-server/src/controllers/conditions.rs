//! The conditions of a CRD, from its spec and the names that are free.

use generic_server::write::now;
use machinery::FieldPath;
use machinery::go;
use serde_json::Value;

use crate::crd::approval::{self, Approval};
use crate::crd::internal::Spec;
use crate::crd::naming::{self, Claims};
use crate::crd::status::{self, Condition, status_mut};
use crate::crd::validation::structural_errors;
use crate::props::{Props, unsupported};

/// Brings names and conditions up to date. Says whether names have been given back.
pub(super) fn reconcile(crd: &mut Value, claims: &dyn Claims) -> bool {
    let now = now();
    let freed = names(crd, claims, &now);
    non_structural(crd, &now);
    if let Some(condition) = approved(crd)
        && !status::says(crd, &condition)
    {
        status::set(crd, &condition, &now);
    }
    freed
}

fn names(crd: &mut Value, claims: &dyn Claims, now: &str) -> bool {
    let accepted = crd.pointer("/spec/names") == crd.pointer("/status/acceptedNames");
    if accepted {
        return false;
    }
    let naming = naming::decide(crd, claims);
    let before = crd.pointer("/status/acceptedNames").cloned().unwrap_or_default();
    let same_names = before == naming.accepted;
    if same_names && status::says(crd, &naming.condition) {
        return false;
    }
    let established = naming::establishing(crd, &naming);
    if let Some(status) = status_mut(crd) {
        status.insert("acceptedNames".into(), naming.accepted);
    }
    status::set(crd, &naming.condition, now);
    if let Some(established) = established {
        status::set(crd, &established, now);
    }
    let had_names = before
        .get("plural")
        .and_then(Value::as_str)
        .is_some_and(|p| !p.is_empty());
    had_names && !same_names
}

/// `NonStructuralSchema`, for CRDs from before schemas had to be structural.
fn non_structural(crd: &mut Value, now: &str) {
    match non_structural_condition(crd) {
        None => status::remove(crd, "NonStructuralSchema"),
        Some(condition) if status::says(crd, &condition) => {}
        Some(condition) => status::set(crd, &condition, now),
    }
}

fn non_structural_condition(crd: &Value) -> Option<Condition> {
    let mut faults: Vec<String> = Vec::new();
    if Spec::of(crd).preserve_unknown_fields {
        faults.push("spec.preserveUnknownFields: Invalid value: true: must be false".into());
    }
    let versions = FieldPath::new("spec.versions");
    let list = crd.pointer("/spec/versions").and_then(Value::as_array);
    for (i, version) in list.into_iter().flatten().enumerate() {
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .filter(|s| !s.is_null());
        let Some(schema) = schema.map(Props::new) else {
            continue;
        };
        if let Some(why) = unsupported(schema) {
            let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
            let message = format!("failed to check validation schema for version {name}: {why}");
            return Some(Condition::new(
                "NonStructuralSchema",
                "Unknown",
                "StructuralError",
                message,
            ));
        }
        let at = versions.index(i);
        let at = at.child("schema.openAPIV3Schema");
        faults.extend(structural_errors(&at, schema).iter().map(ToString::to_string));
    }
    faults.dedup();
    if faults.is_empty() {
        return None;
    }
    let message = go::aggregate(&faults);
    Some(Condition::new(
        "NonStructuralSchema",
        "True",
        "Violations",
        message,
    ))
}

/// `KubernetesAPIApprovalPolicyConformant`, for the community's groups.
fn approved(crd: &Value) -> Option<Condition> {
    if !approval::is_protected(Spec::of(crd).group) {
        return None;
    }
    let (state, reason) = approval::state(crd);
    let (status, why) = match state {
        Approval::Invalid => ("False", "InvalidAnnotation"),
        Approval::Missing => ("False", "MissingAnnotation"),
        Approval::Approved => ("True", "ApprovedAnnotation"),
        Approval::Bypassed => ("False", "UnapprovedAnnotation"),
    };
    Some(Condition::new(
        "KubernetesAPIApprovalPolicyConformant",
        status,
        why,
        reason,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Free;

    impl Claims for Free {
        fn resource(&self, _name: &str) -> bool {
            false
        }
        fn kind(&self, _name: &str) -> bool {
            false
        }
    }

    #[test]
    fn a_new_crd_is_established_in_one_go() {
        let names = json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"});
        let mut crd = json!({
            "metadata": {"name": "foos.a.k8s.io", "annotations": {"api-approved.kubernetes.io": "unapproved"}},
            "spec": {"group": "a.k8s.io", "names": names, "versions": [
                {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": null},
        });
        assert!(!reconcile(&mut crd, &Free));
        let actual: Vec<(&str, &str)> = status::conditions(&crd)
            .iter()
            .map(|c| {
                (
                    c["type"].as_str().unwrap_or_default(),
                    c["reason"].as_str().unwrap_or_default(),
                )
            })
            .collect();
        assert_eq!(
            actual,
            [
                ("NamesAccepted", "NoConflicts"),
                ("Established", "InitialNamesAccepted"),
                ("KubernetesAPIApprovalPolicyConformant", "UnapprovedAnnotation"),
            ]
        );
        assert_eq!(crd["status"]["acceptedNames"], names);
        let reconciled = crd.clone();
        reconcile(&mut crd, &Free);
        assert_eq!(crd, reconciled, "nothing is written twice");
    }
}
