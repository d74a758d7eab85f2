//! Options that turn parts of the server on and off: feature gates, API versions, controllers, admission plugins.

use kube_apiserver::{PluginSelection, ServedApis, TrustBundles};

use super::Findings;
use super::apis;
use super::gates::{self, Gates};

/// The API of storage version migrations, which has a switch beside its feature gate.
const STORAGE_MIGRATION_API: &str = "storagemigration.k8s.io/v1beta1";
const STORAGE_MIGRATIONS: (&str, &str, &str) =
    ("storagemigration.k8s.io", "v1beta1", "storageversionmigrations");
/// The API of lease candidates, beta and so off by default.
const LEASE_CANDIDATES: (&str, &str, &str) = ("coordination.k8s.io", "v1beta1", "leasecandidates");

/// ClusterTrustBundles, beta and alpha, which have a switch beside their feature gate.
const TRUST_BUNDLES_BETA: (&str, &str, &str) = ("certificates.k8s.io", "v1beta1", "clustertrustbundles");
const TRUST_BUNDLES_ALPHA: (&str, &str, &str) = ("certificates.k8s.io", "v1alpha1", "clustertrustbundles");

/// The optional features that are on.
#[derive(Debug, Clone)]
pub(crate) struct Features {
    /// The versions and resources that are served.
    pub(crate) apis: ServedApis,
    /// StorageVersionMigrations are served: their feature gate and their API version are both on.
    pub(crate) storage_migration: bool,
    /// LeaseCandidates are served.
    pub(crate) lease_candidates: bool,
    /// ClusterTrustBundles.
    pub(crate) trust_bundles: TrustBundles,
    /// Webhooks and policies may be in files.
    pub(crate) admission_manifests: bool,
    /// Objects that cannot be read may be deleted (KEP-3926).
    pub(crate) unsafe_deletion: bool,
    /// `/statusz` is served.
    pub(crate) statusz: bool,
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
            if !Gates::read(&mut Findings::default(), gates).declared_features() {
                plugins.leave_out("NodeDeclaredFeatureValidator");
            }
            plugins
        }
        Err(faults) => {
            found.faults.extend(faults);
            PluginSelection::default()
        }
    }
}

impl Features {
    pub(super) fn read(found: &mut Findings, gates: &[String], apis: &[String], in_memory: bool) -> Self {
        let gates = Gates::read(found, gates);
        let apis = apis::read(found, apis);
        Features {
            storage_migration: is_served(&apis, STORAGE_MIGRATIONS) && gates.storage_migration(),
            lease_candidates: is_served(&apis, LEASE_CANDIDATES),
            trust_bundles: trust_bundles(found, &apis, gates.trust_bundles()),
            apis,
            admission_manifests: gates.admission_manifests(),
            statusz: gates.statusz(),
            cbor: gates.cbor(),
            unsafe_deletion: gates.unsafe_deletion(),
            identity: gates.identity(in_memory),
        }
    }
}

/// ClusterTrustBundles are served where both of their switches are on. Upstream warns of a version without the gate.
fn trust_bundles(found: &mut Findings, apis: &ServedApis, gate: bool) -> TrustBundles {
    let (beta, alpha) = (
        is_served(apis, TRUST_BUNDLES_BETA),
        is_served(apis, TRUST_BUNDLES_ALPHA),
    );
    let is_named = [TRUST_BUNDLES_BETA, TRUST_BUNDLES_ALPHA]
        .iter()
        .any(|(group, version, resource)| apis.names(group, version, resource));
    if !gate && is_named {
        found.warn(
            "ClusterTrustBundle storage is disabled because the ClusterTrustBundle feature gate is disabled",
        );
    }
    TrustBundles {
        gate,
        beta: beta && gate,
        alpha: alpha && gate,
    }
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
    fn trust_bundles_have_two_switches() {
        let on = &["ClusterTrustBundle=true"][..];
        for (apis, gates, expected, warns) in [
            (&[][..], on, [true, false, false], false),
            (
                &["certificates.k8s.io/v1beta1=true"],
                on,
                [true, true, false],
                false,
            ),
            (
                &["certificates.k8s.io/v1alpha1=true"],
                on,
                [true, false, true],
                false,
            ),
            (&["api/all=true"], on, [true, true, true], false),
            (
                &["api/alpha=true", "certificates.k8s.io/v1alpha1=false"],
                on,
                [true, false, false],
                false,
            ),
            (
                &["certificates.k8s.io/v1beta1=true"],
                &[],
                [false, false, false],
                true,
            ),
            (&["api/beta=true"], &["AllBeta=true"], [true, true, false], false),
        ] {
            let list = |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
            let mut found = Findings::default();
            let read = Features::read(&mut found, &list(gates), &list(apis), false).trust_bundles;
            assert_eq!([read.gate, read.beta, read.alpha], expected, "{apis:?} {gates:?}");
            let text = "ClusterTrustBundle storage is disabled because the ClusterTrustBundle feature gate is disabled";
            assert_eq!(
                found.warnings.iter().any(|warning| warning == text),
                warns,
                "{apis:?}"
            );
        }
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
