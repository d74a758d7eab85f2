//! The escalation checks where writes pass: an admission plugin of the RBAC kinds. Upstream asks in the storage of these
//! kinds; here admission is the one place that every write goes through.

use std::sync::Arc;

use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::Authorizer;
use machinery::{ApiError, GroupVersionResource};
use serde_json::Value;

use super::{Rbac, escalation};

/// Refuses roles and bindings that grant more than the writer holds.
#[derive(Debug)]
pub struct Escalation {
    /// The roles that hold.
    pub rbac: Arc<Rbac>,
    /// Asked whether the writer may escalate or bind all the same.
    pub authorizer: Arc<dyn Authorizer>,
}

#[async_trait::async_trait]
impl AdmissionPlugin for Escalation {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && &*gvr.group == "rbac.authorization.k8s.io"
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        let Attributes {
            authorized,
            namespace,
            old,
            ..
        } = *attributes;
        let (rbac, authorizer) = (&*self.rbac, &*self.authorizer);
        match &*attributes.gvr.resource {
            "roles" | "clusterroles" => {
                escalation::check_role(rbac, authorizer, authorized, namespace, object, old).await
            }
            _ => escalation::check_binding(rbac, authorizer, authorized, namespace, object, old).await,
        }
    }
}
