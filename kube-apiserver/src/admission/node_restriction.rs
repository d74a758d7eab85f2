//! NodeRestriction: a kubelet changes its own Node, and the pods that are bound to it, and nothing about them that would bring it
//! more. It completes the Node authorizer, which does not see objects.
//!
//! Mirrors upstream's `plugin/pkg/admission/noderestriction`, in its words.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::Authorizer;
use machinery::go::Quoted;
use machinery::{GroupResource, GroupVersionResource, meta};
use serde_json::Value;

use super::forbidden;
use crate::authorization::node::identity;
use crate::client::Client;
use crate::groups::certificates::request;
use crate::json::{Json, same};

mod labels;
mod mirror;
mod pod_certificates;
mod tokens;

#[cfg(test)]
mod tests;

/// Kinds that are looked up, by group and in the singular.
const POD: (&str, &str) = ("", "pod");
const NODE: (&str, &str) = ("", "node");

/// Where kubelets keep their leases.
const LEASES: &str = "kube-node-lease";
/// The signers of kubelets' certificates.
const KUBELET_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];
/// The fields that a kubelet may change in the status of a claim.
const CLAIM_STATUS: [&str; 4] = [
    "capacity",
    "conditions",
    "allocatedResourceStatuses",
    "allocatedResources",
];

#[derive(Debug)]
pub(super) struct NodeRestriction {
    pub(super) client: Client,
    pub(super) authorizer: Arc<dyn Authorizer>,
    /// PodCertificateRequests are on.
    pub(super) pod_certificates: bool,
}

#[async_trait::async_trait]
impl AdmissionPlugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        matches!(
            operation,
            Operation::Create | Operation::Update | Operation::Delete
        ) && matches!(
            (&*gvr.group, &*gvr.resource),
            (
                "",
                "pods" | "nodes" | "persistentvolumeclaims" | "serviceaccounts"
            ) | ("coordination.k8s.io", "leases")
                | ("storage.k8s.io", "csinodes")
                | ("resource.k8s.io", "resourceslices")
                | (
                    "certificates.k8s.io",
                    "certificatesigningrequests" | "podcertificaterequests"
                )
        )
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let user = attributes.authorized.user();
        let Some(node) = identity(user) else {
            return Ok(());
        };
        let write = Write {
            node,
            attributes,
            object: object.as_deref(),
        };
        if node.is_empty() {
            return write.refuse(&format!(
                "could not determine node from user {}",
                Quoted(&user.name)
            ));
        }
        let resource = (&*attributes.gvr.group, &*attributes.gvr.resource);
        match (resource, attributes.subresource) {
            (("", "pods"), "") => self.pod(&write).await,
            (("", "pods"), "status") => write.pod_status(),
            (("", "pods"), "eviction") => self.eviction(&write).await,
            (("", "pods"), other) => write.refuse(&format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                Quoted(other)
            )),
            (("", "nodes"), _) => write.node(),
            (("", "persistentvolumeclaims"), "status") => write.claim_status(),
            (("", "persistentvolumeclaims"), _) => write.refuse("may only update PVC status"),
            (("", "serviceaccounts"), "token") => self.token(&write).await,
            (("coordination.k8s.io", _), _) => write.lease(),
            (("storage.k8s.io", _), _) => {
                write.own_name("can only access CSINode with the same name as the requesting node")
            }
            (("resource.k8s.io", _), _) => write.resource_slice(),
            (("certificates.k8s.io", "podcertificaterequests"), _) if self.pod_certificates => {
                self.pod_certificate(&write).await
            }
            (("certificates.k8s.io", "podcertificaterequests"), _) => {
                write.refuse("PodCertificateRequest feature gate is disabled")
            }
            (("certificates.k8s.io", _), _) => write.signing_request(),
            _ => Ok(()),
        }
    }
}

