//! Options that turn parts of the server on and off: feature gates, API versions, controllers, admission plugins.

use kube_apiserver::{KindFeatures, PluginSelection, ServedApis};

use super::Findings;
use super::apis;
use super::gates::{self, Gates};

/// The API of storage version migrations, which has a switch beside its feature gate.
const STORAGE_MIGRATION_API: &str = "storagemigration.k8s.io/v1beta1";
const STORAGE_MIGRATIONS: (&str, &str, &str) =
    ("storagemigration.k8s.io", "v1beta1", "storageversionmigrations");
/// The API of lease candidates, beta and so off by default.
const LEASE_CANDIDATES: (&str, &str, &str) = ("coordination.k8s.io", "v1beta1", "leasecandidates");

/// A kind that has a feature gate beside the switches of its versions.
struct Gated {
    /// What upstream calls it in its warnings.
    name: &'static str,
    gate: &'static str,
    is_on: fn(&KindFeatures) -> bool,
    served: &'static [(&'static str, &'static str, &'static str)],
}

const GATED: [Gated; 4] = [
    Gated {
        name: "ClusterTrustBundle",
        gate: "ClusterTrustBundle",
        is_on: |kinds| kinds.trust_bundles,
        served: &[
            ("certificates.k8s.io", "v1beta1", "clustertrustbundles"),
            ("certificates.k8s.io", "v1alpha1", "clustertrustbundles"),
        ],
    },
    Gated {
        name: "PodCertificateRequest",
        gate: "PodCertificateRequest",
        is_on: |kinds| kinds.pod_certificates,
        served: &[("certificates.k8s.io", "v1beta1", "podcertificaterequests")],
    },
    Gated {
        name: "Workload",
        gate: "GenericWorkload",
        is_on: |kinds| kinds.workloads,
        served: &[("scheduling.k8s.io", "v1alpha2", "workloads")],
    },
    Gated {
        name: "PodGroup",
        gate: "GenericWorkload",
        is_on: |kinds| kinds.workloads,
        served: &[("scheduling.k8s.io", "v1alpha2", "podgroups")],
    },
];

/// The optional features that are on.
#[derive(Debug, Clone)]
pub(crate) struct Features {
    /// The versions and resources that are served.
    pub(crate) apis: ServedApis,
    /// StorageVersionMigrations are served: their feature gate and their API version are both on.
    pub(crate) storage_migration: bool,
    /// LeaseCandidates are served.
    pub(crate) lease_candidates: bool,
    /// Kinds with a feature gate, and fields about them.
    pub(crate) kinds: KindFeatures,
    /// Webhooks and policies may be in files.
    pub(crate) admission_manifests: bool,
    /// Objects that cannot be read may be deleted (KEP-3926).
    pub(crate) unsafe_deletion: bool,
    /// `/statusz` is served.
    pub(crate) statusz: bool,
    /// `/flagz` is served where there is a command line.
    pub(crate) flagz: bool,
    /// Objects are read and written as CBOR, too.
    pub(crate) cbor: bool,
    /// The server has a lease that says that it is there (KEP-1965).
    pub(crate) identity: bool,
}

/// The admission plugins that are on.
pub(super) fn plugins(
    found: &mut Findings,
    (enabled, disabled): (&[String], &[String]),
    gates: &[String],
) -> PluginSelection {
    match PluginSelection::new(enabled, disabled) {
        Ok((mut plugins, warnings)) => {
            found.warnings.extend(warnings);
            // What is wrong with the gates is found where the features are read.
            let gates = Gates::read(&mut Findings::default(), gates);
            if !gates.declared_features() {
                plugins.leave_out("NodeDeclaredFeatureValidator");
            }
            if !gates.kinds().workloads {
                for name in ["PodGroupProtection", "PodGroupWorkloadExists", "JobValidation"] {
                    plugins.leave_out(name);
                    if enabled.iter().any(|one| one == name) {
                        found.warn(format!(
                            "--enable-admission-plugins: plugin \"{name}\" has no effect without --feature-gates=GenericWorkload=true"
                        ));
                    }
                }
            }
            plugins
        }
        Err(faults) => {
            found.faults.extend(faults);
            PluginSelection::default()
        }
    }
}

/// All feature gates as they are set: name, stage (empty for those that are there to stay) and whether it is on.
pub(super) fn gates(items: &[String]) -> Vec<(&'static str, &'static str, bool)> {
    // What is wrong with them is found where the features are read.
    Gates::read(&mut Findings::default(), items).all()
}

impl Features {
    pub(super) fn read(found: &mut Findings, gates: &[String], apis: &[String], in_memory: bool) -> Self {
        let gates = Gates::read(found, gates);
        let apis = apis::read(found, apis);
        Features {
            storage_migration: is_served(&apis, STORAGE_MIGRATIONS) && gates.storage_migration(),
            lease_candidates: is_served(&apis, LEASE_CANDIDATES),
            kinds: kinds(found, &apis, gates.kinds()),
            apis,
            admission_manifests: gates.admission_manifests(),
            statusz: gates.statusz(),
            flagz: gates.flagz(),
            cbor: gates.cbor(),
            unsafe_deletion: gates.unsafe_deletion(),
            identity: gates.identity(in_memory),
        }
    }
}

/// Kinds are served where both of their switches are on. As upstream, versions that are named without the gate are warned of.
fn kinds(found: &mut Findings, apis: &ServedApis, kinds: KindFeatures) -> KindFeatures {
    for kind in GATED.iter().filter(|kind| !(kind.is_on)(&kinds)) {
        let mut served = kind.served.iter();
        if served.any(|(group, version, resource)| apis.names(group, version, resource)) {
            let (name, gate) = (kind.name, kind.gate);
            found.warn(format!(
                "{name} storage is disabled because the {gate} feature gate is disabled"
            ));
        }
    }
    kinds
}

