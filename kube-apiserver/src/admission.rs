//! The admission plugins that are built in, one file each. [`PluginSelection`] says which plugins are on and in which order they
//! run, and [`admission_chain`] joins them with webhooks and policies.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes};
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use crate::client::Client;
use crate::deps::Deps;

mod break_glass;
mod certificates;
mod chain;
mod config;
mod constant;
mod declared_features;
mod defaults;
mod event_rate_limit;
mod external_ips;
mod image_policy;
mod images;
mod limit_ranger;
mod manifests;
mod namespace_lifecycle;
mod namespaces;
mod node_restriction;
mod node_selector;
mod nodes;
mod owners;
mod pod_groups;
mod pod_resize;
mod pod_security;
mod priority;
mod privileged;
mod quota;
mod reserved_names;
mod scheduling;
mod selection;
mod service_account;
mod toleration_restriction;
mod trust_bundles;
mod volume_resize;

pub use chain::{AdmissionOptions, admission_chain};
pub use config::PluginConfigs;
pub use nodes::TolerationSeconds;
pub use selection::PluginSelection;

/// The plugins that are built in. [`PluginSelection::choose`] puts them in order, together with webhooks and policies.
fn admission_plugins(
    deps: &Deps,
    configs: &PluginConfigs,
    tolerations: TolerationSeconds,
) -> Vec<Arc<dyn AdmissionPlugin>> {
    let client = Client::new(deps.directory.clone());
    let mut plugins = built_in(deps, configs, tolerations, client.clone());
    if deps.features.workloads {
        plugins.push(Arc::new(pod_groups::PodGroupProtection));
        plugins.push(Arc::new(pod_groups::PodGroupWorkloadExists(client.clone())));
        plugins.push(Arc::new(pod_groups::JobValidation(client)));
    }
    // It cannot be on without its configuration.
    if let Some(policy) = &configs.images {
        plugins.push(Arc::new(image_policy::ImagePolicyWebhook::new(policy.clone())));
    }
    plugins
}

fn built_in(
    deps: &Deps,
    configs: &PluginConfigs,
    tolerations: TolerationSeconds,
    client: Client,
) -> Vec<Arc<dyn AdmissionPlugin>> {
    vec![
        Arc::new(constant::AlwaysAdmit),
        Arc::new(constant::AlwaysDeny),
        Arc::new(namespaces::NamespaceAutoProvision(client.clone())),
        Arc::new(namespaces::NamespaceExists(client.clone())),
        Arc::new(scheduling::LimitPodHardAntiAffinityTopology),
        Arc::new(scheduling::ExtendedResourceToleration),
        Arc::new(node_selector::PodNodeSelector {
            client: client.clone(),
            cluster: configs.node_selectors.clone(),
        }),
        Arc::new(toleration_restriction::PodTolerationRestriction {
            client: client.clone(),
            cluster: configs.tolerations.clone(),
        }),
        Arc::new(event_rate_limit::EventRateLimit::new(&configs.events)),
        Arc::new(declared_features::NodeDeclaredFeatureValidator(client.clone())),
        Arc::new(pod_resize::PodResizeValidator(client.clone())),
        Arc::new(scheduling::PodTopologyLabels(client.clone())),
        Arc::new(images::AlwaysPullImages),
        Arc::new(external_ips::DenyServiceExternalIps),
        Arc::new(owners::OwnerReferences {
            authorizer: deps.authorizer.clone(),
            directory: deps.directory.clone(),
        }),
        Arc::new(namespace_lifecycle::NamespaceLifecycle(client.clone())),
        Arc::new(limit_ranger::LimitRanger(client.clone())),
        Arc::new(service_account::ServiceAccount(client.clone())),
        Arc::new(node_restriction::NodeRestriction {
            client: client.clone(),
            authorizer: deps.authorizer.clone(),
            pod_certificates: deps.features.pod_certificates,
        }),
        Arc::new(nodes::TaintNodesByCondition),
        Arc::new(pod_security::PodSecurity::new(
            client.clone(),
            configs.pod_security.clone(),
        )),
        Arc::new(priority::Priority(client.clone())),
        Arc::new(nodes::DefaultTolerationSeconds(tolerations)),
        Arc::new(defaults::DefaultStorageClass(client.clone())),
        Arc::new(defaults::StorageObjectInUseProtection),
        Arc::new(volume_resize::PersistentVolumeClaimResize(client.clone())),
        Arc::new(defaults::RuntimeClass(client.clone())),
        Arc::new(certificates::CertificateApproval(deps.authorizer.clone())),
        Arc::new(certificates::CertificateSigning(deps.authorizer.clone())),
        Arc::new(trust_bundles::ClusterTrustBundleAttest(deps.authorizer.clone())),
        Arc::new(certificates::CertificateSubjectRestriction),
        Arc::new(defaults::DefaultIngressClass(client.clone())),
        // It counts what is really going to be stored.
        Arc::new(quota::ResourceQuota::new(client, configs.limited.clone())),
    ]
}

/// Whether a write is of a resource, by group and name.
fn is(gvr: &GroupVersionResource, group: &str, resource: &str) -> bool {
    &*gvr.group == group && &*gvr.resource == resource
}

/// 403 of an admission plugin.
fn forbidden(attributes: &Attributes<'_>, object: Option<&Value>, why: impl std::fmt::Display) -> ApiError {
    let own = object.map(|object| match meta::name(object) {
        "" => meta::generate_name(object),
        name => name,
    });
    let name = match (attributes.name, own) {
        ("", Some(own)) if !own.is_empty() => own,
        ("", _) => "Unknown",
        (name, _) => name,
    };
    ApiError::forbidden(&attributes.gvr.group_resource(), name, why)
}
