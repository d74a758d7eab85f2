//! The Node authorizer (`--authorization-mode=Node`): a kubelet may read what the pods bound to its node refer to, and
//! write objects of its own. Those writes are narrowed further by the NodeRestriction admission plugin.
//!
//! Reasons are upstream's (`plugin/pkg/auth/authorizer/node`).

use std::sync::Arc;

use generic_server::User;
use generic_server::authz::{Attributes, Authorizer, Decision, ResolvedRules};
use generic_server::metrics::Collect;
use machinery::go::Quoted;
use machinery::selector::FieldSelector;

use crate::bootstrap;
use crate::deps::KindFeatures;
use crate::rbac::PolicyRule;

mod follow;
pub(crate) mod graph;
pub(crate) mod references;

#[cfg(test)]
mod tests;

pub use follow::follow;
use graph::{Graph, Kind};

/// Where kubelets keep their leases.
const LEASES: &str = "kube-node-lease";

/// The node that a user is, by its name and group. `Some("")` is a node without a name.
pub(crate) fn identity(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix("system:node:")?;
    user.in_group("system:nodes").then_some(node)
}

/// Decides what kubelets may do. Everybody else it has no opinion about.
#[derive(Debug)]
pub struct NodeAuthorizer {
    graph: Graph,
    /// The permissions of every node: the rules of the bootstrap role `system:node`.
    rules: Vec<PolicyRule>,
    /// PodCertificateRequests are on.
    pod_certificates: bool,
}

/// The text of a refusal.
type Refusal = String;

impl Collect for NodeAuthorizer {
    fn collect(&self, out: &mut String) {
        self.graph.collect(out);
    }
}

impl NodeAuthorizer {
    /// An authorizer with an empty index, which [`follow`] fills. The rules of nodes are those of the features that are on.
    pub fn new(features: KindFeatures) -> Arc<Self> {
        Arc::new(NodeAuthorizer {
            graph: Graph::default(),
            rules: bootstrap::node_rules(features),
            pod_certificates: features.pod_certificates,
        })
    }

