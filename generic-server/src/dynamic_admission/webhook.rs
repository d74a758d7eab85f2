//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: other servers that may change or refuse a write.
//!
//! Configurations are followed in the background and compiled when they change; a write reads one immutable list. Mutating
//! webhooks are asked one after the other, in the order of their configurations' names; validating ones at once. Mirrors
//! upstream's `admission/plugin/webhook`.

mod review;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kube_cel::Env;
use machinery::patch::PatchError;
use machinery::{ApiError, FieldError, FieldPath, GroupResource, GroupVersionResource, meta};
use serde_json::Value;
use storage::Revision;

use super::configuration;
use super::expression::{Asker, Conditions, Input, Matched, Scope, request_value};
use super::matching::{Matcher, Namespaces, exempt};
use crate::admission::{AdmissionPlugin, Attributes, Operation};
use crate::authz::Authorizer;
use crate::directory::Directory;
use crate::registry::cache::Snapshot;
use crate::registry::{Synced, follow};
use crate::webhook::{Services, WebhookClient};
use review::{Answer, Question};

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

/// One webhook, compiled.
#[derive(Debug)]
struct Hook {
    name: String,
    /// Unique among all: configuration and position.
    id: String,
    matcher: Matcher,
    conditions: Conditions,
    versions: Vec<String>,
    ignore_failures: bool,
    quiet: bool,
    reinvoked: bool,
    timeout: Duration,
    client: WebhookClient,
}

impl Hook {
    fn compile(configuration: &str, index: usize, hook: &Value, env: &Env, services: &Services) -> Self {
        let text = |key: &str| meta::dig_str(hook, &[key]);
        let versions = hook.get("admissionReviewVersions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().filter_map(Value::as_str);
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        Hook {
            name: text("name").to_string(),
            id: format!("{configuration}/{index}"),
            matcher: Matcher::of_webhook(hook),
            conditions: Conditions::compile(hook, env),
            versions: versions.map(str::to_string).collect(),
            ignore_failures: text("failurePolicy") == "Ignore",
            quiet: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoked: text("reinvocationPolicy") == "IfNeeded",
            timeout: Duration::from_secs(seconds.clamp(1, 30)),
            client: WebhookClient::new(hook.get("clientConfig").unwrap_or(&Value::Null), services.clone()),
        }
    }
}

/// A configuration's webhooks, with the revision that they were compiled of.
type Compiled = (Revision, Arc<[Arc<Hook>]>);

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
    hooks: Synced<Vec<Arc<Hook>>>,
}

