//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: other servers that may change or refuse a write.
//!
//! Configurations are followed in the background; their conditions are compiled when they change, beside what goes on
//! (`compiling.rs`). A write reads one immutable list, and waits for the conditions of webhooks that are about it. Mutating
//! webhooks are asked one after the other, in the order of their configurations' names; validating ones at once. Mirrors
//! upstream's `admission/plugin/webhook`.

mod notes;
mod review;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use machinery::patch::PatchError;
use machinery::{ApiError, FieldError, FieldPath, GroupResource, GroupVersionResource, meta};
use serde_json::Value;
use storage::Revision;

use super::compiling::{Compiled, Compiler};
use super::configuration;
use super::expression::{Conditions, Input, Matched, RequestAuthorizer, Scope, request_value};
use super::matching::{Matcher, Namespaces, exempt};
use crate::admission::{AdmissionPlugin, Attributes, Operation, Reinvocation};
use crate::authz::Authorizer;
use crate::cpu;
use crate::directory::Directory;
use crate::registry::cache::Snapshot;
use crate::registry::{Entry, Synced, follow};
use crate::request::RequestContext;
use crate::webhook::{Services, WebhookClient, WebhookUsers};
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

/// One webhook. Its conditions are with those of its [`Configuration`].
#[derive(Debug)]
struct Hook {
    name: String,
    /// Unique among all: configuration and position.
    id: String,
    matcher: Matcher,
    /// Where in its configuration it is, if it has conditions.
    conditions: Option<usize>,
    versions: Vec<String>,
    ignore_failures: bool,
    quiet: bool,
    reinvoked: bool,
    timeout: Duration,
    client: WebhookClient,
}