impl NodeRestriction {
    /// An object that a write of a node's is about.
    ///
    /// # Errors
    /// 404 without it, which names the kind as upstream's caches do: in the singular.
    async fn find(
        &self,
        (group, singular): (&str, &str),
        namespace: &str,
        name: &str,
    ) -> Result<Value, ApiError> {
        let resource = format!("{singular}s");
        let found = self.client.find((group, &resource), namespace, name).await?;
        found.ok_or_else(|| ApiError::not_found(&GroupResource::new(group, singular), name))
    }

    async fn pod(&self, write: &Write<'_>) -> Result<(), ApiError> {
        let (node, quoted, attributes) = (write.node, write.quoted(), write.attributes);
        match attributes.operation {
            Operation::Create => self.mirror_pod(write).await,
            Operation::Delete => {
                let pod = self.find(POD, attributes.namespace, attributes.name).await?;
                match pod.text("spec.nodeName") == node {
                    true => Ok(()),
                    false => write.refuse(&format!(
                        "node {quoted} can only delete pods with spec.nodeName set to itself"
                    )),
                }
            }
            operation => write.refuse(&format!(
                "unexpected operation {}, node {quoted} can only create and delete mirror pods",
                Quoted(operation.as_str())
            )),
        }
    }

    async fn eviction(&self, write: &Write<'_>) -> Result<(), ApiError> {
        if write.attributes.operation != Operation::Create {
            return write.unexpected_operation();
        }
        let name = match write.attributes.name {
            "" => write.object.map(meta::name).unwrap_or_default(),
            name => name,
        };
        if name.is_empty() {
            return write.refuse("could not determine pod from request data");
        }
        let pod = self.find(POD, write.attributes.namespace, name).await?;
        match pod.text("spec.nodeName") == write.node {
            true => Ok(()),
            false => write.refuse(&format!(
                "node {} can only evict pods with spec.nodeName set to itself",
                write.node
            )),
        }
    }
}

/// A write by a node.
struct Write<'a> {
    node: &'a str,
    attributes: &'a Attributes<'a>,
    object: Option<&'a Value>,
}

