//! What the kinds have of their own that quotas count more of than the number: which writes, which names, which scopes.

use std::collections::{BTreeMap, BTreeSet};

use generic_server::admission::{Attributes, Operation};
use machinery::{GroupResource, GroupVersionResource};
use serde_json::Value;

use super::scopes::{ScopeRequirement, is_terminating};
use super::usage::{self, CLASS_SUFFIX, DEVICES_SUFFIX};
use crate::json::Json;
use crate::resources::{Amounts, amounts};

/// Resources that are counted by their plain name, too.
const PLAIN_NAMES: [&str; 4] = [
    "configmaps",
    "secrets",
    "replicationcontrollers",
    "resourcequotas",
];
/// Resources that every container of a pod has to state when a quota counts them.
const STATED: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
const OF_PODS: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
const OF_SERVICES: [&str; 4] = [
    "count/services",
    "services",
    "services.nodeports",
    "services.loadbalancers",
];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

/// How the objects of a resource are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Evaluator {
    Pods,
    Services,
    Claims,
    DeviceClaims,
    /// By their number alone.
    Count(GroupResource),
}

impl Evaluator {
    /// Of a resource; `None` for those that are never counted.
    pub(super) fn of(gvr: &GroupVersionResource) -> Option<Self> {
        Some(match (&*gvr.group, &*gvr.resource) {
            ("", "bindings" | "componentstatuses" | "events") | ("events.k8s.io", "events") => return None,
            ("authentication.k8s.io", "tokenreviews" | "selfsubjectreviews") => return None,
            (
                "authorization.k8s.io",
                "subjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "localsubjectaccessreviews"
                | "selfsubjectrulesreviews",
            ) => return None,
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::Claims,
            ("resource.k8s.io", "resourceclaims") => Evaluator::DeviceClaims,
            _ => Evaluator::Count(gvr.group_resource()),
        })
    }

    /// Whether such writes may change a usage.
    pub(super) fn handles(&self, operation: Operation, subresource: &str) -> bool {
        let created = operation == Operation::Create;
        let updated = operation == Operation::Update;
        match (self, subresource) {
            (Evaluator::Count(_), "") => created,
            (_, "") => created || updated,
            (Evaluator::Pods, "resize") | (Evaluator::Claims, "status") => updated,
            _ => false,
        }
    }

    /// Whether this write may: an update of a pod counts when it is resized or begins or ceases to have a deadline.
    pub(super) fn handles_write(&self, attributes: &Attributes<'_>, object: &Value) -> bool {
        let plain_update = attributes.operation == Operation::Update && attributes.subresource.is_empty();
        match (self, attributes.old) {
            (Evaluator::Pods, Some(old)) if plain_update => is_terminating(old) != is_terminating(object),
            _ => true,
        }
    }

    /// Whether a name of a quota is about such objects.
    pub(super) fn counts(&self, name: &str) -> bool {
        match self {
            Evaluator::Pods => {
                let extended = name.strip_prefix("requests.").is_some_and(|name| {
                    (name.contains('/') && !name.contains("kubernetes.io/"))
                        || name.starts_with("deviceclass.resource.kubernetes.io/")
                });
                let huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
                OF_PODS.contains(&name) || huge || extended
            }
            Evaluator::Services => OF_SERVICES.contains(&name),
            Evaluator::Claims => {
                let of_class = name.split_once(CLASS_SUFFIX).map(|(_, name)| name);
                let plain = of_class.unwrap_or(name);
                OF_CLAIMS.contains(&plain) || name == "count/persistentvolumeclaims"
            }
            Evaluator::DeviceClaims => {
                name == "count/resourceclaims.resource.k8s.io" || name.ends_with(DEVICES_SUFFIX)
            }
            Evaluator::Count(resource) => {
                let plain = resource.group.is_empty() && PLAIN_NAMES.contains(&name);
                name == usage::count_name(resource) || (plain && name == &*resource.resource)
            }
        }
    }

    /// Whether an object is within a scope.
    pub(super) fn within(&self, scope: &ScopeRequirement, object: &Value) -> bool {
        match self {
            Evaluator::Pods => scope.has_pod(object),
            Evaluator::Claims => scope.has_claim(object),
            _ => false,
        }
    }

    /// Whether uncovered scopes matter.
    pub(super) fn has_scopes(&self) -> bool {
        matches!(self, Evaluator::Pods | Evaluator::Claims)
    }

    pub(super) fn usage(&self, object: &Value) -> Amounts {
        match self {
            Evaluator::Pods => usage::of_pod(object),
            Evaluator::Services => usage::of_service(object),
            Evaluator::Claims => usage::of_claim(object),
            Evaluator::DeviceClaims => usage::of_device_claim(object),
            Evaluator::Count(resource) => {
                let mut out = Amounts::new();
                let one = machinery::quantity::Quantity::from_i64(1, machinery::quantity::Format::DecimalSI);
                out.insert(usage::count_name(resource), one.clone());
                if resource.group.is_empty() && PLAIN_NAMES.contains(&&*resource.resource) {
                    out.insert(resource.resource.to_string(), one);
                }
                out
            }
        }
    }

    /// Refuses an object that does not state what a quota counts: `must specify limits.memory for: c`.
    pub(super) fn check_stated(&self, counted: &[&str], object: &Value) -> Result<(), String> {
        if *self != Evaluator::Pods || has_own_resources(object) {
            return Ok(());
        }
        let stated: Vec<&str> = counted
            .iter()
            .copied()
            .filter(|name| STATED.contains(name))
            .collect();
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for list in ["spec.containers", "spec.initContainers"] {
            for container in object.list(list) {
                let [requests, limits] =
                    ["requests", "limits"].map(|key| amounts(container.dig("resources").dig(key)));
                let own = usage::compute(&requests, &limits);
                for name in stated.iter().filter(|name| !own.contains_key(**name)) {
                    missing.entry(name).or_default().insert(container.text("name"));
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.into_iter().map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        });
        Err(format!("must specify {}", missing.collect::<Vec<_>>().join("; ")))
    }
}

/// Whether the resources of a pod as a whole are set.
fn has_own_resources(pod: &Value) -> bool {
    ["spec.resources.requests", "spec.resources.limits"]
        .iter()
        .any(|path| {
            pod.entries(path)
                .any(|(name, _)| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))
        })
}
