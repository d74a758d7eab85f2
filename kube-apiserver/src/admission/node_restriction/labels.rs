//! The labels that a kubelet may put on its own Node: its own, those of nodes, and all outside Kubernetes' domains.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::json::Json;

/// Labels of Kubernetes that kubelets set.
const KUBELET_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Prefixes of which kubelets set any label.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// The labels that were added, removed or changed from `old` to `new` and that are not a kubelet's to set, sorted.
pub(super) fn forbidden<'a>(new: &'a Value, old: &'a Value) -> Vec<&'a str> {
    let (before, after) = (old.dig("metadata.labels"), new.dig("metadata.labels"));
    let all: BTreeSet<&str> = [before, after]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|labels| labels.keys().map(String::as_str))
        .collect();
    all.into_iter()
        .filter(|label| before.get(*label) != after.get(*label))
        .filter(|label| !may_set(label))
        .collect()
}

fn may_set(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    if is_or_below(domain, "node-restriction.kubernetes.io") {
        return false;
    }
    let kubernetes = is_or_below(domain, "kubernetes.io") || is_or_below(domain, "k8s.io");
    !kubernetes
        || KUBELET_LABELS.contains(&label)
        || KUBELET_DOMAINS.iter().any(|parent| is_or_below(domain, parent))
}

fn is_or_below(domain: &str, parent: &str) -> bool {
    domain
        .strip_suffix(parent)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