impl Write<'_> {
    /// The name of the node as refusals quote it.
    fn quoted(&self) -> Quoted<'_> {
        Quoted(self.node)
    }

    fn refuse(&self, why: &str) -> Result<(), ApiError> {
        Err(forbidden(self.attributes, self.object, why))
    }

    fn unexpected_operation(&self) -> Result<(), ApiError> {
        let operation = Quoted(self.attributes.operation.as_str());
        self.refuse(&format!("unexpected operation {operation}"))
    }

    /// The state before an update, and after it.
    fn change(&self) -> Option<(&Value, &Value)> {
        let update = self.attributes.operation == Operation::Update;
        self.attributes.old.zip(self.object).filter(|_| update)
    }

    fn pod_status(&self) -> Result<(), ApiError> {
        let (node, quoted) = (self.node, self.quoted());
        let Some((old, new)) = self.change() else {
            return self.unexpected_operation();
        };
        if old.text("spec.nodeName") != node {
            return self.refuse(&format!(
                "node {quoted} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        if !same(old.dig("metadata.labels"), new.dig("metadata.labels")) {
            return self.refuse(&format!("node {quoted} cannot update labels through pod status"));
        }
        let claims = |pod: &'_ Value| -> Vec<(String, String)> {
            let statuses = pod.list("status.resourceClaimStatuses").iter();
            let entry = |s: &Value| {
                (
                    s.text("name").to_string(),
                    s.text("resourceClaimName").to_string(),
                )
            };
            statuses.map(entry).collect()
        };
        if claims(old) != claims(new) {
            return self.refuse(&format!("node {quoted} cannot update resource claim statues"));
        }
        let extended = "status.extendedResourceClaimStatus";
        if !same(old.dig(extended), new.dig(extended)) {
            return self.refuse(&format!(
                "node {quoted} cannot update extended resource claim status"
            ));
        }
        Ok(())
    }

    fn claim_status(&self) -> Result<(), ApiError> {
        let Some((old, new)) = self.change() else {
            return self.unexpected_operation();
        };
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            if let Some(metadata) = claim.dig_mut("metadata") {
                metadata.take_key("resourceVersion");
                metadata.take_key("managedFields");
            }
            if let Some(status) = claim.dig_mut("status") {
                for field in CLAIM_STATUS {
                    status.take_key(field);
                }
            }
            claim
        };
        match same(&rest(old), &rest(new)) {
            true => Ok(()),
            false => self.refuse(&format!(
                "node {} is not allowed to update fields other than status.quantity and status.conditions",
                self.quoted()
            )),
        }
    }

    fn node(&self) -> Result<(), ApiError> {
        let (quoted, name) = (self.quoted(), self.attributes.name);
        if name != self.node {
            let name = Quoted(name);
            return self.refuse(&format!("node {quoted} is not allowed to modify node {name}"));
        }
        let Some(new) = self.object else { return Ok(()) };
        match self.attributes.operation {
            Operation::Create => {
                if new.has("spec.configSource") {
                    return self.refuse(&format!(
                        "node {quoted} is not allowed to create pods with a non-nil configSource"
                    ));
                }
                let labels = labels::forbidden(new, &Value::Null);
                if !labels.is_empty() {
                    return self.refuse(&format!(
                        "node {quoted} is not allowed to set the following labels: {}",
                        labels.join(", ")
                    ));
                }
            }
            Operation::Update => {
                let old = self.attributes.old.unwrap_or(&Value::Null);
                let changed = |path: &str| !same(old.dig(path), new.dig(path));
                if new.has("spec.configSource") && changed("spec.configSource") {
                    return self.refuse(&format!(
                        "node {quoted} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if changed("spec.taints") {
                    return self.refuse(&format!("node {quoted} is not allowed to modify taints"));
                }
                if changed("metadata.ownerReferences") {
                    return self.refuse(&format!("node {quoted} is not allowed to modify ownerReferences"));
                }
                let labels = labels::forbidden(new, old);
                if !labels.is_empty() {
                    return self.refuse(&format!("is not allowed to modify labels: {}", labels.join(", ")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn lease(&self) -> Result<(), ApiError> {
        if self.attributes.namespace != LEASES {
            return self.refuse(&format!(
                "can only access leases in the {LEASES:?} system namespace"
            ));
        }
        self.own_name("can only access node lease with the same name as the requesting node")
    }

    /// The written object has the node's name.
    fn own_name(&self, why: &str) -> Result<(), ApiError> {
        let name = match (self.attributes.operation, self.object) {
            (Operation::Create, Some(object)) => meta::name(object),
            _ => self.attributes.name,
        };
        match name == self.node {
            true => Ok(()),
            false => self.refuse(why),
        }
    }

    fn resource_slice(&self) -> Result<(), ApiError> {
        let (slice, verb) = match self.attributes.operation {
            Operation::Create => (self.object, "create"),
            Operation::Delete => (self.attributes.old, "delete"),
            _ => return Ok(()),
        };
        match slice.is_some_and(|slice| slice.text("spec.nodeName") == self.node) {
            true => Ok(()),
            false => self.refuse(&format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }

    fn signing_request(&self) -> Result<(), ApiError> {
        let Some(object) = self.object.filter(|_| {
            self.attributes.operation == Operation::Create && self.attributes.subresource.is_empty()
        }) else {
            return Ok(());
        };
        if !KUBELET_SIGNERS.contains(&object.text("spec.signerName")) {
            return Ok(());
        }
        let parsed = match request::parse(object.text("spec.request")) {
            Ok(parsed) => parsed,
            Err(why) => return self.refuse(&format!("unable to parse csr: {why}")),
        };
        let own = format!("system:node:{}", self.node);
        match parsed.common_name == own {
            true => Ok(()),
            false => self.refuse(&format!("can only create a node CSR with CN={own}")),
        }
    }
}
