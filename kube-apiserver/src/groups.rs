//! Every built-in group: one module per group, one file per kind.

use std::sync::Arc;

use generic_server::directory::{self, SharedStore};
use generic_server::resource::ServedResource;
use generic_server::server::GroupSpec;
use machinery::GroupResource;

use crate::deps::Deps;
use crate::kind::Builder;

pub(crate) mod admissionregistration;
pub(crate) mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
pub(crate) mod certificates;
mod coordination;
pub(crate) mod core;
mod discovery;
mod events;
pub(crate) mod flowcontrol;
mod internal;
mod networking;
mod node;
mod node_labels;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;
pub(crate) mod storagemigration;

#[cfg(test)]
pub(crate) mod check;
#[cfg(test)]
mod growth;
#[cfg(test)]
mod schemas;

type Resources = Vec<Arc<ServedResource>>;
/// Versions with their resources, preferred first.
type Versions = Vec<(&'static str, Resources)>;

/// A built-in group: all that the rest of the server has to know of it.
struct Group {
    name: &'static str,
    /// `groupPriorityMinimum` of its APIServices. Upstream's.
    priority: i32,
    /// `versionPriority` of its versions, those that are not named have 9. Upstream's.
    versions: &'static [(&'static str, i32)],
    make: Make,
}

/// How the resources of a group are made.
enum Make {
    /// It has one version, v1.
    V1(fn(&Builder<'_>) -> Resources),
    /// It has several versions, or shares stores with the groups before it.
    Versions(fn(&Deps, &[GroupSpec]) -> Versions),
    /// It has one version, v1beta1, which is off unless the switch says otherwise.
    Beta {
        is_on: fn(&Deps) -> bool,
        make: fn(&Builder<'_>) -> Resources,
    },
}

const fn group(name: &'static str, priority: i32, make: fn(&Builder<'_>) -> Resources) -> Group {
    Group {
        name,
        priority,
        versions: &[("v1", 15)],
        make: Make::V1(make),
    }
}

/// In the order of discovery. A new group is one line here.
const GROUPS: [Group; 21] = [
    Group {
        versions: &[("v1", 1)],
        ..group("", 18_000, core::v1)
    },
    group("apps", 17_800, apps::v1),
    Group {
        name: "events.k8s.io",
        priority: 17_750,
        versions: &[("v1", 15)],
        make: Make::Versions(event_versions),
    },
    group("authentication.k8s.io", 17_700, authentication::v1),
    group("authorization.k8s.io", 17_600, authorization::v1),
    Group {
        name: "autoscaling",
        priority: 17_500,
        versions: &[("v2", 30), ("v1", 15)],
        make: Make::Versions(autoscaling_versions),
    },
    group("batch", 17_400, batch::v1),
    Group {
        name: "certificates.k8s.io",
        priority: 17_300,
        versions: &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)],
        make: Make::Versions(certificate_versions),
    },
    group("networking.k8s.io", 17_200, networking::v1),
    group("policy", 17_100, policy::v1),
    group("rbac.authorization.k8s.io", 17_000, rbac::v1),
    group("storage.k8s.io", 16_800, storage::v1),
    group("admissionregistration.k8s.io", 16_700, admissionregistration::v1),
    Group {
        name: "scheduling.k8s.io",
        priority: 16_600,
        versions: &[("v1", 15), ("v1alpha2", 2)],
        make: Make::Versions(scheduling_versions),
    },
    Group {
        name: "coordination.k8s.io",
        priority: 16_500,
        versions: &[("v1", 15), ("v1beta1", 13)],
        make: Make::Versions(coordination_versions),
    },
    group("node.k8s.io", 16_300, node::v1),
    group("discovery.k8s.io", 16_200, discovery::v1),
    Group {
        name: "resource.k8s.io",
        priority: 16_200,
        versions: &[("v1", 21), ("v1beta2", 15), ("v1alpha3", 1)],
        make: Make::Versions(resource_versions),
    },
    Group {
        versions: &[("v1", 21)],
        ..group("flowcontrol.apiserver.k8s.io", 16_100, flowcontrol::v1)
    },
    Group {
        name: "internal.apiserver.k8s.io",
        priority: 16_000,
        versions: &[("v1alpha1", OTHER_VERSION)],
        make: Make::Versions(internal_versions),
    },
    Group {
        name: "storagemigration.k8s.io",
        priority: 15_800,
        versions: &[],
        make: Make::Beta {
            is_on: |deps| deps.storage_migration,
            make: storagemigration::v1beta1,
        },
    },
];