impl Hook {
    fn read(configuration: &str, index: usize, hook: &Value, backends: &Backends) -> Self {
        let text = |key: &str| meta::dig_str(hook, &[key]);
        let versions = hook.get("admissionReviewVersions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().filter_map(Value::as_str);
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        Hook {
            name: text("name").to_string(),
            id: format!("{configuration}/{index}"),
            matcher: Matcher::of_webhook(hook),
            conditions: conditional(hook).then_some(index),
            versions: versions.map(str::to_string).collect(),
            ignore_failures: text("failurePolicy") == "Ignore",
            quiet: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoked: text("reinvocationPolicy") == "IfNeeded",
            timeout: Duration::from_secs(seconds.clamp(1, 30)),
            client: backends.client(hook.get("clientConfig").unwrap_or(&Value::Null)),
        }
    }
}

/// How webhooks are found, and as whom they are asked.
#[derive(Debug)]
struct Backends {
    services: Services,
    users: WebhookUsers,
}

impl Backends {
    fn client(&self, config: &Value) -> WebhookClient {
        WebhookClient::with_users(config, self.services.clone(), &self.users)
    }
}

fn conditional(hook: &Value) -> bool {
    hook.get("matchConditions")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

/// A configuration of webhooks.
#[derive(Debug)]
struct Configuration {
    name: String,
    revision: Revision,
    hooks: Vec<Hook>,
    /// Of each webhook.
    conditions: Compiled<Vec<Conditions>>,
}

impl Configuration {
    /// Reads a configuration and starts to compile what conditions it has.
    fn read(entry: &Arc<Entry>, backends: &Backends, compiler: &Compiler) -> Self {
        let value = entry.value();
        let hooks = webhooks(&value).iter().enumerate();
        let hooks: Vec<Hook> = hooks
            .map(|(index, hook)| Hook::read(entry.name(), index, hook, backends))
            .collect();
        let conditions = match hooks.iter().any(|hook| hook.conditions.is_some()) {
            true => compiler.start(entry, compile),
            false => Compiled::done(Vec::new()),
        };
        Configuration {
            name: entry.name().to_string(),
            revision: entry.revision,
            hooks,
            conditions,
        }
    }
}

/// All webhooks in the order that they are asked in.
fn hooks(list: &[Arc<Configuration>]) -> impl Iterator<Item = (&Configuration, &Hook)> {
    list.iter().flat_map(|configuration| {
        configuration
            .hooks
            .iter()
            .map(move |hook| (&**configuration, hook))
    })
}

fn webhooks(configuration: &Value) -> &[Value] {
    configuration
        .get("webhooks")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Compiles the conditions of a configuration's webhooks, of which each has a few.
async fn compile(configuration: Value) -> Vec<Conditions> {
    let env = scope().env().build();
    let mut all = Vec::new();
    for hook in webhooks(&configuration) {
        all.push(Conditions::compile(hook, &env));
        cpu::slice().await;
    }
    all
}

fn scope() -> Scope {
    Scope {
        authorizer: true,
        ..Scope::default()
    }
}

/// A call that did not come to an answer, or a refusal.
enum Failure {
    /// By failure policy: an error, or nothing.
    Call(String),
    Refused(ApiError),
}

/// The admission plugin.
#[derive(Debug)]
pub struct Webhooks {
    phase: Phase,
    directory: Arc<Directory>,
    authorizer: Arc<dyn Authorizer>,
    backends: Backends,
    compiler: Compiler,
    configurations: Synced<Vec<Arc<Configuration>>>,
}

impl Webhooks {
    /// A plugin that knows no configuration until it is followed. It asks webhooks as these users.
    pub fn new(
        phase: Phase,
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
    ) -> Arc<Self> {
        Self::with(phase, directory, authorizer, users, Compiler::shared())
    }

    fn with(
        phase: Phase,
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        users: WebhookUsers,
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
            compiler,
            configurations: Synced::default(),
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
                Some(known) if known.revision == entry.revision => Arc::clone(known),
                _ => Arc::new(Configuration::read(entry, &self.backends, &self.compiler)),
            });
        self.configurations.set(now.collect());
    }

    /// Whether a webhook is to be asked about a write.
    async fn applies(
        &self,
        configuration: &Configuration,
        hook: &Hook,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<bool, ApiError> {
        if !hook.matcher.matches(attributes, object, namespaces).await? {
            return Ok(false);
        }
        let Some(index) = hook.conditions else {
            return Ok(true);
        };
        let all = super::configuration(&configuration.conditions, attributes, object).await?;
        let Some(conditions) = all.get(index) else {
            return Ok(true);
        };
        let request = request_value(attributes);
        let authorizer = RequestAuthorizer::of(attributes, &*self.authorizer);
        let input = Input {
            object,
            old: attributes.old,
            request: &request,
            namespace: None,
            params: None,
            authorizer: Some(&authorizer),
        };
        match conditions.matches(&input.bindings(), None) {
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
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<ReviewResponse, Failure> {
        if attributes.dry_run && !hook.quiet {
            let text = format!("admission webhook \"{}\" does not support dry run", hook.name);
            return Err(Failure::Refused(ApiError::bad_request(text)));
        }
        let request = ReviewRequest::new(&hook.versions, attributes, object).map_err(Failure::Call)?;
        let body = Bytes::from(request.body.to_string());
        let review = hook
            .client
            .post(body, hook.timeout, MAX_ANSWER)
            .await
            .map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        let answer = request
            .read(&review, self.phase == Phase::Mutating)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
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
            Failure::Call(why) if hook.ignore_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write goes on"
                );
                call.failed_open(context, phase);
                Ok(())
            }
            Failure::Call(why) => {
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
    fn patch(
        hook: &Hook,
        attributes: &Attributes<'_>,
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
        let patched = machinery::patch::json::apply(object, patch).map_err(|error| match error {
            PatchError::BadRequest(text) | PatchError::TooLarge(text) | PatchError::Internal(text) => {
                ApiError::internal(text)
            }
            PatchError::Unprocessable(text) => ApiError::internal(text),
        })?;
        let patched = attributes.reread(patched)?;
        let changed = patched != *object;
        *object = patched;
        Ok(changed)
    }
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
        match &*self.configurations.peek() {
            None => !exempt(gvr),
            Some(list) => {
                !list.is_empty()
                    && !exempt(gvr)
                    && hooks(list).any(|(_, hook)| hook.matcher.covers(operation, gvr, subresource))
            }
        }
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        if self.phase != Phase::Mutating {
            return Ok(());
        }
        let list = configuration(&self.configurations, attributes, object.as_deref()).await?;
        let namespaces = Namespaces(self.directory.clone());
        let rounds = attributes.rounds;
        if let Some(rounds) = rounds {
            rounds.enter(self.name(), object.as_deref());
        }
        let mut called = false;
        let context = attributes.authorized.context();
        let round = usize::from(rounds.is_some_and(Reinvocation::is_second));
        for (index, (configuration, hook)) in hooks(&list).enumerate() {
            if !self
                .applies(configuration, hook, attributes, object.as_deref(), &namespaces)
                .await?
                || rounds.is_some_and(|rounds| !rounds.calls(self.name(), &hook.id))
            {
                continue;
            }
            called = true;
            let call = notes::Call {
                configuration: &configuration.name,
                webhook: &hook.name,
                round,
                index,
            };
            let changed = match self.ask(hook, attributes, object.as_deref()).await {
                Ok(ReviewResponse {
                    patch: Some(patch), ..
                }) => {
                    let changed = Self::patch(hook, attributes, object.as_deref_mut(), &patch);
                    if changed.is_ok() {
                        call.patched(context, &patch);
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
        let list = configuration(&self.configurations, attributes, object).await?;
        let namespaces = Namespaces(self.directory.clone());
        let mut relevant = Vec::new();
        for (configuration, hook) in hooks(&list) {
            if self
                .applies(configuration, hook, attributes, object, &namespaces)
                .await?
            {
                relevant.push(hook);
            }
        }
        let asked = relevant.iter().map(|hook| self.ask(hook, attributes, object));
        let answers = join_all(asked).await;
        for (index, (hook, answer)) in relevant.iter().zip(answers).enumerate() {
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
