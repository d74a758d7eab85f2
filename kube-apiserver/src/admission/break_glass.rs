//! `--webhook-break-glass`: the writes that bring a webhook's own backend back go on while nothing of the backend is up.
//!
//! A webhook with `failurePolicy: Fail` that is about the pods of its own Service, or about nodes, can keep itself from ever coming up again once
//! all of its pods are gone. What goes on here is decided by three questions, and a write that fails any of them is refused as ever:
//!
//! 1. Could no connection be made? That is for the caller to know.
//! 2. Is nothing up? The Service has a selector, none of its Endpoints and EndpointSlices has a ready address, and no pod that it selects is
//!    ready. So whoever deletes endpoints alone gets nothing past a webhook: its pods have to be down. What cannot be read counts as up.
//! 3. Does the write bring it up ([`Need`])? It is one of a few kinds, about the Service's own pods, or a node's word about itself.
//!
//! Upstream has nothing like it.

use generic_server::ApiError;
use generic_server::admission::{Attributes, Operation};
use generic_server::dynamic_admission::webhook::{BreakGlass, ServiceName};
use generic_server::request::User;
use machinery::meta;
use serde_json::{Map, Value};

use super::is;
use crate::client::Client;
use crate::json::Json;

const NODE_USER: &str = "system:node:";
const SLICES: (&str, &str) = ("discovery.k8s.io", "endpointslices");
const SLICE_OF: &str = "kubernetes.io/service-name";
/// The workloads whose pods a Service selects by the labels of their template.
const WORKLOADS: [&str; 4] = ["daemonsets", "deployments", "replicasets", "statefulsets"];
/// The leases without which nothing is scheduled or replaced.
const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// The users of the scheduler and of the controllers that say what is ready.
const COMPONENTS: [&str; 5] = [
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:serviceaccount:kube-system:endpoint-controller",
    "system:serviceaccount:kube-system:endpointslice-controller",
    "system:serviceaccount:kube-system:node-controller",
];

/// What a write does for a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A component says whether the backend's pods are ready. Without it nobody would come to know that they are not, so that it goes on
    /// while they are thought to be.
    Readiness,
    /// It brings the backend's pods up.
    Pods,
    /// A node, or what watches over nodes, says that it is there.
    Nodes,
}

/// The rule.
#[derive(Debug)]
pub(super) struct BackendsFirst(pub(super) Client);

#[async_trait::async_trait]
impl BreakGlass for BackendsFirst {
    async fn lets_past(
        &self,
        service: &ServiceName,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> bool {
        self.decide(service, attributes, object).await.unwrap_or(false)
    }
}

impl BackendsFirst {
    async fn decide(
        &self,
        service: &ServiceName,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let (namespace, name) = (&*service.namespace, &*service.name);
        let Some(backend) = self.0.find(("", "services"), namespace, name).await? else {
            return Ok(false);
        };
        let selector = backend.object_at("spec.selector");
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            return Ok(false);
        };
        if backend.text("spec.type") == "ExternalName" {
            return Ok(false);
        }
        // A binding names its pod alone.
        let pod = match (&*attributes.gvr.resource, attributes.subresource) {
            ("pods", "binding") => self.0.find(("", "pods"), namespace, attributes.name).await?,
            _ => None,
        };
        Ok(match need(service, selector, attributes, object, pod.as_ref()) {
            None => false,
            Some(Need::Readiness) => true,
            Some(Need::Pods | Need::Nodes) => !self.is_up(namespace, name, selector).await?,
        })
    }

