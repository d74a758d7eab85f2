//! NamespaceLifecycle: nothing is made in a namespace that is missing or on its way out, and some namespaces stay.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{Cause, GroupVersionResource};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

#[derive(Debug)]
pub(super) struct NamespaceLifecycle(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        match operation {
            Operation::Delete => is(gvr, "", "namespaces"),
            Operation::Create | Operation::Update => {
                !is(gvr, "", "namespaces") && !is(gvr, "authorization.k8s.io", "localsubjectaccessreviews")
            }
            Operation::Connect => false,
        }
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        if attributes.operation == Operation::Delete {
            return match IMMORTAL.contains(&attributes.name) {
                true => Err(forbidden(attributes, None, "this namespace may not be deleted")),
                false => Ok(()),
            };
        }
        let namespace = attributes.namespace;
        if namespace.is_empty() {
            return Ok(());
        }
        let entry = self.0.entry(("", "namespaces"), "", namespace).await?;
        let Some(entry) = entry else {
            return Err(ApiError::not_found(
                &machinery::GroupResource::new("", "namespaces"),
                namespace,
            ));
        };
        // The only selectable field of namespaces is their phase: no parse for a look at it.
        let terminating = entry.fields().any(|phase| phase == "Terminating");
        if attributes.operation == Operation::Update || !terminating {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        Err(forbidden(attributes, object.as_deref(), why).with_cause(Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        }))
    }
}
