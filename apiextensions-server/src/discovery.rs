//! Discovery of custom resources. Mirrors `pkg/apiserver/customresource_discovery_controller.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use generic_server::discovery::{GroupDiscovery, ResourceDocument, SubresourceDocument, version_discovery};
use generic_server::resource::Scope;
use machinery::GroupVersionKind;

use crate::crd::priority;
use crate::definition::{Definition, VersionInfo};
use crate::index::{Group, Index};

const VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
/// While a CRD is being deleted.
const TERMINATING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];
const VIEW_VERBS: &[&str] = &["get", "patch", "update"];

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_string()).collect()
}

fn document(definition: &Definition, version: &VersionInfo) -> ResourceDocument {
    let names = &definition.facts.names;
    let mut subresources = Vec::new();
    if version.has_status {
        subresources.push(SubresourceDocument {
            name: "status".into(),
            kind: None,
            verbs: strings(VIEW_VERBS),
        });
    }
    if version.scale.is_some() {
        subresources.push(SubresourceDocument {
            name: "scale".into(),
            kind: Some(GroupVersionKind::new("autoscaling", "v1", "Scale")),
            verbs: strings(VIEW_VERBS),
        });
    }
    ResourceDocument {
        name: definition.plural.clone(),
        singular: names.singular.clone(),
        namespaced: definition.facts.scope == Scope::Namespaced,
        kind: names.kind.clone(),
        verbs: strings(if definition.terminating {
            TERMINATING_VERBS
        } else {
            VERBS
        }),
        short: names.short.clone(),
        categories: names.categories.clone(),
        storage_version_hash: definition.storage_version_hash(),
        full_kinds: true,
        subresources,
    }
}

/// A group with its served versions, preferred first; `None` when nothing of it is served.
fn group_discovery(name: &Arc<str>, group: &Group) -> Option<Arc<GroupDiscovery>> {
    let mut versions: BTreeMap<Arc<str>, Vec<ResourceDocument>> = BTreeMap::new();
    for definition in group.crds.values().filter(|d| d.established) {
        for version in definition.facts.versions.iter().filter(|v| v.served) {
            let documents = versions.entry(version.name.clone()).or_default();
            documents.push(document(definition, version));
        }
    }
    let mut versions: Vec<_> = versions.into_iter().collect();
    versions.sort_by(|a, b| priority::compare(&b.0, &a.0));
    if versions.is_empty() {
        return None;
    }
    let publish = |(version, documents): &(Arc<str>, Vec<ResourceDocument>)| {
        Arc::new(version_discovery(name, version, documents, false))
    };
    Some(Arc::new(GroupDiscovery {
        group: name.clone(),
        versions: versions.iter().map(publish).collect(),
    }))
}

/// All groups that CRDs define. Groups that have not changed since the last call are reused.
pub(crate) fn groups(index: &Index) -> Vec<Arc<GroupDiscovery>> {
    let one = |(name, group): (&Arc<str>, &Arc<Group>)| {
        group
            .discovery
            .get_or_init(|| group_discovery(name, group))
            .clone()
    };
    index.groups.iter().filter_map(one).collect()
}
