//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: other servers that may change or refuse a write.
//!
//! Configurations are followed in the background; their conditions are compiled when they change, beside what goes on
//! (`compiling.rs`). A write reads one immutable list, and waits for the conditions of webhooks that are about it. Mutating
//! webhooks are asked one after the other, in the order of their configurations' names; validating ones at once. Mirrors
//! upstream's `admission/plugin/webhook`.

mod hooks;
mod notes;
mod review;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::join_all;
use machinery::patch::PatchError;
use machinery::{ApiError, FieldError, FieldPath, GroupResource, GroupVersionResource};
use serde_json::Value;

use super::checks::RequestAuthorizer;
use super::compiling::{Compiler, Origin};
use super::configuration;
use super::expression::{Conditions, Hosts, Input, Matched, request_value};
use super::matching::{Namespaces, exempt};
use super::view::View;
use crate::admission::{
    AdmissionPlugin, Attributes, ConditionLabels, DynamicMetrics, Operation, Reinvocation, WebhookOutcome,
};
use crate::authz::Authorizer;
use crate::cpu;
use crate::directory::Directory;
use crate::registry::cache::Snapshot;
use crate::registry::{Synced, follow};
use crate::request::RequestContext;
use crate::webhook::{Services, WebhookUsers};
pub use hooks::ServiceName;

use hooks::{Backends, Configuration, Hook, hooks, scope};
use review::{ReviewRequest, ReviewResponse};

/// The largest answer, in bytes: a patch of the largest object has room.
const MAX_ANSWER: usize = 8 << 20;
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

/// A write as a webhook is asked about it.
#[derive(Debug)]
struct Question<'a> {
    view: View<'a>,
    /// The object, where it is in another version than the request's.
    own: Option<Value>,
}

/// A call that did not come to an answer, or a refusal.
enum Failure {
    /// By failure policy: an error, or nothing.
    Call(Missed),
    /// It could not be reached, and the write may bring it back.
    BrokeGlass(String),
    Refused(ApiError),
}

/// Why there is no answer to go by.
struct Missed {
    /// The code of the answer.
    code: u16,
    why: String,
    /// No connection came about.
    unreachable: bool,
}

/// Decides which writes go on although a webhook cannot be reached that would refuse them for it: those that bring the webhook back.
#[async_trait::async_trait]
pub trait BreakGlass: Send + Sync + std::fmt::Debug {
    /// Whether a write may go on while no connection to this Service comes about.
    async fn lets_past(
        &self,
        service: &ServiceName,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> bool;
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
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
        metrics: Arc<DynamicMetrics>,
    ) -> Arc<Self> {
        Self::with(phase, directory, authorizer, users, metrics, Compiler::shared())
    }

    /// Lets some writes go on although a webhook cannot be reached. The first rule stays.
    pub fn set_break_glass(&self, rule: Arc<dyn BreakGlass>) {
        self.break_glass.get_or_init(|| rule);
    }

