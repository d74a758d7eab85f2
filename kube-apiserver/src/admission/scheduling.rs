//! Plugins that decide where pods may go: LimitPodHardAntiAffinityTopology, ExtendedResourceToleration and
//! PodTopologyLabels.

use std::collections::BTreeSet;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{GroupVersionResource, meta};
use serde_json::{Value, json};

use super::is;
use crate::client::Client;
use crate::json::{Json, same};

const HOSTNAME: &str = "kubernetes.io/hostname";
/// The node labels that pods are given.
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Whether a write is of a pod itself.
fn writes_pod(operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
    matches!(operation, Operation::Create | Operation::Update)
        && subresource.is_empty()
        && is(gvr, "", "pods")
}

#[derive(Debug)]
pub(super) struct LimitPodHardAntiAffinityTopology;

#[async_trait::async_trait]
impl AdmissionPlugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        writes_pod(operation, gvr, subresource)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let terms = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        let mut keys = pod.list(terms).iter().map(|term| term.text("topologyKey"));
        match keys.find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => Err(ApiError::forbidden(
                &attributes.gvr.group_resource(),
                meta::name(pod),
                format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                ),
            )),
        }
    }
}

#[derive(Debug)]
pub(super) struct ExtendedResourceToleration;

#[async_trait::async_trait]
impl AdmissionPlugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        writes_pod(operation, gvr, subresource)
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        if let Some(pod) = object {
            tolerate_extended_resources(pod);
        }
        Ok(())
    }
}

fn tolerate_extended_resources(pod: &mut Value) {
    let spec = pod.dig("spec");
    let containers = spec.list("containers").iter().chain(spec.list("initContainers"));
    let resources: BTreeSet<String> = containers
        .flat_map(|container| container.entries("resources.requests"))
        .filter(|(name, _)| is_extended(name))
        .map(|(name, _)| name.to_string())
        .collect();
    if resources.is_empty() {
        return;
    }
    let mut tolerations = spec.list("tolerations").to_vec();
    for resource in resources {
        let wanted = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        // Tolerations are the same when all but their seconds are equal.
        let identity = |t: &Value| ["key", "operator", "value", "effect"].map(|k| t.text(k).to_string());
        let mut found = false;
        for toleration in tolerations
            .iter_mut()
            .filter(|t| identity(t) == identity(&wanted))
        {
            found = true;
            if !same(toleration, &wanted) {
                *toleration = wanted.clone();
            }
        }
        if !found {
            tolerations.push(wanted);
        }
    }
    pod.ensure("spec").put("tolerations", tolerations);
}

/// Whether a resource is none of Kubernetes' own. Its name has been validated, or will be.
pub(super) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[derive(Debug)]
pub(super) struct PodTopologyLabels(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && is(gvr, "", "pods") && matches!(subresource, "" | "binding")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        let node = match attributes.subresource {
            "" => object.text("spec.nodeName"),
            _ if object.text("target.kind") == "Node" => object.text("target.name"),
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = self.0.find(("", "nodes"), "", node).await? else {
            return Ok(());
        };
        let labels = node.dig("metadata.labels");
        for label in TOPOLOGY_LABELS {
            if let Some(value) = labels.get(label) {
                let metadata = object.ensure("metadata");
                metadata.ensure("labels").put(label, value.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_resources_are_tolerated_once() {
        let mut pod = json!({"spec": {
            "containers": [{"resources": {"requests": {"example.com/gpu": "1", "cpu": "1", "x.kubernetes.io/y": "1"}}}],
            "initContainers": [{"resources": {"requests": {"a.com/b": "1", "example.com/gpu": "2"}}}],
            "tolerations": [
                {"key": "other"},
                {"key": "a.com/b", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
            ],
        }});
        for _ in 0..2 {
            tolerate_extended_resources(&mut pod);
            assert_eq!(
                pod["spec"]["tolerations"],
                json!([
                    {"key": "other"},
                    {"key": "a.com/b", "operator": "Exists", "effect": "NoSchedule"},
                    {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                ])
            );
        }
    }
}