impl Webhooks {
    /// A plugin that knows no configuration until it is followed.
    pub fn new(phase: Phase, directory: Arc<Directory>, authorizer: Arc<dyn Authorizer>) -> Arc<Self> {
        Arc::new(Webhooks {
            phase,
            directory,
            authorizer,
            hooks: Synced::default(),
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
        let scope = Scope {
            authorizer: true,
            ..Scope::default()
        };
        let env = scope.env().build();
        let services = Services(self.directory.clone());
        let mut known: HashMap<String, Compiled> = HashMap::new();
        follow(registered.store, |snapshot| {
            known = self.compile(snapshot, &mut known, &env, &services);
        })
        .await;
    }

    /// Compiles what has changed and publishes the list.
    fn compile(
        &self,
        snapshot: &Snapshot,
        known: &mut HashMap<String, Compiled>,
        env: &Env,
        services: &Services,
    ) -> HashMap<String, Compiled> {
        let mut now = HashMap::new();
        let mut list = Vec::new();
        for entry in snapshot.objects.values() {
            let name = entry.name();
            let compiled = known
                .remove(name)
                .filter(|(revision, _)| *revision == entry.revision)
                .unwrap_or_else(|| {
                    let value = entry.value();
                    let hooks = value.get("webhooks").and_then(Value::as_array);
                    let hooks = hooks.into_iter().flatten().enumerate();
                    let hooks =
                        hooks.map(|(index, hook)| Arc::new(Hook::compile(name, index, hook, env, services)));
                    (entry.revision, hooks.collect())
                });
            list.extend(compiled.1.iter().cloned());
            now.insert(name.to_string(), compiled);
        }
        self.hooks.set(list);
        now
    }

    /// Whether a webhook is to be asked about a write.
    async fn applies(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<bool, ApiError> {
        if !hook.matcher.matches(attributes, object, namespaces).await? {
            return Ok(false);
        }
        if hook.conditions.is_empty() {
            return Ok(true);
        }
        let request = request_value(attributes);
        let asker = Asker::of(attributes, &*self.authorizer);
        let input = Input {
            object,
            old: attributes.old,
            request: &request,
            namespace: None,
            params: None,
            asker: Some(&asker),
        };
        match hook.conditions.matches(&input.bindings(), None) {
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
    ) -> Result<Answer, Failure> {
        if attributes.dry_run && !hook.quiet {
            let text = format!("admission webhook \"{}\" does not support dry run", hook.name);
            return Err(Failure::Refused(ApiError::bad_request(text)));
        }
        let question = Question::new(&hook.versions, attributes, object).map_err(Failure::Call)?;
        let body = Bytes::from(question.body.to_string());
        let review = hook
            .client
            .post(body, hook.timeout, MAX_ANSWER)
            .await
            .map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
        let answer = question
            .read(&review, self.phase == Phase::Mutating)
            .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
        let context = attributes.authorized.context();
        for (key, value) in &answer.annotations {
            context.annotate(&format!("{}/{key}", hook.name), value.clone());
        }
        for warning in &answer.warnings {
            context.warn(warning.clone());
        }
        match answer.allowed {
            true => Ok(answer),
            false => Err(Failure::Refused(review::refusal(&hook.name, answer.status))),
        }
    }

    /// What a failed call means for the write.
    fn judge(&self, hook: &Hook, failure: Failure) -> Result<(), ApiError> {
        match failure {
            Failure::Refused(error) => Err(error),
            Failure::Call(why) if hook.ignore_failures => {
                tracing::warn!(
                    webhook = hook.name,
                    why,
                    "calling a webhook failed; the write goes on"
                );
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

/// What is wrong with the expressions of a webhook's `matchConditions`, for its own admission. `path` is that of the list.
pub fn condition_faults(hook: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    let scope = Scope {
        authorizer: true,
        ..Scope::default()
    };
    Conditions::compile(hook, &scope.env().build()).faults(path)
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
        self.hooks.is_synced()
    }

    async fn wait_until_synced(&self, patience: Duration) {
        // Whether it came in time shows in the state.
        let _ = self.hooks.wait(patience).await;
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        match &*self.hooks.peek() {
            None => !exempt(gvr),
            Some(hooks) => {
                !hooks.is_empty()
                    && !exempt(gvr)
                    && hooks
                        .iter()
                        .any(|hook| hook.matcher.covers(operation, gvr, subresource))
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
        let hooks = configuration(&self.hooks, attributes, object.as_deref()).await?;
        let namespaces = Namespaces(self.directory.clone());
        let rounds = attributes.rounds;
        if let Some(rounds) = rounds {
            rounds.enter(self.name(), object.as_deref());
        }
        let mut called = false;
        for hook in hooks.iter() {
            if !self
                .applies(hook, attributes, object.as_deref(), &namespaces)
                .await?
                || rounds.is_some_and(|rounds| !rounds.calls(self.name(), &hook.id))
            {
                continue;
            }
            called = true;
            let changed = match self.ask(hook, attributes, object.as_deref()).await {
                Ok(Answer {
                    patch: Some(patch), ..
                }) => Self::patch(hook, attributes, object.as_deref_mut(), &patch)?,
                Ok(_) => false,
                Err(failure) => {
                    self.judge(hook, failure)?;
                    false
                }
            };
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
        let hooks = configuration(&self.hooks, attributes, object).await?;
        let namespaces = Namespaces(self.directory.clone());
        let mut relevant = Vec::new();
        for hook in hooks.iter() {
            if self.applies(hook, attributes, object, &namespaces).await? {
                relevant.push(hook);
            }
        }
        let asked = relevant.iter().map(|hook| self.ask(hook, attributes, object));
        let answers = join_all(asked).await;
        for (hook, answer) in relevant.iter().zip(answers) {
            if let Err(failure) = answer {
                self.judge(hook, failure)?;
            }
        }
        Ok(())
    }
}
