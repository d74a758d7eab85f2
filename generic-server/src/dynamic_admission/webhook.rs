//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: other servers that may change or refuse a write.
//!
//! Configurations are followed in the background; their conditions are compiled when they change, beside what goes on
//! (`compiling.rs`). A write reads one immutable list, and waits for the conditions of webhooks that are about it. Mutating
//! webhooks are asked one after the other, in the order of their configurations' names; validating ones at once. Mirrors
//! upstream's `admission/plugin/webhook`.

mod call;
mod hooks;
mod notes;
mod question;
mod review;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use machinery::{ApiError, GroupResource, GroupVersionResource};
use serde_json::Value;

use super::compiling::{Compiler, Origin};
use super::configuration;
use super::matching::{Namespaces, exempt};
use crate::admission::{AdmissionPlugin, Attributes, DynamicMetrics, Operation, Reinvocation};
use crate::authz::Authorizer;
use crate::directory::Directory;
use crate::registry::cache::Snapshot;
use crate::registry::{Synced, follow};
use crate::webhook::{Services, WebhookUsers};
pub use call::BreakGlass;
pub use hooks::ServiceName;
pub use question::condition_faults;

use hooks::{Backends, Configuration, Hook, hooks};
use review::ReviewResponse;

const GROUP: &str = "admissionregistration.k8s.io";

/// Which of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// MutatingWebhookConfiguration.
    Mutating,
    /// ValidatingWebhookConfiguration.
    Validating,
}

impl Phase {
    /// The phase as metrics have it.
    fn label(self) -> &'static str {
        match self {
            Phase::Mutating => "admit",
            Phase::Validating => "validating",
        }
    }
}

/// The admission plugin.
#[derive(Debug)]
pub struct Webhooks {
    phase: Phase,
    directory: Arc<Directory>,
    authorizer: Arc<dyn Authorizer>,
    backends: Backends,
    metrics: Arc<DynamicMetrics>,
    compiler: Compiler,
    configurations: Synced<Vec<Arc<Configuration>>>,
    /// Those of files, which come first and see writes of what configures admission, too.
    manifests: ArcSwap<Vec<Arc<Configuration>>>,
    /// Without it no write goes past a webhook that cannot be reached.
    break_glass: OnceLock<Arc<dyn BreakGlass>>,
}

impl Webhooks {
    /// A plugin that knows no configuration until it is followed. It asks webhooks as these users.
    pub fn new(
        phase: Phase,
        services: Services,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
        metrics: Arc<DynamicMetrics>,
    ) -> Arc<Self> {
        Self::with(phase, services, authorizer, users, metrics, Compiler::shared())
    }

    /// Lets some writes go on although a webhook cannot be reached. The first rule stays.
    pub fn set_break_glass(&self, rule: Arc<dyn BreakGlass>) {
        self.break_glass.get_or_init(|| rule);
    }

    fn with(
        phase: Phase,
        services: Services,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
        metrics: Arc<DynamicMetrics>,
        compiler: Compiler,
    ) -> Arc<Self> {
        Arc::new(Webhooks {
            phase,
            directory: services.directory().clone(),
            backends: Backends { services, users },
            authorizer,
            metrics,
            compiler,
            configurations: Synced::default(),
            manifests: ArcSwap::default(),
            break_glass: OnceLock::new(),
        })
    }

    /// Keeps the configurations current, for ever. Where they are not served it stays without any, and lets no write pass.
    pub async fn follow(self: Arc<Self>) {
        let resource = match self.phase {
            Phase::Mutating => "mutatingwebhookconfigurations",
            Phase::Validating => "validatingwebhookconfigurations",
        };
        let Some(registered) = self.directory.get(&GroupResource::new(GROUP, resource)) else {
            tracing::error!(
                plugin = self.name(),
                resource,
                "admission configuration is not served"
            );
            return;
        };
        follow(registered.store, |snapshot| self.take(snapshot)).await;
    }

    /// Reads what has changed and publishes the list.
    fn take(&self, snapshot: &Snapshot) {
        let before = self.configurations.get();
        let before = before.iter().flat_map(|list| list.iter());
        let before: HashMap<&str, &Arc<Configuration>> = before.map(|one| (one.name.as_str(), one)).collect();
        let now = snapshot
            .objects
            .values()
            .map(|entry| match before.get(entry.name()) {
                Some(known) if known.revision == Some(entry.revision) => Arc::clone(known),
                _ => self.read(Origin::Stored(entry.clone())),
            });
        self.configurations.set(now.collect());
    }