/// `versionPriority` of the versions of built-in groups that are not named.
const OTHER_VERSION: i32 = 9;

/// `groupPriorityMinimum` and `versionPriority` of a built-in group version; `None` of groups that are not built in.
pub fn priority(group: &str, version: &str) -> Option<(i32, i32)> {
    let found = GROUPS.iter().find(|known| known.name == group)?;
    let of_version = found.versions.iter().find(|(name, _)| *name == version);
    Some((
        found.priority,
        of_version.map_or(OTHER_VERSION, |(_, priority)| *priority),
    ))
}

/// Whether a version can be served.
pub fn has_version(group: &str, version: &str) -> bool {
    let found = GROUPS.iter().find(|known| known.name == group);
    found.is_some_and(|known| match known.make {
        Make::Beta { .. } => version == "v1beta1",
        Make::V1(_) | Make::Versions(_) => known.versions.iter().any(|(name, _)| *name == version),
    })
}

fn autoscaling_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let v2 = autoscaling::v2(&Builder::new(deps, "autoscaling", "v2"));
    let v1 = autoscaling::v1(&Builder::new(deps, "autoscaling", "v1"), &v2);
    vec![("v2", v2), ("v1", v1)]
}

/// The other versions have a kind of their own, and are off by default.
fn certificate_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let builder = |version| Builder::new(deps, "certificates.k8s.io", version);
    let mut versions = vec![("v1", certificates::v1(&builder("v1")))];
    let beta = certificates::v1beta1(&builder("v1beta1"));
    let alpha = certificates::v1alpha1(&builder("v1alpha1"), &beta);
    versions.push(("v1beta1", beta));
    versions.push(("v1alpha1", alpha));
    versions
}

/// The alpha version has kinds of its own, and is off by default.
fn scheduling_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let builder = |version| Builder::new(deps, "scheduling.k8s.io", version);
    let mut versions = vec![("v1", scheduling::v1(&builder("v1")))];
    if deps.features.workloads {
        versions.push(("v1alpha2", scheduling::v1alpha2(&builder("v1alpha2"))));
    }
    versions
}

/// The other versions have kinds of their own, and are off by default.
fn resource_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let name = "resource.k8s.io";
    let builder = |version| Builder::new(deps, name, version);
    let mut versions = vec![("v1", resource::v1(&builder("v1")))];
    let rules = ["v1beta2", "v1alpha3"].map(|version| (version, "devicetaintrules"));
    let mut kinds = rules
        .into_iter()
        .chain([("v1alpha3", "resourcepoolstatusrequests")]);
    if kinds.any(|(version, resource)| deps.served.resource(name, version, resource)) {
        let alpha = resource::v1alpha3(&builder("v1alpha3"));
        versions.push(("v1beta2", resource::v1beta2(&builder("v1beta2"), &alpha)));
        versions.push(("v1alpha3", alpha));
    }
    versions
}

/// StorageVersions, which are off by default.
fn internal_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let (name, version) = ("internal.apiserver.k8s.io", "v1alpha1");
    match deps.served.resource(name, version, "storageversions") {
        true => vec![(version, internal::v1alpha1(&Builder::new(deps, name, version)))],
        false => Vec::new(),
    }
}

/// The beta version has kinds of its own, and is off by default.
fn coordination_versions(deps: &Deps, _: &[GroupSpec]) -> Versions {
    let name = "coordination.k8s.io";
    let mut versions = vec![("v1", coordination::v1(&Builder::new(deps, name, "v1")))];
    if deps.lease_candidates {
        let beta = coordination::v1beta1(&Builder::new(deps, name, "v1beta1"));
        versions.push(("v1beta1", beta));
    }
    versions
}