    /// Whether anything says that the Service can be reached.
    async fn is_up(
        &self,
        namespace: &str,
        name: &str,
        selector: &Map<String, Value>,
    ) -> Result<bool, ApiError> {
        let endpoints = self.0.find(("", "endpoints"), namespace, name).await?;
        let subsets = endpoints.iter().flat_map(|endpoints| endpoints.list("subsets"));
        if subsets
            .into_iter()
            .any(|subset| !subset.list("addresses").is_empty())
        {
            return Ok(true);
        }
        for entry in self.0.list(SLICES, namespace).await? {
            let slice = entry.value();
            let own = label(&slice, SLICE_OF) == name;
            let ready = |endpoint: &Value| endpoint.dig("conditions.ready") != &Value::Bool(false);
            if own && slice.list("endpoints").iter().any(ready) {
                return Ok(true);
            }
        }
        for entry in self.0.list(("", "pods"), namespace).await? {
            let pod = entry.value();
            let conditions = pod.list("status.conditions");
            let ready = |one: &Value| one.text("type") == "Ready" && one.text("status") == "True";
            if selects(selector, meta::labels(&pod)) && conditions.iter().any(ready) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn label<'o>(object: &'o Value, key: &str) -> &'o str {
    let labels = meta::labels(object);
    let value = labels.and_then(|labels| labels.get(key));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Whether a Service's selector is about an object with these labels.
fn selects(selector: &Map<String, Value>, labels: Option<&Map<String, Value>>) -> bool {
    labels.is_some_and(|labels| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Whether a user is a part of the cluster: a node, the scheduler, or a controller that keeps endpoints or watches over nodes.
fn is_component(user: &User) -> bool {
    is_node(user) || COMPONENTS.contains(&user.name.as_str())
}

fn is_node(user: &User) -> bool {
    user.name.starts_with(NODE_USER) && user.groups.iter().any(|group| group == "system:nodes")
}

/// What a write does for the backend of a Service with this selector, if it is one that may go on. `pod`: that of a binding.
fn need(
    service: &ServiceName,
    selector: &Map<String, Value>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    pod: Option<&Value>,
) -> Option<Need> {
    let Attributes {
        operation,
        gvr,
        subresource,
        name,
        namespace,
        old,
        ..
    } = *attributes;
    let user = attributes.authorized.user();
    let written = matches!(operation, Operation::Create | Operation::Update);
    if let Some(need) = of_nodes(attributes, user).filter(|_| written) {
        return Some(need);
    }
    if namespace != &*service.namespace {
        return None;
    }
    // The stored object and the new one both have to belong to the backend.
    let both = |about: &dyn Fn(&Value) -> bool| {
        let all: Vec<&Value> = object.into_iter().chain(old).collect();
        !all.is_empty() && all.into_iter().all(about)
    };
    let selected = |object: &Value| selects(selector, meta::labels(object));
    let readiness = if is_component(user) {
        Need::Readiness
    } else {
        Need::Pods
    };
    let needed = |need, holds: bool| holds.then_some(need);
    if is(gvr, "", "pods") {
        return match (operation, subresource) {
            (Operation::Create | Operation::Update | Operation::Delete, "") => {
                needed(Need::Pods, both(&selected))
            }
            (Operation::Update, "status") => needed(readiness, both(&selected)),
            (Operation::Create, "binding") => {
                needed(Need::Pods, is_component(user) && pod.is_some_and(selected))
            }
            _ => None,
        };
    }
    if !written {
        return None;
    }
    if is(gvr, "", "serviceaccounts") {
        // Kubelets ask for the tokens of the pods that they start.
        return needed(Need::Pods, subresource == "token" && is_node(user));
    }
    if !["", "status"].contains(&subresource) {
        return None;
    }
    if &*gvr.group == "apps" && WORKLOADS.contains(&&*gvr.resource) {
        let template = |object: &Value| selects(selector, object.object_at("spec.template.metadata.labels"));
        return needed(Need::Pods, both(&template));
    }
    if is(gvr, "", "endpoints") {
        return needed(readiness, name == &*service.name);
    }
    if is(gvr, SLICES.0, SLICES.1) {
        return needed(readiness, both(&|slice| label(slice, SLICE_OF) == &*service.name));
    }
    if is(gvr, "coordination.k8s.io", "leases") {
        return Some(Need::Pods);
    }
    None
}

/// The need that a write to a Node, CSINode or Lease meets: a node reports on itself, or a component reports on nodes.
fn of_nodes(attributes: &Attributes<'_>, user: &User) -> Option<Need> {
    let Attributes {
        gvr,
        subresource,
        name,
        namespace,
        ..
    } = *attributes;
    let itself = is_node(user) && user.name.strip_prefix(NODE_USER) == Some(name);
    let watches = is_component(user) && !is_node(user);
    let needed = match (&*gvr.group, &*gvr.resource, subresource) {
        ("", "nodes", "" | "status") => itself || watches,
        ("storage.k8s.io", "csinodes", "") => itself,
        ("coordination.k8s.io", "leases", "") => match namespace {
            "kube-node-lease" => itself,
            "kube-system" => watches && LEADERS.contains(&name),
            _ => false,
        },
        _ => false,
    };
    needed.then_some(Need::Nodes)
}
