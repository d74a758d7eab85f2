//! Sums of resources over containers.

use std::collections::BTreeMap;

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
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, &amounts(container.dig(path)));
    }
    // Sidecars run beside everything after them; other init containers run alone with the sidecars before them.
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.list("initContainers") {
        let own = amounts(container.dig(path));
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
    pod_total(spec, requests_of_containers(spec), "resources.requests")
}

/// The limits of a pod.
pub(crate) fn pod_limits(spec: &Value) -> Amounts {
    pod_total(spec, limits_of_containers(spec), "resources.limits")
}

fn pod_total(spec: &Value, mut total: Amounts, path: &str) -> Amounts {
    for (name, quantity) in amounts(spec.dig(path)) {
        total.insert(name, quantity);
    }
    add(&mut total, &amounts(spec.dig("overhead")));
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
}