    fn with(
        phase: Phase,
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
        metrics: Arc<DynamicMetrics>,
        compiler: Compiler,
    ) -> Arc<Self> {
        Arc::new(Webhooks {
            phase,
            backends: Backends {
                services: Services(directory.clone()),
                users,
            },
            directory,
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

    /// The question about a write for a webhook that is to be asked about it.
    async fn applies<'a>(
        &self,
        configuration: &Configuration,
        hook: &Hook,
        requested: &'a Attributes<'a>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<Option<Question<'a>>, ApiError> {
        let Some(target) = hook.matcher.matches(requested, object, namespaces).await? else {
            return Ok(None);
        };
        let internal = |error: ApiError| ApiError::internal(error.message());
        let view = View::new(target, requested).await.map_err(internal)?;
        let own = view.converted(object).await.map_err(internal)?;
        let question = Question { view, own };
        let wanted = self.wants(configuration, hook, &question, object).await?;
        Ok(wanted.then_some(question))
    }

    /// Whether the conditions of a webhook hold.
    async fn wants(
        &self,
        configuration: &Configuration,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let Some(index) = hook.conditions else {
            return Ok(true);
        };
        let (attributes, requested) = (&question.view.attributes(), question.view.requested());
        let object = question.own.as_ref().or(object);
        let all = super::configuration(&configuration.conditions, attributes, object).await?;
        let Some(conditions) = all.get(index) else {
            return Ok(true);
        };
        let request = request_value(attributes, requested);
        let authorizer = RequestAuthorizer::of(requested, &self.authorizer);
        let input = Input {
            object,
            old: attributes.old,
            request: &request,
            namespace: None,
            params: None,
            authorizer: &authorizer,
        };
        let begun = Instant::now();
        let hosts = Hosts {
            lazy: None,
            authorizer: &authorizer,
        };
        let bindings = input.bindings();
        let matched = conditions.matches(&bindings, hosts).await;
        let labels = ConditionLabels {
            kind: "webhook",
            phase: self.phase.label(),
        };
        let (held, took) = (matched.held(), begun.elapsed());
        self.metrics
            .conditions(&hook.name, labels, attributes.operation, held, took);
        match matched {
            Matched::Yes => Ok(true),
            Matched::No => Ok(false),
            Matched::Failed(_) if hook.ignore_failures => Ok(false),
            Matched::Failed(why) => Err(ApiError::forbidden(
                &attributes.gvr.group_resource(),
                attributes.name,
                why,
            )),
        }
    }

    async fn ask(
        &self,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<ReviewResponse, Failure> {
        let begun = Instant::now();
        let answer = self.call(hook, question, object).await;
        let took = begun.elapsed();
        let attributes = question.view.requested();
        let answer = match answer {
            Err(Failure::Call(missed)) if self.lets_past(hook, &missed, attributes, object).await => {
                self.metrics.broke_glass(&hook.name, self.phase.label());
                Err(Failure::BrokeGlass(missed.why))
            }
            answer => answer,
        };
        let outcome = match &answer {
            Ok(_) => WebhookOutcome::Allowed,
            Err(Failure::Refused(error)) => WebhookOutcome::Refused(error.code()),
            Err(Failure::Call(missed)) => WebhookOutcome::Failed {
                code: missed.code,
                rejected: !hook.ignore_failures,
                why: &missed.why,
            },
            Err(Failure::BrokeGlass(why)) => WebhookOutcome::Failed {
                code: 503,
                rejected: false,
                why,
            },
        };
        self.metrics.webhook(
            &hook.name,
            self.phase.label(),
            attributes.operation,
            outcome,
            took,
        );
        answer
    }

    /// Whether a write goes on although a webhook that is required cannot be reached.
    async fn lets_past(
        &self,
        hook: &Hook,
        missed: &Missed,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> bool {
        match (self.break_glass.get(), &hook.service) {
            (Some(rule), Some(service)) if missed.unreachable && !hook.ignore_failures => {
                let goes_on = rule.lets_past(service, attributes, object).await;
                if goes_on {
                    tracing::warn!(
                        webhook = hook.name,
                        why = missed.why,
                        user = attributes.authorized.user().name,
                        resource = %attributes.gvr,
                        subresource = attributes.subresource,
                        namespace = attributes.namespace,
                        name = attributes.name,
                        "a webhook cannot be reached; a write that may bring it back goes on"
                    );
                }
                goes_on
            }
            _ => false,
        }
    }

    async fn call(
        &self,
        hook: &Hook,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<ReviewResponse, Failure> {
        let attributes = question.view.requested();
        let object = question.own.as_ref().or(object);
        if attributes.dry_run && !hook.quiet {
            let text = format!("admission webhook \"{}\" does not support dry run", hook.name);
            return Err(Failure::Refused(ApiError::bad_request(text)));
        }
        let request =
            ReviewRequest::new(&hook.versions, &question.view, object).map_err(|why| missed(400, why))?;
        let body = Bytes::from(request.body.to_string());
        let review = hook
            .client
            .post(body, hook.timeout, MAX_ANSWER)
            .await
            .map_err(|error| {
                Failure::Call(Missed {
                    code: error.code,
                    why: format!("failed to call webhook: {error}"),
                    unreachable: error.unreachable,
                })
            })?;
        let answer = request
            .read(&review, self.phase == Phase::Mutating)
            .map_err(|why| missed(503, format!("received invalid webhook response: {why}")))?;
        let context = attributes.authorized.context();
        for (key, value) in &answer.annotations {
            context.annotate(|| (format!("{}/{key}", hook.name), value));
        }
        for warning in &answer.warnings {
            context.warn(warning.clone());
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(Failure::Refused(review::refusal(&hook.name, answer.status))),
        }
    }

    /// The consequence of a failed call for the write.
    fn apply_failure_policy(
        &self,
        hook: &Hook,
        failure: Failure,
        call: &notes::Call<'_>,
        context: &RequestContext,
    ) -> Result<(), ApiError> {
        let phase = match self.phase {
            Phase::Mutating => "mutation",
            Phase::Validating => "validating",
        };
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::BrokeGlass(_) => {
                call.broke_glass(context, phase);
                Ok(())
            }
            Failure::Call(Missed { why, .. }) if hook.ignore_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write goes on"
                );
                call.failed_open(context, phase);
                self.metrics.failed_open(&hook.name, self.phase.label());
                Ok(())
            }
            Failure::Call(Missed { why, .. }) => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write is refused"
                );
                Err(ApiError::internal(format!(
                    "failed calling webhook \"{}\": {why}",
                    hook.name
                )))
            }
        }
    }

    /// Applies a webhook's patch. False when it changes nothing.
    async fn patch(
        hook: &Hook,
        question: Question<'_>,
        object: Option<&mut Value>,
        patch: &Value,
    ) -> Result<bool, ApiError> {
        if patch.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let Some(object) = object else {
            return Err(ApiError::internal(format!(
                "admission webhook \"{}\" attempted to modify the object, which is not supported for this operation",
                hook.name
            )));
        };
        let Question { view, own } = question;
        let before = own.as_ref().unwrap_or(object);
        let patched = machinery::patch::json::apply(before, patch).map_err(|error| match error {
            PatchError::BadRequest(text) | PatchError::TooLarge(text) | PatchError::Internal(text) => {
                ApiError::internal(text)
            }
            PatchError::Unprocessable(text) => ApiError::internal(text),
        })?;
        let patched = view.attributes().reread(patched)?;
        let changed = patched != *before;
        if changed {
            *object = view.back(patched).await?;
        }
        Ok(changed)
    }
}

fn missed(code: u16, why: String) -> Failure {
    Failure::Call(Missed {
        code,
        why,
        unreachable: false,
    })
}

/// The errors of the expressions of a configuration's `matchConditions`, for its own admission. Compiles in slices.
pub async fn condition_faults(configuration: &Value) -> Vec<FieldError> {
    let env = scope().env().build();
    let list = |value: &'_ Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut found = Vec::new();
    let path = FieldPath::new("webhooks");
    for (index, hook) in list(configuration, "webhooks").iter().enumerate() {
        let mut conditions = Conditions::default();
        for condition in list(hook, "matchConditions") {
            conditions.push(&condition, &env);
            cpu::slice().await;
        }
        found.extend(conditions.faults(&path.index(index).child("matchConditions")));
    }
    found
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
                    let changed = Self::patch(hook, question, object.as_deref_mut(), &patch).await;
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
