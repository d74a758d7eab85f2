//! Sums of resources over containers.

use std::collections::{BTreeMap, HashMap, HashSet};

use machinery::quantity::Quantity;
use serde_json::Value;

use crate::json::Json;
use crate::quantity::amount;

/// Amounts by resource name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// A list of resources as amounts; values that are no quantity are left out.
pub(crate) fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), amount(value)?)))
        .collect()
}

/// Adds amounts.
pub(crate) fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        let sum = match total.get(name) {
            Some(have) => have.add(quantity),
            None => quantity.clone(),
        };
        total.insert(name.clone(), sum);
    }
}

/// Keeps the larger amount of each resource.
fn max(total: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        if total.get(name).is_none_or(|have| have < quantity) {
            total.insert(name.clone(), quantity.clone());
        }
    }
}

/// The sum of the requests of a pod specification's containers, sidecars and init containers as upstream counts them.
pub(crate) fn requests_of_containers(spec: &Value) -> Amounts {
    of_containers(spec, "resources.requests")
}

/// The same of their limits.
pub(crate) fn limits_of_containers(spec: &Value) -> Amounts {
    of_containers(spec, "resources.limits")
}

/// Those of some amounts that have one of these names.
fn beside<'n>(amounts: &Amounts, names: impl Iterator<Item = &'n String>) -> Amounts {
    names
        .filter_map(|name| Some((name.clone(), amounts.get(name)?.clone())))
        .collect()
}

fn of_containers(spec: &Value, path: &str) -> Amounts {
    sum_of_containers(spec, |container| amounts(container.dig(path)))
}

/// The sum over containers of the amounts that `of` gives for each.
fn sum_of_containers(spec: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, &of(container));
    }
    // Sidecars run beside everything after them; other init containers run alone with the sidecars before them.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.list("initContainers") {
        let own = of(container);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            // The peak is nowhere below the sidecars: only what this container has can rise above it.
            max(&mut peak, &beside(&sidecars, own.keys()));
        } else {
            let mut alone = beside(&sidecars, own.keys());
            add(&mut alone, &own);
            max(&mut peak, &alone);
        }
    }
    max(&mut total, &peak);
    total
}

/// The requests of a pod: its own figures over those of its containers, and its overhead.
pub(crate) fn pod_requests(spec: &Value) -> Amounts {
    requests_over(spec, requests_of_containers(spec))
}

/// The limits of a pod.
pub(crate) fn pod_limits(spec: &Value) -> Amounts {
    limits_over(spec, limits_of_containers(spec))
}

/// The requests of a pod that may be being resized: of each container the largest of what it wants, what its node has
/// allocated and what is in effect there.
pub(crate) fn effective_requests(pod: &Value) -> Amounts {
    let statuses = Statuses::of(pod);
    let containers = sum_of_containers(pod.dig("spec"), |container| {
        statuses.effective(container, "requests", true)
    });
    requests_over(pod.dig("spec"), containers)
}

/// The limits of a pod that may be being resized.
pub(crate) fn effective_limits(pod: &Value) -> Amounts {
    let statuses = Statuses::of(pod);
    let containers = sum_of_containers(pod.dig("spec"), |container| {
        statuses.effective(container, "limits", false)
    });
    limits_over(pod.dig("spec"), containers)
}

/// The statuses of a pod's containers that can be resized, by name.
struct Statuses<'p> {
    by_name: HashMap<&'p str, &'p Value>,
    infeasible: bool,
}

impl<'p> Statuses<'p> {
    fn of(pod: &'p Value) -> Self {
        let sidecars = pod.list("spec.initContainers").iter();
        let sidecars: HashSet<&str> = sidecars
            .filter(|container| container.text("restartPolicy") == "Always")
            .map(|container| container.text("name"))
            .collect();
        let own = pod.list("status.containerStatuses").iter();
        let initial = pod.list("status.initContainerStatuses").iter();
        let initial = initial.filter(|status| sidecars.contains(status.text("name")));
        let mut conditions = pod.list("status.conditions").iter();
        let pending = conditions.find(|condition| condition.text("type") == "PodResizePending");
        Statuses {
            by_name: own
                .chain(initial)
                .filter(|status| status.has("resources"))
                .map(|status| (status.text("name"), status))
                .collect(),
            infeasible: pending.is_some_and(|condition| condition.text("reason") == "Infeasible"),
        }
    }

    fn effective(&self, container: &Value, key: &str, with_allocated: bool) -> Amounts {
        let wanted = amounts(container.dig("resources").dig(key));
        let Some(status) = self.by_name.get(container.text("name")) else {
            return wanted;
        };
        let mut effective = if self.infeasible { Amounts::new() } else { wanted };
        max(&mut effective, &amounts(status.dig("resources").dig(key)));
        if with_allocated {
            max(&mut effective, &amounts(status.dig("allocatedResources")));
        }
        effective
    }
}

fn requests_over(spec: &Value, mut total: Amounts) -> Amounts {
    total.extend(amounts(spec.dig("resources.requests")));
    add(&mut total, &amounts(spec.dig("overhead")));
    total
}

fn limits_over(spec: &Value, mut total: Amounts) -> Amounts {
    total.extend(amounts(spec.dig("resources.limits")));
    for (name, overhead) in amounts(spec.dig("overhead")) {
        // What is not limited stays so.
        if let Some(limit) = total.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = limit.add(&overhead);
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn init_containers_count_by_their_peak() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"resources": {"requests": {"cpu": "2"}}}],
            "overhead": {"cpu": "10m"}});
        assert_eq!(requests_of_containers(&spec)["cpu"].to_string(), "2100m");
        assert_eq!(pod_requests(&spec)["cpu"].to_string(), "2110m");
    }

    #[test]
    fn overhead_is_added_to_what_is_limited_alone() {
        let spec = json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}], "overhead": {"cpu": "10m", "memory": "1Mi"}});
        let limits = pod_limits(&spec);
        assert_eq!(limits["cpu"].to_string(), "1010m");
        assert_eq!(limits.get("memory"), None);
    }

    #[test]
    fn a_resize_counts_the_largest_of_what_is_wanted_and_what_is_in_effect() {
        let pod = |reason: &str| {
            json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
                    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {
                    "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}],
                    "initContainerStatuses": [{"name": "i", "resources": {"requests": {"cpu": "9"}}}],
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}]}})
        };
        assert_eq!(effective_requests(&pod("Deferred"))["cpu"].to_string(), "3");
        assert_eq!(effective_limits(&pod("Deferred"))["cpu"].to_string(), "2");
        assert_eq!(effective_limits(&pod("Infeasible"))["cpu"].to_string(), "1");
    }
}