/// Events are those of the core group.
fn event_versions(deps: &Deps, before: &[GroupSpec]) -> Versions {
    let core = before.first().and_then(|core| core.versions.first());
    let core = core
        .map(|(_, resources)| resources.as_slice())
        .unwrap_or_default();
    vec![("v1", events::v1(&Builder::new(deps, "events.k8s.io", "v1"), core))]
}

/// The groups in the order of discovery, which is the order in which clients resolve short names. Registers every stored
/// resource in the directory under its preferred version.
pub fn groups(deps: &Deps) -> Vec<GroupSpec> {
    let mut specs: Vec<GroupSpec> = Vec::new();
    for group in &GROUPS {
        let versions = match group.make {
            Make::V1(make) => vec![("v1", make(&Builder::new(deps, group.name, "v1")))],
            Make::Versions(make) => make(deps, &specs),
            Make::Beta { is_on, .. } if !is_on(deps) => continue,
            Make::Beta { make, .. } => vec![("v1beta1", make(&Builder::new(deps, group.name, "v1beta1")))],
        };
        let versions: Vec<(Arc<str>, Resources)> = versions
            .into_iter()
            .map(|(version, resources)| (version.into(), resources))
            .collect();
        // A converted version shares another's store: only those that own theirs are looked up by others.
        for (_, resources) in &versions {
            for resource in resources.iter().filter(|r| r.converter.is_none()) {
                deps.directory.register(resource.clone());
            }
        }
        specs.push(GroupSpec {
            group: group.name.into(),
            versions,
        });
    }
    register_versions(deps, &specs);
    specs
        .into_iter()
        .filter_map(|group| deps.served.of(group))
        .collect()
}

/// Registers the versions of what is served under several.
fn register_versions(deps: &Deps, specs: &[GroupSpec]) {
    let all = specs.iter().flat_map(|spec| &spec.versions);
    let mut sharing: Vec<Resources> = Vec::new();
    for resource in all.flat_map(|(_, resources)| resources) {
        let Some(store) = resource.store() else { continue };
        let shares = |one: &&mut Resources| {
            one.iter()
                .any(|one| one.store().is_some_and(|own| Arc::ptr_eq(own, store)))
        };
        match sharing.iter_mut().find(shares) {
            Some(versions) => versions.push(resource.clone()),
            None => sharing.push(vec![resource.clone()]),
        }
    }
    for resources in sharing.into_iter().filter(|resources| resources.len() > 1) {
        let keys: Vec<GroupResource> = resources.iter().map(|one| one.gvr.group_resource()).collect();
        let versions: Arc<dyn directory::Versions> = Arc::new(SharedStore::new(resources));
        for key in &keys {
            deps.directory.set_versions(key, Some(&versions));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(group: &str, version: &str, expected: Option<(i32, i32)>) {
        assert_eq!(priority(group, version), expected, "{group}/{version}");
    }

    #[test]
    fn priorities_are_upstreams() {
        check("", "v1", Some((18_000, 1)));
        check("apps", "v1", Some((17_800, 15)));
        check("autoscaling", "v2", Some((17_500, 30)));
        check("certificates.k8s.io", "v1", Some((17_300, 15)));
        check("certificates.k8s.io", "v1alpha1", Some((17_300, 1)));
        check("scheduling.k8s.io", "v1", Some((16_600, 15)));
        check("scheduling.k8s.io", "v1alpha2", Some((16_600, 2)));
        check("autoscaling", "v1", Some((17_500, 15)));
        check("coordination.k8s.io", "v1", Some((16_500, 15)));
        check("coordination.k8s.io", "v1beta1", Some((16_500, 13)));
        check("resource.k8s.io", "v1", Some((16_200, 21)));
        check("flowcontrol.apiserver.k8s.io", "v1", Some((16_100, 21)));
        check("resource.k8s.io", "v1beta2", Some((16_200, 15)));
        check("resource.k8s.io", "v1alpha3", Some((16_200, 1)));
        check("internal.apiserver.k8s.io", "v1alpha1", Some((16_000, 9)));
        check("storagemigration.k8s.io", "v1beta1", Some((15_800, 9)));
        check("example.com", "v1", None);
    }
}