    fn decide(&self, node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
        match (a.group, a.resource) {
            ("", "secrets") => self.read(node, Kind::Secret, a),
            ("", "configmaps") => self.read(node, Kind::ConfigMap, a),
            ("", "persistentvolumeclaims") if a.subresource == "status" => match a.verb {
                "update" | "patch" => self.related(node, Kind::Claim, a),
                _ => refuse("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(node, Kind::Claim, a),
            ("", "persistentvolumes") => self.get(node, Kind::Volume, a),
            ("resource.k8s.io", "resourceclaims") => self.get(node, Kind::ResourceClaim, a),
            ("storage.k8s.io", "volumeattachments") => self.get(node, Kind::VolumeAttachment, a),
            ("", "serviceaccounts") => self.service_account(node, a),
            ("coordination.k8s.io", "leases") => lease(node, a),
            ("storage.k8s.io", "csinodes") => csi_node(node, a),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(node, a),
            ("", "nodes") => own_node(node, a),
            ("", "pods") => self.pod(node, a),
            ("certificates.k8s.io", "podcertificaterequests") if self.pod_certificates => {
                self.pod_certificate(node, a)
            }
            ("certificates.k8s.io", "podcertificaterequests") => refuse(""),
            _ => self.by_rules(a),
        }
    }

    fn by_rules(&self, a: &Attributes<'_>) -> Result<(), Refusal> {
        match self.rules.iter().any(|rule| rule.allows(a)) {
            true => Ok(()),
            false => refuse(""),
        }
    }

    fn get(&self, node: &str, kind: Kind, a: &Attributes<'_>) -> Result<(), Refusal> {
        if a.verb != "get" {
            return refuse("can only get individual resources of this type");
        }
        if !a.subresource.is_empty() {
            return refuse("cannot get subresource");
        }
        self.related(node, kind, a)
    }

    fn read(&self, node: &str, kind: Kind, a: &Attributes<'_>) -> Result<(), Refusal> {
        if !matches!(a.verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !a.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if a.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.related(node, kind, a)
    }

    fn related(&self, node: &str, kind: Kind, a: &Attributes<'_>) -> Result<(), Refusal> {
        if a.name.is_empty() {
            return refuse("No Object name found");
        }
        match self.graph.is_related(node, kind, a.namespace, a.name) {
            true => Ok(()),
            false => refuse(&format!(
                "no relationship found between node '{node}' and this object"
            )),
        }
    }

    fn service_account(&self, node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
        if a.verb == "get" && a.subresource.is_empty() {
            return self.read(node, Kind::ServiceAccount, a);
        }
        if a.verb != "create" || a.name.is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        if a.subresource != "token" {
            return refuse("can only create token subresource of serviceaccount");
        }
        self.related(node, Kind::ServiceAccount, a)
    }

    fn resource_slice(&self, node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
        if !a.subresource.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match a.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, Kind::ResourceSlice, a),
            "watch" | "list" | "deletecollection" if selects(a, "spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, \
                 deletecollection",
            ),
        }
    }

    fn pod_certificate(&self, node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
        if !a.subresource.is_empty() {
            return refuse("nodes may not access the status subresource of PodCertificateRequests");
        }
        match a.verb {
            // NodeRestriction looks at what is created.
            "create" => Ok(()),
            "get" => self.related(node, Kind::PodCertificateRequest, a),
            "list" | "watch" if selects(a, "spec.nodeName", node) => Ok(()),
            "list" | "watch" => {
                refuse("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => refuse(&format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn pod(&self, node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
        match (a.subresource, a.verb) {
            ("", "get") => self.get(node, Kind::Pod, a),
            ("", "list" | "watch") if selects(a, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !a.name.is_empty() => self.related(node, Kind::Pod, a),
            ("", "list" | "watch") => refuse("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }
}

fn refuse(why: &str) -> Result<(), Refusal> {
    Err(why.to_string())
}

/// Whether what is asked for is narrowed to one value of a field.
fn selects(a: &Attributes<'_>, field: &str, value: &str) -> bool {
    FieldSelector::parse(a.field_selector)
        .is_ok_and(|selector| selector.requires_exact_match(field) == Some(value))
}

fn lease(node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
    if !matches!(a.verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if a.namespace != LEASES {
        return refuse(&format!(
            "can only access leases in the \"{LEASES}\" system namespace"
        ));
    }
    // The name of what is created is not known here: NodeRestriction compares it.
    match a.verb == "create" || a.name == node {
        true => Ok(()),
        false => refuse("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
    if !matches!(a.verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if !a.subresource.is_empty() {
        return refuse("cannot authorize CSINode subresources");
    }
    match a.verb == "create" || a.name == node {
        true => Ok(()),
        false => refuse("can only access CSINode with the same name as the requesting node"),
    }
}

fn own_node(node: &str, a: &Attributes<'_>) -> Result<(), Refusal> {
    match (a.subresource, a.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match a.name {
            name if name == node => Ok(()),
            "" => refuse(&format!(
                "node '{node}' cannot read all nodes, only its own Node object"
            )),
            other => refuse(&format!(
                "node '{node}' cannot read '{other}', only its own Node object"
            )),
        },
        _ => refuse(""),
    }
}

#[async_trait::async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let Some(node) = identity(attributes.user) else {
            return Decision::NoOpinion(String::new());
        };
        if node.is_empty() {
            return Decision::NoOpinion(format!("unknown node for user {}", Quoted(&attributes.user.name)));
        }
        let decided = match attributes.is_resource {
            true => self.decide(node, attributes),
            false => self.by_rules(attributes),
        };
        match decided {
            Ok(()) => Decision::Allow(String::new()),
            Err(why) => Decision::NoOpinion(why),
        }
    }

    async fn rules_for(&self, user: &User, _namespace: &str) -> ResolvedRules {
        match identity(user) {
            Some(_) => ResolvedRules {
                incomplete: true,
                evaluation_error: "node authorizer does not support user rule resolution".into(),
                ..ResolvedRules::default()
            },
            None => ResolvedRules::default(),
        }
    }
}
