//! Readiness: everything that the server has to have read and written before it takes requests, under upstream's names in `/readyz` and `/livez`.

use generic_server::admission::AdmissionChain;
use generic_server::health::{Health, Hook, Part};

/// A stretch of the start. Its hooks finish together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// CRDs have been read and are served.
    CustomResources,
    /// The first objects of a cluster are there.
    Bootstrap,
    /// Roles and bindings have been read.
    Rbac,
    /// Webhooks and policies have been read.
    Admission,
    /// APIServices have been read, and those of local group versions written.
    Aggregation,
}

/// In the order in which upstream lists them. Hooks of upstream that this server does not have are left out.
const HOOKS: [(&str, Stage); 23] = [
    (
        "poststarthook/start-apiserver-admission-initializer",
        Stage::Admission,
    ),
    (
        "poststarthook/generic-apiserver-start-informers",
        Stage::Admission,
    ),
    (
        "poststarthook/start-apiextensions-informers",
        Stage::CustomResources,
    ),
    (
        "poststarthook/start-apiextensions-controllers",
        Stage::CustomResources,
    ),
    ("poststarthook/crd-informer-synced", Stage::CustomResources),
    (
        "poststarthook/start-system-namespaces-controller",
        Stage::Bootstrap,
    ),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        Stage::Bootstrap,
    ),
    ("poststarthook/storage-readiness", Stage::Bootstrap),
    ("poststarthook/rbac/bootstrap-roles", Stage::Rbac),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Stage::Bootstrap,
    ),
    (
        "poststarthook/priority-and-fairness-config-producer",
        Stage::Bootstrap,
    ),
    ("poststarthook/bootstrap-controller", Stage::Bootstrap),
    (
        "poststarthook/start-kubernetes-service-cidr-controller",
        Stage::Bootstrap,
    ),
    (
        "poststarthook/aggregator-reload-proxy-client-cert",
        Stage::Aggregation,
    ),
    (
        "poststarthook/start-kube-aggregator-informers",
        Stage::Aggregation,
    ),
    (
        "poststarthook/apiservice-status-local-available-controller",
        Stage::Aggregation,
    ),
    (
        "poststarthook/apiservice-status-remote-available-controller",
        Stage::Aggregation,
    ),
    (
        "poststarthook/apiservice-registration-controller",
        Stage::Aggregation,
    ),
    (
        "poststarthook/apiservice-discovery-controller",
        Stage::Aggregation,
    ),
    (
        "poststarthook/kube-apiserver-autoregistration",
        Stage::Aggregation,
    ),
    ("autoregister-completion", Stage::Aggregation),
    ("poststarthook/apiservice-openapi-controller", Stage::Aggregation),
    (
        "poststarthook/apiservice-openapiv3-controller",
        Stage::Aggregation,
    ),
];

/// The hooks of the start.
#[derive(Debug)]
pub(super) struct Readiness(Vec<(Stage, Hook)>);

impl Readiness {
    /// Registers `informer-sync`, which is about the admission chain, and the hooks, none of them finished.
    pub(super) fn new(health: &Health, admission: AdmissionChain) -> Self {
        health.add("informer-sync", Part::Ready, move || {
            let missing = admission.unsynced();
            match missing.len() {
                0 => Ok(()),
                count => Err(format!(
                    "{count} informers not started yet: [{}]",
                    missing.join(" ")
                )),
            }
        });
        let hooks = HOOKS.map(|(name, stage)| (stage, health.hook_named(name)));
        Readiness(hooks.into())
    }

    /// Says that a stage is done.
    pub(super) fn finish(&self, stage: Stage) {
        let of_stage = self.0.iter().filter(|(of, _)| *of == stage);
        of_stage.for_each(|(_, hook)| hook.finish());
    }
}

#[cfg(test)]
mod tests {
    use generic_server::lifecycle::Lifecycle;

    use super::*;

    #[test]
    fn ready_after_the_last_stage() {
        let health = Health::new(Lifecycle::new());
        let readiness = Readiness::new(&health, AdmissionChain::default());
        for stage in [
            Stage::CustomResources,
            Stage::Bootstrap,
            Stage::Rbac,
            Stage::Admission,
            Stage::Aggregation,
        ] {
            assert!(!health.is_ready(), "before {stage:?}");
            readiness.finish(stage);
        }
        assert!(health.is_ready());
    }
}