/// Warnings of storage version migrations with one of their two switches alone: the feature gate, or their version by name.
pub(super) fn lone_migration_switch(gates: &[String], list: &[String]) -> Option<String> {
    let gate = format!("--feature-gates={}=true", gates::STORAGE_MIGRATION);
    let api = format!("--runtime-config={STORAGE_MIGRATION_API}=true");
    let (gate_is_on, is_served) = (
        Gates::read(&mut Findings::default(), gates).storage_migration(),
        is_served(&apis::read(&mut Findings::default(), list), STORAGE_MIGRATIONS),
    );
    // `api/beta` and `api/all` turn on others, too.
    let is_named = list.iter().any(|item| item.starts_with(STORAGE_MIGRATION_API));
    let (lone, other) = match (gate_is_on, is_served) {
        (true, false) => (gate, api),
        (false, true) if is_named => (api, gate),
        _ => return None,
    };
    Some(format!("{lone} has no effect without {other}"))
}

/// Whether a version is served, or a resource of it.
fn is_served(apis: &ServedApis, (group, version, resource): (&str, &str, &str)) -> bool {
    apis.version(group, version) || apis.resource(group, version, resource)
}

/// Which controllers run in the process.
#[derive(Debug)]
pub(crate) struct Controllers(Vec<String>);

impl Controllers {
    /// None at all.
    pub(super) fn none() -> Self {
        Controllers(Vec::new())
    }

    /// Without `items` all of them run. `garbage`: what an owner left behind may be deleted.
    pub(super) fn read(found: &mut Findings, mut items: Vec<String>, garbage: bool) -> Self {
        if items.is_empty() {
            items.push("*".into());
        }
        let known = kube_apiserver::CONTROLLERS;
        for item in &items {
            let name = item.strip_prefix('-').unwrap_or(item);
            if name != "*" && !known.contains(&name) {
                found.fault(format!(
                    "--controllers: {} is not in the list of known controllers: {}",
                    machinery::go::quote(name),
                    known.join(", ")
                ));
            }
        }
        if !garbage {
            // The first word about a controller counts.
            items.insert(0, "-garbage-collector-controller".into());
        }
        Controllers(items)
    }

    /// Whether a controller of this name runs.
    pub(crate) fn runs(&self, name: &str) -> bool {
        let mut all = false;
        for item in &self.0 {
            match item.strip_prefix('-') {
                Some("*") => all = false,
                Some(off) if off == name => return false,
                Some(_) => {}
                None if item == "*" => all = true,
                None if item == name => return true,
                None => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(apis: &[&str], gates: &[&str], lease_candidates: bool, storage_migration: bool) {
        let list = |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
        let mut found = Findings::default();
        let features = Features::read(&mut found, &list(gates), &list(apis), false);
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        assert_eq!(
            (features.lease_candidates, features.storage_migration),
            (lease_candidates, storage_migration),
            "{apis:?}"
        );
    }

    #[test]
    fn kinds_have_two_switches() {
        #[track_caller]
        fn check(apis: &[&str], gates: &[&str], is_on: fn(&KindFeatures) -> bool, warned: &[&str]) {
            let list = |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
            let mut found = Findings::default();
            let features = Features::read(&mut found, &list(gates), &list(apis), false);
            assert_eq!(is_on(&features.kinds), warned.is_empty(), "{apis:?} {gates:?}");
            let disabled = |name: &&str| {
                let (name, gate) = name.split_once(' ').expect("a kind and its gate");
                format!("{name} storage is disabled because the {gate} feature gate is disabled")
            };
            let expected: Vec<String> = warned.iter().map(disabled).collect();
            assert_eq!(found.warnings, expected, "{apis:?}");
        }
        for version in ["certificates.k8s.io/v1beta1", "certificates.k8s.io/v1alpha1"] {
            let item = format!("{version}/clustertrustbundles=true");
            let gates = ["ClusterTrustBundle=true"];
            check(&[&item], &gates, |kinds| kinds.trust_bundles, &[]);
            let warned = ["ClusterTrustBundle ClusterTrustBundle"];
            check(&[&item], &[], |kinds| kinds.trust_bundles, &warned);
        }
        let requests = "certificates.k8s.io/v1beta1/podcertificaterequests=true";
        let gates = ["PodCertificateRequest=true"];
        check(&[requests], &gates, |kinds| kinds.pod_certificates, &[]);
        let warned = ["PodCertificateRequest PodCertificateRequest"];
        check(&[requests], &[], |kinds| kinds.pod_certificates, &warned);
        let workloads = "scheduling.k8s.io/v1alpha2=true";
        check(
            &[workloads],
            &["GenericWorkload=true"],
            |kinds| kinds.workloads,
            &[],
        );
        let warned = ["Workload GenericWorkload", "PodGroup GenericWorkload"];
        check(&[workloads], &[], |kinds| kinds.workloads, &warned);
    }

    #[test]
    fn beta_versions_are_turned_on_one_by_one_or_together() {
        let gates = &["StorageVersionMigrator=true"];
        check(&[], gates, false, false);
        check(&["coordination.k8s.io/v1beta1=true"], gates, true, false);
        check(&["storagemigration.k8s.io/v1beta1"], gates, false, true);
        check(&["api/beta=true"], gates, true, true);
        check(&["api/beta=true"], &[], true, false);
        check(&["api/all=false", "api/beta=true"], gates, true, true);
        check(
            &["api/all=true", "coordination.k8s.io/v1beta1=false"],
            gates,
            false,
            true,
        );
    }
}
