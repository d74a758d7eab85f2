//! The webhooks of configurations, as they are read when a configuration changes.

use std::sync::Arc;
use std::time::Duration;

use machinery::meta;
use serde_json::Value;
use storage::Revision;

use crate::cpu;
use crate::dynamic_admission::compiling::{Compiled, Compiler, Origin};
use crate::dynamic_admission::expression::{Conditions, Scope};
use crate::dynamic_admission::matching::Matcher;
use crate::webhook::{Services, WebhookClient, WebhookUsers};

/// One webhook. Its conditions are with those of its [`Configuration`].
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    /// Unique among all: configuration and position.
    pub(super) id: String,
    pub(super) matcher: Matcher,
    /// Where in its configuration it is, if it has conditions.
    pub(super) conditions: Option<usize>,
    pub(super) versions: Vec<String>,
    pub(super) ignore_failures: bool,
    pub(super) quiet: bool,
    pub(super) reinvoked: bool,
    pub(super) timeout: Duration,
    pub(super) client: WebhookClient,
    /// Where it is reached by one.
    pub(super) service: Option<ServiceName>,
}

impl Hook {
    fn read(configuration: &str, index: usize, hook: &Value, backends: &Backends) -> Self {
        let text = |key: &str| meta::dig_str(hook, &[key]);
        let versions = hook.get("admissionReviewVersions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().filter_map(Value::as_str);
        let config = hook.get("clientConfig").unwrap_or(&Value::Null);
        let service = config.get("service").filter(|service| service.is_object());
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
            client: backends.client(config),
            service: service.map(|service| ServiceName {
                namespace: meta::dig_str(service, &["namespace"]).to_string(),
                name: meta::dig_str(service, &["name"]).to_string(),
            }),
        }
    }
}

/// The Service of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How webhooks are found, and as whom they are asked.
#[derive(Debug)]
pub(super) struct Backends {
    pub(super) services: Services,
    pub(super) users: WebhookUsers,
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
pub(super) struct Configuration {
    pub(super) name: String,
    /// Of a stored configuration.
    pub(super) revision: Option<Revision>,
    pub(super) hooks: Vec<Hook>,
    /// Of each webhook.
    pub(super) conditions: Compiled<Vec<Conditions>>,
}

impl Configuration {
    /// Reads a configuration and starts to compile what conditions it has.
    pub(super) fn read(origin: &Origin, backends: &Backends, compiler: &Compiler) -> Self {
        let value = origin.value();
        let hooks = webhooks(&value).iter().enumerate();
        let (id, revision) = match origin {
            Origin::Stored(entry) => (entry.name().to_string(), Some(entry.revision)),
            Origin::Manifest(_) => (format!("manifest/{}", origin.name()), None),
        };
        let hooks: Vec<Hook> = hooks
            .map(|(index, hook)| Hook::read(&id, index, hook, backends))
            .collect();
        let conditions = match hooks.iter().any(|hook| hook.conditions.is_some()) {
            true => compiler.start(origin, compile),
            false => Compiled::done(Vec::new()),
        };
        Configuration {
            name: origin.name().to_string(),
            revision,
            hooks,
            conditions,
        }
    }
}

/// All webhooks in the order that they are asked in.
pub(super) fn hooks(lists: &[Arc<Vec<Arc<Configuration>>>]) -> impl Iterator<Item = (&Configuration, &Hook)> {
    lists
        .iter()
        .flat_map(|list| list.iter())
        .flat_map(|configuration| {
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

pub(super) fn scope() -> Scope {
    Scope {
        authorizer: true,
        ..Scope::default()
    }
}
