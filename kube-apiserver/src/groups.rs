//! Every built-in group: one module per group, one file per kind.

use std::sync::Arc;

use generic_server::resource::ServedResource;
use generic_server::server::GroupSpec;

use crate::deps::Deps;
use crate::kind::Builder;

mod admissionregistration;
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
mod flowcontrol;
mod networking;
mod node;
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
/// Makes the resources of a group.
type Make = fn(&Builder<'_>) -> Resources;

/// Groups of one version, in the order of discovery; `None` are those made by hand.
const SIMPLE: &[(&str, Option<Make>)] = &[
    ("", Some(core::v1)),
    ("apps", Some(apps::v1)),
    ("events.k8s.io", None),
    ("authentication.k8s.io", Some(authentication::v1)),
    ("authorization.k8s.io", Some(authorization::v1)),
    ("autoscaling", None),
    ("batch", Some(batch::v1)),
    ("certificates.k8s.io", Some(certificates::v1)),
    ("networking.k8s.io", Some(networking::v1)),
    ("policy", Some(policy::v1)),
    ("rbac.authorization.k8s.io", Some(rbac::v1)),
    ("storage.k8s.io", Some(storage::v1)),
    ("admissionregistration.k8s.io", Some(admissionregistration::v1)),
    ("scheduling.k8s.io", Some(scheduling::v1)),
    ("coordination.k8s.io", Some(coordination::v1)),
    ("node.k8s.io", Some(node::v1)),
    ("discovery.k8s.io", Some(discovery::v1)),
    ("resource.k8s.io", Some(resource::v1)),
    ("flowcontrol.apiserver.k8s.io", Some(flowcontrol::v1)),
];

/// The groups in the order of discovery, which is the order in which clients resolve short names. Registers every stored
/// resource in the directory under its preferred version.
pub fn groups(deps: &Deps) -> Vec<GroupSpec> {
    let mut specs: Vec<GroupSpec> = Vec::new();
    for (group, make) in SIMPLE {
        let versions = match make {
            Some(make) => vec![("v1", make(&Builder::new(deps, group, "v1")))],
            None if *group == "autoscaling" => {
                let v2 = autoscaling::v2(&Builder::new(deps, group, "v2"));
                let v1 = autoscaling::v1(&Builder::new(deps, group, "v1"), &v2);
                vec![("v2", v2), ("v1", v1)]
            }
            None => {
                let core = specs.first().and_then(|core| core.versions.first());
                let core = core
                    .map(|(_, resources)| resources.as_slice())
                    .unwrap_or_default();
                vec![("v1", events::v1(&Builder::new(deps, group, "v1"), core))]
            }
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
            group: (*group).into(),
            versions,
        });
    }
    if deps.storage_migration {
        let (group, version) = ("storagemigration.k8s.io", "v1beta1");
        let resources = storagemigration::v1beta1(&Builder::new(deps, group, version));
        for resource in &resources {
            deps.directory.register(resource.clone());
        }
        specs.push(GroupSpec {
            group: group.into(),
            versions: vec![(version.into(), resources)],
        });
    }
    specs
}
