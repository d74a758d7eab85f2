//! The kinds that a policy is about, as far as its rules name them, and their types.

use std::collections::BTreeSet;

use generic_server::ApiError;
use generic_server::directory::{Directory, Registered};
use generic_server::dynamic_admission::policy::type_check::{self, CheckedKind};
use machinery::schema::{KindSchema, builtin, crd};
use machinery::{GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::client::{At, Client};
use crate::json::Json;

/// How many kinds of a rule end the search. Upstream's figure.
const MOST_KINDS: usize = 10;
const CRDS: At<'static> = ("apiextensions.k8s.io", "customresourcedefinitions");

/// The kinds that the rules of a policy name: by group, version and resource, without stars and subresources. In order.
pub(super) fn of_policy(policy: &Value, directory: &Directory) -> BTreeSet<GroupVersionKind> {
    let mut found = BTreeSet::new();
    for rule in policy.list("spec.matchConstraints.resourceRules") {
        let texts = |key: &str| {
            let mut texts: Vec<&str> = rule.list(key).iter().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let mut resources = texts("resources");
        resources.retain(|resource| !resource.contains(['*', '/']));
        let mut count = 0;
        for group in &groups {
            for version in &versions {
                for resource in &resources {
                    for kind in of_resource(directory, group, version, &resource.to_lowercase()) {
                        found.insert(kind);
                        count += 1;
                        if count == MOST_KINDS {
                            return found;
                        }
                    }
                }
            }
        }
    }
    found
}

/// The kinds of a resource, by its plural or singular name. Without a group those of every group that has this version, as upstream's
/// mapper finds them.
fn of_resource(directory: &Directory, group: &str, version: &str, name: &str) -> BTreeSet<GroupVersionKind> {
    let mut found = BTreeSet::new();
    for (key, registered) in directory.all().iter() {
        let singular = &*registered.resource.names.singular == name;
        for (gvr, gvk) in served(directory, key, registered) {
            let named = singular || &*gvr.resource == name;
            if named && &*gvr.version == version && (group.is_empty() || &*gvr.group == group) {
                found.insert(gvk);
            }
        }
    }
    // Reviews and the like are stored nowhere.
    let plural = |kind: &str| format!("{}s", kind.to_lowercase());
    let stored = |gvk: &GroupVersionKind| directory.of_kind(&gvk.group_kind()).is_some();
    let others = builtin()
        .kinds()
        .filter(|(of, at, kind, _)| {
            *at == version && (group.is_empty() || *of == group) && plural(kind) == name
        })
        .map(|(of, at, kind, _)| GroupVersionKind::new(of, at, kind));
    found.extend(others.filter(|gvk| !stored(gvk)));
    found
}

/// The versions of a stored resource, which may be of different groups.
fn served(
    directory: &Directory,
    key: &GroupResource,
    registered: &Registered,
) -> Vec<(GroupVersionResource, GroupVersionKind)> {
    let resource = &registered.resource;
    match directory.versions(key) {
        Some(versions) => {
            let served = versions.served().iter();
            served.map(|one| (one.gvr.clone(), one.gvk.clone())).collect()
        }
        None => vec![(resource.gvr.clone(), resource.gvk.clone())],
    }
}

/// The `paramKind` of a policy.
pub(super) fn of_params(policy: &Value) -> Option<GroupVersionKind> {
    let params = policy.dig("spec.paramKind");
    if params.is_null() {
        return None;
    }
    let version = GroupVersion::parse(params.text("apiVersion"))?;
    Some(GroupVersionKind::new(
        &version.group,
        &version.version,
        params.text("kind"),
    ))
}

/// A kind with its type; `None`: it has no schema here.
///
/// # Errors
/// Definitions cannot be read.
pub(super) async fn read(client: &Client, gvk: &GroupVersionKind) -> Result<Option<CheckedKind>, ApiError> {
    let checked = |declared| {
        Some(CheckedKind {
            gvk: gvk.clone(),
            declared,
        })
    };
    if let Some(schema) = builtin().kind(&gvk.group, &gvk.version, &gvk.kind) {
        return Ok(checked(type_check::declared(schema.root())));
    }
    let Some(registered) = client.directory().of_kind(&gvk.group_kind()) else {
        return Ok(None);
    };
    let resource = &registered.resource.gvr;
    let name = format!("{}.{}", resource.resource, resource.group);
    let Some(definition) = client.find(CRDS, "", &name).await? else {
        return Ok(None);
    };
    let versions = definition.list("spec.versions").iter();
    let mut served = versions.filter(|version| version.flag("served"));
    let Some(version) = served.find(|version| version.text("name") == &*gvk.version) else {
        return Ok(None);
    };
    let schema = Some(version.dig("schema.openAPIV3Schema")).filter(|schema| schema.is_object());
    let schema = schema.and_then(|schema| {
        // One that does not compile serves nothing either.
        let compiled = crd::compile(schema).ok()?;
        let root = compiled.root?;
        Some(KindSchema::new(compiled.into(), root))
    });
    let declared = type_check::declared_custom(schema.as_ref().map(KindSchema::root));
    Ok(checked(Some(declared)))
}

#[cfg(test)]
mod tests;
