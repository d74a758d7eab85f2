//! `--allow-privileged=false`: no container may be privileged, even where PodSecurity allows it. Upstream checks this
//! where it validates pods and templates; it is no plugin there, and cannot be turned off here either.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{FieldError, FieldPath, GroupVersionResource};
use serde_json::Value;

use super::pod_security::{Role, role};
use crate::json::Json;

#[derive(Debug)]
pub(super) struct Privileged;

/// The subresources through which a pod's spec is written.
const SPECS: [&str; 3] = ["", "ephemeralcontainers", "resize"];

#[async_trait::async_trait]
impl AdmissionPlugin for Privileged {
    fn name(&self) -> &'static str {
        "PrivilegedContainers"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && match role(gvr) {
                Some(Role::Pod) => SPECS.contains(&subresource),
                Some(Role::Template(_)) => subresource.is_empty(),
                Some(Role::Namespace) | None => false,
            }
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(object), Some(role)) = (object, role(attributes.gvr)) else {
            return Ok(());
        };
        let path = match role {
            Role::Namespace => return Ok(()),
            Role::Pod => "spec".to_string(),
            Role::Template(template) => format!("{template}.spec"),
        };
        let errors = errors(&FieldPath::new(&path), object.dig(&path));
        if errors.is_empty() {
            return Ok(());
        }
        let name = machinery::meta::name(object);
        Err(ApiError::invalid(&attributes.gvk.group_kind(), name, &errors))
    }
}

fn errors(path: &FieldPath<'_>, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let of_pod = spec.flag("securityContext.windowsOptions.hostProcess");
    let mut host_process = false;
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in spec.list(list).iter().enumerate() {
            let context = container.dig("securityContext");
            if context.flag("privileged") {
                let list = path.child(list);
                let container = list.index(index);
                let context = container.child("securityContext");
                errors.push(FieldError::forbidden(
                    &context.child("privileged"),
                    "disallowed by cluster policy",
                ));
            }
            let own = context.dig("windowsOptions.hostProcess").as_bool();
            host_process |= own.unwrap_or(of_pod);
        }
    }
    if host_process {
        errors.push(FieldError::forbidden(
            path,
            "hostProcess containers are disallowed by cluster policy",
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: &Value, expected: &[&str]) {
        let found = errors(&FieldPath::new("spec"), spec);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{spec}");
    }

    #[test]
    fn privileged_containers_are_named() {
        let yes = json!({"securityContext": {"privileged": true}});
        let no = json!({"securityContext": {"privileged": false}});
        check(&json!({"containers": [no, {}]}), &[]);
        check(
            &json!({"containers": [no, yes], "initContainers": [yes], "ephemeralContainers": [yes]}),
            &[
                "spec.initContainers[0].securityContext.privileged: Forbidden: disallowed by cluster policy",
                "spec.containers[1].securityContext.privileged: Forbidden: disallowed by cluster policy",
                "spec.ephemeralContainers[0].securityContext.privileged: Forbidden: disallowed by cluster policy",
            ],
        );
        let windows = json!({"windowsOptions": {"hostProcess": true}});
        let text = "spec: Forbidden: hostProcess containers are disallowed by cluster policy";
        check(&json!({"containers": [{}], "securityContext": windows}), &[text]);
        check(&json!({"containers": [{"securityContext": windows}]}), &[text]);
        let not = json!({"windowsOptions": {"hostProcess": false}});
        check(
            &json!({"containers": [{"securityContext": not}], "securityContext": windows}),
            &[],
        );
    }
}
