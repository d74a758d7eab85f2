//! The admission that users configure while the server runs: policies and webhooks, in upstream's order, with the tasks that
//! keep them current.

use std::sync::Arc;

use generic_server::admission::{AdmissionPlugin, policy, webhook};
use generic_server::authz::Authorizer;
use generic_server::registry::Directory;
use generic_server::spawn::Tasks;

/// Makes the plugins. They know nothing before the directory has the stores of their configurations.
pub(crate) fn plugins(
    directory: &Arc<Directory>,
    authorizer: &Arc<dyn Authorizer>,
    tasks: &Tasks,
) -> Vec<Arc<dyn AdmissionPlugin>> {
    let policies = |phase| policy::Policies::new(phase, directory.clone(), authorizer.clone());
    let webhooks = |phase| webhook::Webhooks::new(phase, directory.clone(), authorizer.clone());
    let mutating = policies(policy::Phase::Mutating);
    let mutating_hooks = webhooks(webhook::Phase::Mutating);
    let validating = policies(policy::Phase::Validating);
    let validating_hooks = webhooks(webhook::Phase::Validating);
    tasks.spawn("mutating admission policies", mutating.clone().follow());
    tasks.spawn("mutating admission webhooks", mutating_hooks.clone().follow());
    tasks.spawn("validating admission policies", validating.clone().follow());
    tasks.spawn("validating admission webhooks", validating_hooks.clone().follow());
    vec![mutating, mutating_hooks, validating, validating_hooks]
}
