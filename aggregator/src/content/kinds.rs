//! The kinds of remote servers that are available, read from their last discovery document, once per change of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use generic_server::directory::RemoteResource;
use generic_server::discovery::DiscoverySource;
use machinery::{GroupResource, GroupVersionKind, meta};
use parking_lot::Mutex;
use serde_json::Value;

use crate::local::version_rank;
use crate::published::Published;

type Resources = Arc<[Arc<RemoteResource>]>;

/// The kinds that were read last, and their generation.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<(Option<u64>, Resources)>);

impl Kinds {
    /// The resources, each at the newest version that an available server has.
    pub(super) fn of(&self, published: &Published) -> Resources {
        let generation = Some(*published.changes().borrow());
        let mut kept = self.0.lock();
        if kept.0 != generation {
            *kept = (generation, read(published));
        }
        kept.1.clone()
    }
}

fn read(published: &Published) -> Resources {
    let mut all: BTreeMap<GroupResource, RemoteResource> = BTreeMap::new();
    for (backend, available) in published.backends() {
        let Some(known) = backend.known.load_full().filter(|_| available) else {
            continue;
        };
        for resource in resources(&known.aggregated, &backend.spec.group, &backend.spec.version) {
            let key = resource.group_resource();
            let newer = |other: &RemoteResource| {
                version_rank(&resource.kind.version) > version_rank(&other.kind.version)
            };
            if all.get(&key).is_none_or(newer) {
                all.insert(key, resource);
            }
        }
    }
    all.into_values().map(Arc::new).collect()
}

/// The resources of an element of aggregated discovery.
fn resources(element: &[u8], group: &str, version: &str) -> Vec<RemoteResource> {
    let element: Value = serde_json::from_slice(element).unwrap_or_default();
    let list = element.get("resources").and_then(Value::as_array);
    let one = |resource: &Value| {
        let verbs = resource.get("verbs")?.as_array()?;
        let can = |verb: &str| verbs.iter().any(|v| v == verb);
        let kind = meta::dig_str(resource, &["responseKind", "kind"]);
        Some(RemoteResource {
            kind: GroupVersionKind::new(group, version, kind),
            resource: meta::dig_str(resource, &["resource"]).into(),
            namespaced: meta::dig_str(resource, &["scope"]) == "Namespaced",
            followable: can("list") && can("watch") && can("delete"),
        })
    };
    list.into_iter()
        .flatten()
        .filter_map(one)
        .filter(|r| !r.resource.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_read() {
        let element = json!({"version": "v1", "resources": [
            {"resource": "as", "responseKind": {"kind": "A"}, "scope": "Namespaced", "verbs": ["list", "watch", "delete", "get"]},
            {"resource": "bs", "responseKind": {"kind": "B"}, "scope": "Cluster", "verbs": ["list", "get"]},
            {"resource": "cs"},
        ]});
        let found = resources(element.to_string().as_bytes(), "g", "v1");
        let actual: Vec<_> = found
            .iter()
            .map(|r| (&*r.resource, &*r.kind.kind, r.namespaced, r.followable))
            .collect();
        assert_eq!(actual, [("as", "A", true, true), ("bs", "B", false, false)]);
        assert!(resources(b"garbage", "g", "v1").is_empty());
    }
}
