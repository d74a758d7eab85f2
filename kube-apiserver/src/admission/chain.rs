//! The admission that users configure while the server runs: policies and webhooks, with the tasks that keep them current.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use generic_server::admission::AdmissionPlugin;
use generic_server::authz::Authorizer;
use generic_server::directory::Directory;
use generic_server::dynamic_admission::{policy, webhook};

/// Follows the configuration of a plugin, for ever.
type Follow = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The plugins, each with what keeps it current. They know nothing before that runs, and let nothing pass until then.
pub(crate) fn plugins(
    directory: &Arc<Directory>,
    authorizer: &Arc<dyn Authorizer>,
) -> Vec<(Arc<dyn AdmissionPlugin>, Follow)> {
    let policies = |phase| -> (Arc<dyn AdmissionPlugin>, Follow) {
        let plugin = policy::Policies::new(phase, directory.clone(), authorizer.clone());
        (plugin.clone(), Box::pin(plugin.follow()))
    };
    let webhooks = |phase| -> (Arc<dyn AdmissionPlugin>, Follow) {
        let plugin = webhook::Webhooks::new(phase, directory.clone(), authorizer.clone());
        (plugin.clone(), Box::pin(plugin.follow()))
    };
    vec![
        policies(policy::Phase::Mutating),
        webhooks(webhook::Phase::Mutating),
        policies(policy::Phase::Validating),
        webhooks(webhook::Phase::Validating),
    ]
}