    fn read(&self, origin: Origin) -> Arc<Configuration> {
        Arc::new(Configuration::read(&origin, &self.backends, &self.compiler))
    }

    /// Takes over the configurations of files in place of those before. Has to be called on a runtime.
    pub fn set_manifests(&self, configurations: Vec<Value>) {
        let read = |object| self.read(Origin::Manifest(Arc::new(object)));
        let list: Vec<_> = configurations.into_iter().map(read).collect();
        self.manifests.store(Arc::new(list));
    }

    /// The configurations that may be about a write: those of files, then those that are stored.
    async fn lists(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<[Arc<Vec<Arc<Configuration>>>; 2], ApiError> {
        let stored = match exempt(attributes.gvr) {
            true => Arc::default(),
            false => configuration(&self.configurations, attributes, object).await?,
        };
        Ok([self.manifests.load_full(), stored])
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for Webhooks {
    fn name(&self) -> &'static str {
        match self.phase {
            Phase::Mutating => "MutatingAdmissionWebhook",
            Phase::Validating => "ValidatingAdmissionWebhook",
        }
    }

    fn is_synced(&self) -> bool {
        self.configurations.is_synced()
    }

    async fn wait_until_synced(&self, patience: Duration) {
        // Whether it came in time shows in the state.
        let _ = self.configurations.wait(patience).await;
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        let covers = |list: &[Arc<Configuration>]| {
            let covers = |hook: &Hook| hook.matcher.covers(operation, gvr, subresource, &self.directory);
            list.iter().any(|one| one.hooks.iter().any(covers))
        };
        let stored = || {
            (*self.configurations.peek())
                .as_ref()
                .is_none_or(|list| covers(list))
        };
        covers(&self.manifests.load()) || (!exempt(gvr) && stored())
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        if self.phase != Phase::Mutating {
            return Ok(());
        }
        let lists = self.lists(attributes, object.as_deref()).await?;
        let namespaces = Namespaces(self.directory.clone());
        let rounds = attributes.rounds;
        if let Some(rounds) = rounds {
            rounds.enter(self.name(), object.as_deref());
        }
        let mut called = false;
        let context = attributes.authorized.context();
        let round = usize::from(rounds.is_some_and(Reinvocation::is_second));
        for (index, (configuration, hook)) in hooks(&lists).enumerate() {
            let question = self
                .applies(configuration, hook, attributes, object.as_deref(), &namespaces)
                .await?;
            let Some(question) = question else { continue };
            if rounds.is_some_and(|rounds| !rounds.calls(self.name(), &hook.id)) {
                continue;
            }
            called = true;
            let call = notes::Call {
                configuration: &configuration.name,
                webhook: &hook.name,
                round,
                index,
            };
            let changed = match self.ask(hook, &question, object.as_deref()).await {
                Ok(ReviewResponse {
                    patch: Some(patch), ..
                }) => {
                    let changed = question::patch(hook, question, object.as_deref_mut(), &patch).await;
                    match &changed {
                        Ok(_) => call.patched(context, &patch),
                        Err(_) => self
                            .metrics
                            .unusable(&hook.name, self.phase.label(), attributes.operation),
                    }
                    changed
                }
                Ok(_) => Ok(false),
                Err(failure) => self
                    .apply_failure_policy(hook, failure, &call, context)
                    .map(|()| false),
            };
            call.asked(context, *changed.as_ref().unwrap_or(&false));
            let changed = changed?;
            if let Some(rounds) = rounds {
                if changed {
                    rounds.changed(self.name());
                }
                if hook.reinvoked {
                    rounds.invoked(self.name(), &hook.id);
                }
            }
        }
        if called && let Some(rounds) = rounds {
            rounds.leave(self.name(), object.as_deref());
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        if self.phase != Phase::Validating {
            return Ok(());
        }
        let lists = self.lists(attributes, object).await?;
        let namespaces = Namespaces(self.directory.clone());
        let mut relevant = Vec::new();
        for (configuration, hook) in hooks(&lists) {
            let question = self
                .applies(configuration, hook, attributes, object, &namespaces)
                .await?;
            relevant.extend(question.map(|question| (hook, question)));
        }
        let asked = relevant
            .iter()
            .map(|(hook, question)| self.ask(hook, question, object));
        let answers = join_all(asked).await;
        for (index, ((hook, _), answer)) in relevant.iter().zip(answers).enumerate() {
            let call = notes::Call {
                configuration: "",
                webhook: &hook.name,
                round: 0,
                index,
            };
            if let Err(failure) = answer {
                self.apply_failure_policy(hook, failure, &call, attributes.authorized.context())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
