//! `pods/binding`: assigns a pod to a node.

use generic_server::ApiError;
use generic_server::resource::{Answer, CreateCall, NamedCreate};
use machinery::time::Timestamp;
use machinery::{FieldPath, GroupResource, GroupVersionKind, go, meta};
use serde_json::{Value, json};

use crate::client::Client;
use crate::errors::Errors;
use crate::json::Json;

/// The subresource.
#[derive(Debug)]
pub(crate) struct Binding(pub(crate) Client);

#[async_trait::async_trait]
impl NamedCreate for Binding {
    fn kind(&self) -> GroupVersionKind {
        GroupVersionKind::new("", "v1", "Binding")
    }

    fn keeps_uid(&self) -> bool {
        true
    }

    async fn create(&self, call: &CreateCall<'_>, object: Value) -> Result<Answer, ApiError> {
        bind(&self.0, call, &object).await
    }
}

/// Does what a Binding says, posted to the pod or to `bindings`.
pub(crate) async fn bind(
    client: &Client,
    call: &CreateCall<'_>,
    binding: &Value,
) -> Result<Answer, ApiError> {
    if meta::name(binding) != call.name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let errors = Errors::collect(|errors| validate(errors, binding));
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(ApiError::raw_internal(go::aggregate(&texts)));
    }
    let admitted = call.validate(binding).await?;
    if call.dry_run {
        let pod = client.find(("", "pods"), call.namespace, call.name).await?;
        let missing = || ApiError::not_found(&GroupResource::new("", "pods"), call.name);
        assignable(&pod.ok_or_else(missing)?, binding)?;
        return Ok(admitted.done());
    }
    client
        .assign(call.namespace, call.name, |pod| {
            assignable(pod, binding)?;
            assign(pod, binding);
            Ok(())
        })
        .await?;
    Ok(admitted.done())
}

fn validate(errors: &mut Errors, binding: &Value) {
    let path = FieldPath::new("target");
    let kind = binding.text("target.kind");
    if !matches!(kind, "" | "Node") {
        errors.unsupported(&path.child("kind"), kind, &["Node", "<empty>"]);
    }
    errors.need(&path.child("name"), binding.text("target.name"));
}

/// Whether a pod may be assigned as a binding says; 409 when not.
fn assignable(pod: &Value, binding: &Value) -> Result<(), ApiError> {
    let name = meta::name(pod);
    let preconditions = [
        ("UID", meta::uid(binding), meta::uid(pod)),
        (
            "ResourceVersion",
            meta::resource_version(binding),
            meta::resource_version(pod),
        ),
    ];
    for (what, wanted, own) in preconditions {
        if !wanted.is_empty() && wanted != own {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {own}"
            );
            return Err(ApiError::conflict(&GroupResource::new("", "pods"), name, why));
        }
    }
    let conflict = |why: String| {
        let bindings = GroupResource::new("", "pods/binding");
        Err(ApiError::conflict(&bindings, name, why))
    };
    if meta::deletion_timestamp(pod).is_some() {
        return conflict(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ));
    }
    let assigned = pod.text("spec.nodeName");
    if !assigned.is_empty() {
        return conflict(format!("pod {name} is already assigned to node \"{assigned}\""));
    }
    if !pod.list("spec.schedulingGates").is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}

/// The node, the labels and annotations of the binding, and the condition that says so.
fn assign(pod: &mut Value, binding: &Value) {
    pod.ensure("spec").put("nodeName", binding.text("target.name"));
    for kind in ["annotations", "labels"] {
        for (key, value) in binding.dig("metadata").entries(kind) {
            pod.ensure("metadata").ensure(kind).put(key, value.clone());
        }
    }
    let now = Timestamp::now().to_rfc3339();
    let status = pod.ensure("status");
    let mut conditions = status.list("conditions").to_vec();
    conditions.retain(|c| c.text("type") != "PodScheduled");
    conditions.push(
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
    );
    status.put("conditions", conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(target: Value, expected: &[&str]) {
        let binding = json!({"target": target});
        let errors = Errors::collect(|errors| validate(errors, &binding));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_target_is_a_node() {
        check(json!({"name": "n"}), &[]);
        check(json!({"kind": "Node", "name": "n"}), &[]);
        check(
            json!({"kind": "Pod"}),
            &[
                r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#,
                "target.name: Required value",
            ],
        );
    }

    #[test]
    fn a_pod_is_assigned_once() {
        #[track_caller]
        fn check(pod: Value, binding: Value, expected: Option<&str>) {
            let refusal = assignable(&pod, &binding).err();
            let message = refusal.as_ref().map(ApiError::message);
            match expected {
                Some(text) => assert!(message.is_some_and(|m| m.ends_with(text)), "{message:?}"),
                None => assert_eq!(message, None),
            }
        }
        let pod = |over: Value| {
            let mut pod = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {}});
            for (key, value) in over.as_object().into_iter().flatten() {
                pod[key] = value.clone();
            }
            pod
        };
        check(pod(json!({})), json!({}), None);
        check(pod(json!({})), json!({"metadata": {"uid": "u"}}), None);
        check(
            pod(json!({})),
            json!({"metadata": {"uid": "v"}}),
            Some("Precondition failed: UID in precondition: v, UID in object meta: u"),
        );
        check(
            pod(json!({"spec": {"nodeName": "n"}})),
            json!({}),
            Some("pod p is already assigned to node \"n\""),
        );
        check(
            pod(json!({"spec": {"schedulingGates": [{"name": "g"}]}})),
            json!({}),
            Some("pod p has non-empty .spec.schedulingGates"),
        );
        check(
            pod(json!({"metadata": {"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z"}})),
            json!({}),
            Some("pod p is being deleted, cannot be assigned to a host"),
        );
    }
}
