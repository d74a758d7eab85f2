//! The pieces of one group version, from its resources.

use std::sync::Arc;

use machinery::GroupVersionKind;
use serde_json::{Map, Value, json};

use super::VersionDiscovery;
use crate::resource::{Backend, Scope, ServedResource, Subresource};

/// A resource, as discovery describes it.
#[derive(Debug, Clone)]
pub struct ResourceDocument {
    /// The plural name.
    pub name: Arc<str>,
    /// The singular name.
    pub singular: Arc<str>,
    /// Namespaced or not.
    pub namespaced: bool,
    /// The kind.
    pub kind: Arc<str>,
    /// Sorted.
    pub verbs: Vec<String>,
    /// Short names.
    pub short: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// For the legacy list; empty when not stored.
    pub storage_version_hash: String,
    /// Whether kinds in the aggregated document name their group and version (custom resources) or leave them empty.
    pub full_kinds: bool,
    /// Its subresources.
    pub subresources: Vec<SubresourceDocument>,
}

/// A subresource, as discovery describes it.
#[derive(Debug, Clone)]
pub struct SubresourceDocument {
    /// `status`.
    pub name: String,
    /// Its kind, where it is not the parent's.
    pub kind: Option<GroupVersionKind>,
    /// Sorted.
    pub verbs: Vec<String>,
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_string()).collect()
}

/// The discovery of served resources.
pub fn resource_documents(resources: &[Arc<ServedResource>]) -> Vec<ResourceDocument> {
    let mut documents: Vec<ResourceDocument> = resources.iter().map(|r| document(r)).collect();
    documents.sort_by(|a, b| a.name.cmp(&b.name));
    documents
}

fn document(resource: &ServedResource) -> ResourceDocument {
    let verbs = match &resource.backend {
        Backend::Stored(_) => strings(resource.verbs),
        Backend::Virtual(backend) => strings(backend.verbs()),
    };
    let subresources = resource
        .subresources
        .iter()
        .filter(|(_, subresource)| subresource.is_published())
        .map(|(name, subresource)| match subresource {
            Subresource::View(strategy) => SubresourceDocument {
                name: name.clone(),
                kind: None,
                verbs: strings(strategy.view_verbs()),
            },
            Subresource::Scale(_) => SubresourceDocument {
                name: name.clone(),
                kind: Some(GroupVersionKind::new("autoscaling", "v1", "Scale")),
                verbs: strings(&["get", "patch", "update"]),
            },
            Subresource::Create(handler) => SubresourceDocument {
                name: name.clone(),
                kind: Some(handler.kind()).filter(|kind| *kind != resource.gvk),
                verbs: strings(&["create"]),
            },
            Subresource::Connect(handler) => SubresourceDocument {
                name: name.clone(),
                kind: Some(handler.kind()).filter(|kind| *kind != resource.gvk),
                verbs: strings(handler.verbs()),
            },
        });
    ResourceDocument {
        name: resource.gvr.resource.clone(),
        singular: resource.names.singular.clone(),
        namespaced: resource.scope == Scope::Namespaced,
        kind: resource.names.kind.clone(),
        verbs,
        short: resource.names.short.clone(),
        categories: resource.names.categories.clone(),
        storage_version_hash: resource.storage_version_hash.clone(),
        full_kinds: resource.custom,
        subresources: subresources.collect(),
    }
}

/// The published pieces of a group version. `stale` marks what an unreachable server last said.
pub fn version_discovery(
    group: &str,
    version: &str,
    resources: &[ResourceDocument],
    stale: bool,
) -> VersionDiscovery {
    let group_version = if group.is_empty() {
        version.to_string()
    } else {
        format!("{group}/{version}")
    };
    let mut list = Vec::new();
    let mut aggregated = Vec::new();
    for resource in resources {
        legacy(group, version, resource, &mut list);
        aggregated.push(modern(group, version, resource));
    }
    let mut document = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": list});
    // The core group's documents of old carry no apiVersion.
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    let freshness = if stale { "Stale" } else { "Current" };
    let mut element = json!({"version": version, "freshness": freshness});
    if !aggregated.is_empty() {
        element["resources"] = aggregated.into();
    }
    VersionDiscovery {
        version: version.into(),
        resource_list: document.to_string().into(),
        aggregated: element.to_string().into(),
        stale,
    }
}

fn insert_lists(out: &mut Map<String, Value>, resource: &ResourceDocument) {
    out.insert("verbs".into(), resource.verbs.clone().into());
    if !resource.short.is_empty() {
        out.insert("shortNames".into(), resource.short.clone().into());
    }
    if !resource.categories.is_empty() {
        out.insert("categories".into(), resource.categories.clone().into());
    }
}

fn legacy(group: &str, version: &str, resource: &ResourceDocument, list: &mut Vec<Value>) {
    let mut one = Map::new();
    one.insert("name".into(), (*resource.name).into());
    one.insert("singularName".into(), (*resource.singular).into());
    one.insert("namespaced".into(), resource.namespaced.into());
    one.insert("kind".into(), (*resource.kind).into());
    insert_lists(&mut one, resource);
    if !resource.storage_version_hash.is_empty() {
        one.insert(
            "storageVersionHash".into(),
            resource.storage_version_hash.clone().into(),
        );
    }
    list.push(Value::Object(one));
    for subresource in &resource.subresources {
        let mut one = Map::new();
        one.insert(
            "name".into(),
            format!("{}/{}", resource.name, subresource.name).into(),
        );
        one.insert("singularName".into(), "".into());
        one.insert("namespaced".into(), resource.namespaced.into());
        let kind = subresource.kind.as_ref();
        one.insert("kind".into(), kind.map_or(&*resource.kind, |k| &*k.kind).into());
        if let Some(kind) = kind.filter(|k| (&*k.group, &*k.version) != (group, version)) {
            if !kind.group.is_empty() {
                one.insert("group".into(), (*kind.group).into());
            }
            one.insert("version".into(), (*kind.version).into());
        }
        one.insert("verbs".into(), subresource.verbs.clone().into());
        list.push(Value::Object(one));
    }
}

fn modern(group: &str, version: &str, resource: &ResourceDocument) -> Value {
    let (own_group, own_version) = if resource.full_kinds {
        (group, version)
    } else {
        ("", "")
    };
    let mut one = Map::new();
    one.insert("resource".into(), (*resource.name).into());
    let kind = json!({"group": own_group, "version": own_version, "kind": &*resource.kind});
    one.insert("responseKind".into(), kind.clone());
    one.insert(
        "scope".into(),
        if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        }
        .into(),
    );
    one.insert("singularResource".into(), (*resource.singular).into());
    insert_lists(&mut one, resource);
    if !resource.subresources.is_empty() {
        let subresources = resource.subresources.iter().map(|subresource| {
            let kind = match &subresource.kind {
                None => kind.clone(),
                Some(other) if (&*other.group, &*other.version) == (group, version) => {
                    json!({"group": own_group, "version": own_version, "kind": &*other.kind})
                }
                Some(other) => {
                    json!({"group": &*other.group, "version": &*other.version, "kind": &*other.kind})
                }
            };
            json!({"subresource": subresource.name, "responseKind": kind, "verbs": subresource.verbs})
        });
        one.insert("subresources".into(), subresources.collect());
    }
    Value::Object(one)
}
