//! The whole admission chain of the main API server: the built-in plugins, webhooks and policies that are on, in upstream's order,
//! and the checks that cannot be turned off.

use std::sync::Arc;

use generic_server::admission::{AdmissionChain, AdmissionPlugin, DynamicMetrics};
use generic_server::dynamic_admission::lost_changes::LostChanges;
use generic_server::dynamic_admission::{policy, webhook};
use generic_server::metrics::Metrics;
use generic_server::spawn::Tasks;
use generic_server::webhook::Services;

use super::break_glass::BackendsFirst;
use super::certificates;
use super::manifests::Plugin;
use super::reserved_names::ReservedNames;
use super::{PluginConfigs, PluginSelection, TolerationSeconds, admission_plugins, privileged};
use crate::client::Client;
use crate::deps::Deps;
use crate::rbac::{Escalation, Rbac};

/// The first of these that is on comes after the checks that cannot be turned off.
const BEFORE_WEBHOOKS: [&str; 5] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// The options that decide which plugins are in the chain.
#[derive(Debug)]
pub struct AdmissionOptions<'a> {
    /// The plugins that are on.
    pub plugins: &'a PluginSelection,
    /// Their configuration.
    pub configs: &'a PluginConfigs,
    /// How long pods tolerate nodes that are not there.
    pub tolerations: TolerationSeconds,
    /// Containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
    /// The roles, where RBAC authorizes: writes of roles and bindings may not give more than their writer has.
    pub rbac: Option<&'a Arc<Rbac>>,
    /// Writes that bring a webhook's backend back go past it while it cannot be reached (`--webhook-break-glass`).
    pub break_glass: bool,
    /// Where webhooks are.
    pub services: &'a Services,
    /// Where it is measured.
    pub metrics: &'a Metrics,
    /// What webhooks and policies cost.
    pub costs: &'a Arc<DynamicMetrics>,
}

/// The admission chain. Configuration that users change while the server runs is read by `tasks`; until then it lets no write pass.
pub fn admission_chain(deps: &Deps, options: &AdmissionOptions<'_>, tasks: &Tasks) -> AdmissionChain {
    let mut plugins = admission_plugins(deps, options.configs, options.tolerations);
    plugins.extend(configured_plugins(deps, options, tasks));
    let mut plugins = options.plugins.choose(plugins);
    // Upstream checks these where it stores objects, before webhooks see them.
    let reserved = ReservedNames {
        manifests: options.configs.manifests_are_allowed,
    };
    let mut always: Vec<Arc<dyn AdmissionPlugin>> = vec![Arc::new(reserved)];
    if !options.allow_privileged {
        always.push(Arc::new(privileged::Privileged));
    }
    if deps.features.pod_certificates {
        let authorizer = deps.authorizer.clone();
        always.push(Arc::new(certificates::PodCertificateSigning(authorizer)));
    }
    if let Some(rbac) = options.rbac {
        always.push(Arc::new(Escalation {
            rbac: rbac.clone(),
            authorizer: deps.authorizer.clone(),
        }));
    }
    let first = plugins
        .iter()
        .position(|plugin| BEFORE_WEBHOOKS.contains(&plugin.name()))
        .unwrap_or(plugins.len());
    plugins.splice(first..first, always);
    plugins.splice(0..0, LostChanges::of(&deps.storage.engines()));
    for metrics in plugins.iter().filter_map(|plugin| plugin.metrics()) {
        options.metrics.register(metrics);
    }
    let chain = AdmissionChain::new(plugins);
    options.metrics.register(chain.metrics());
    chain
}

/// The plugins whose configuration is objects: policies and webhooks. Only those that are on follow it.
fn configured_plugins(
    deps: &Deps,
    options: &AdmissionOptions<'_>,
    tasks: &Tasks,
) -> Vec<Arc<dyn AdmissionPlugin>> {
    const TASK: &str = "admission configuration";
    let (directory, authorizer) = (&deps.directory, &deps.authorizer);
    let (selection, configs) = (options.plugins, options.configs);
    let metrics = options.costs;
    options.metrics.register(metrics.clone());
    options.metrics.register(configs.manifest_reloads.clone());
    let mut plugins: Vec<Arc<dyn AdmissionPlugin>> = Vec::new();
    for phase in [policy::Phase::Mutating, policy::Phase::Validating] {
        let plugin = policy::Policies::new(phase, directory.clone(), authorizer.clone(), metrics.clone());
        let of_files = match phase {
            policy::Phase::Mutating => Plugin::MutatingPolicies,
            policy::Phase::Validating => Plugin::ValidatingPolicies,
        };
        let own = plugin.clone();
        configs.connect(of_files, move |set| own.set_manifests(set.objects, &set.bindings));
        if selection.has(plugin.name()) {
            tasks.spawn(TASK, plugin.clone().follow());
        }
        plugins.push(plugin);
    }
    for phase in [webhook::Phase::Mutating, webhook::Phase::Validating] {
        let (users, of_files) = match phase {
            webhook::Phase::Mutating => (configs.mutating_users.clone(), Plugin::MutatingWebhooks),
            webhook::Phase::Validating => (configs.validating_users.clone(), Plugin::ValidatingWebhooks),
        };
        let plugin = webhook::Webhooks::new(
            phase,
            options.services.clone(),
            authorizer.clone(),
            users,
            metrics.clone(),
        );
        let own = plugin.clone();
        configs.connect(of_files, move |set| own.set_manifests(set.objects));
        if options.break_glass {
            plugin.set_break_glass(Arc::new(BackendsFirst(Client::new(directory.clone()))));
        }
        if selection.has(plugin.name()) {
            tasks.spawn(TASK, plugin.clone().follow());
        }
        plugins.push(plugin);
    }
    plugins
}
