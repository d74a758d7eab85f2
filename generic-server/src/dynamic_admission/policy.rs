//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: rules in CEL that may refuse or change a write, without a webhook.
//!
//! Policies and bindings are followed in the background; an expression is compiled once, when its policy changes, beside what goes on
//! (`compiling.rs`). A write reads one immutable list, and waits for the policies in it that are about it. Mirrors upstream's
//! `admission/plugin/policy`.

mod compile;
mod mutating;
mod params;
pub mod type_check;
mod validating;
mod variables;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use machinery::{ApiError, GroupResource, GroupVersionResource, meta};
use parking_lot::Mutex;
use serde_json::Value;
use storage::Revision;

use super::checks::RequestAuthorizer;
use super::compiling::{Compiler, Origin};
use super::expression::{Hosts, Input, Matched, request_value};
use super::matching::{Matcher, Namespaces, exempt_from_policies, namespace_of, without_policies};
use super::view::View;
use super::{configuration, shown_name};
use crate::admission::{AdmissionPlugin, Attributes, ConditionLabels, DynamicMetrics, Operation};
use crate::authz::Authorizer;
use crate::directory::Directory;
use crate::registry::cache::Snapshot;
use crate::registry::{Entry, Synced, follow};

use compile::{Body, Policy, Rules};
use params::ParamRef;

pub use compile::faults;

const GROUP: &str = "admissionregistration.k8s.io";

/// Which of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// MutatingAdmissionPolicy.
    Mutating,
    /// ValidatingAdmissionPolicy.
    Validating,
}

impl Phase {
    /// The match conditions of such policies as metrics have them.
    fn condition_labels(self) -> ConditionLabels {
        ConditionLabels {
            kind: "policy",
            phase: match self {
                Phase::Mutating => "admit",
                Phase::Validating => "validate",
            },
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Phase::Mutating => "MutatingAdmissionPolicy",
            Phase::Validating => "ValidatingAdmissionPolicy",
        }
    }

    fn resources(self) -> [&'static str; 2] {
        match self {
            Phase::Mutating => ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
            Phase::Validating => ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        }
    }
}

/// The action that a binding of a validating policy takes on a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Deny,
    Warn,
    Audit,
}

/// A binding.
#[derive(Debug)]
struct Binding {
    name: String,
    policy: String,
    matcher: Option<Matcher>,
    params: Option<ParamRef>,
    actions: Vec<Action>,
}

impl Binding {
    fn read(name: &str, binding: &Value) -> Self {
        let spec = binding.get("spec").unwrap_or(&Value::Null);
        let set = |key: &str| spec.get(key).filter(|value| value.is_object());
        let actions = spec.get("validationActions").and_then(Value::as_array);
        let actions = actions
            .into_iter()
            .flatten()
            .filter_map(|action| match action.as_str()? {
                "Deny" => Some(Action::Deny),
                "Warn" => Some(Action::Warn),
                "Audit" => Some(Action::Audit),
                _ => None,
            });
        Binding {
            name: name.to_string(),
            policy: meta::dig_str(spec, &["policyName"]).to_string(),
            matcher: set("matchResources").map(Matcher::of_resources),
            params: set("paramRef").map(ParamRef::read),
            actions: actions.collect(),
        }
    }

    async fn matches(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        namespaces: &Namespaces,
    ) -> Result<bool, ApiError> {
        match &self.matcher {
            Some(matcher) => {
                let target = matcher.matches(attributes, object, namespaces).await?;
                Ok(target.is_some())
            }
            None => Ok(true),
        }
    }
}

/// A policy with its bindings. Without any it is not active.
#[derive(Debug, Clone)]
struct Active {
    policy: Arc<Policy>,
    bindings: Arc<[Arc<Binding>]>,
}

/// Compiled objects by name, each with the revision that it was compiled from.
type Made<T> = HashMap<String, (Revision, Arc<T>)>;

/// The configuration that the followers have read so far; `None` for what has not been read yet.
#[derive(Debug, Default)]
struct Known {
    policies: Option<Made<Policy>>,
    bindings: Option<Made<Binding>>,
}

/// The admission plugin.
#[derive(Debug)]
pub struct Policies {
    phase: Phase,
    directory: Arc<Directory>,
    authorizer: Arc<dyn Authorizer>,
    metrics: Arc<DynamicMetrics>,
    compiler: Compiler,
    /// Shared by the two followers. Nothing is compiled while it is held.
    known: Mutex<Known>,
    active: Synced<Vec<Active>>,
    /// Those of files, which come first and see writes of what configures policies, too.
    manifests: ArcSwap<Vec<Active>>,
}

impl Policies {
    /// A plugin that knows no policy until they are followed.
    pub fn new(
        phase: Phase,
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        metrics: Arc<DynamicMetrics>,
    ) -> Arc<Self> {
        Self::with(phase, directory, authorizer, metrics, Compiler::shared())
    }

    fn with(
        phase: Phase,
        directory: Arc<Directory>,
        authorizer: Arc<dyn Authorizer>,
        metrics: Arc<DynamicMetrics>,
        compiler: Compiler,
    ) -> Arc<Self> {
        Arc::new(Policies {
            phase,
            directory,
            authorizer,
            metrics,
            compiler,
            known: Mutex::default(),
            active: Synced::default(),
            manifests: ArcSwap::default(),
        })
    }

    /// Keeps policies and bindings current, for ever. Where they are not served it stays without any, and lets no write pass.
    pub async fn follow(self: Arc<Self>) {
        let [policies, bindings] = self
            .phase
            .resources()
            .map(|resource| self.directory.get(&GroupResource::new(GROUP, resource)));
        let (Some(policies), Some(bindings)) = (policies, bindings) else {
            tracing::error!(plugin = self.name(), "admission configuration is not served");
            return;
        };
        tokio::join!(
            follow(policies.store, |snapshot| self.take_policies(snapshot)),
            follow(bindings.store, |snapshot| self.take_bindings(snapshot)),
        );
    }

    fn take_policies(&self, snapshot: &Snapshot) {
        let mut known = self.known.lock();
        let before = known.policies.take().unwrap_or_default();
        known.policies = Some(renew(snapshot, before, |entry, before| {
            let origin = Origin::Stored(entry.clone());
            Policy::read(self.phase, &origin, before, &self.compiler)
        }));
        self.publish(&known);
    }

    fn take_bindings(&self, snapshot: &Snapshot) {
        let mut known = self.known.lock();
        let before = known.bindings.take().unwrap_or_default();
        known.bindings = Some(renew(snapshot, before, |entry, _| {
            Arc::new(Binding::read(entry.name(), &entry.value()))
        }));
        self.publish(&known);
    }

    /// Publishes what is active, once both kinds have been read: a policy is nothing without its bindings.
    fn publish(&self, known: &Known) {
        let (Some(policies), Some(all)) = (&known.policies, &known.bindings) else {
            return;
        };
        let policies = policies.values().map(|(_, policy)| policy);
        self.active
            .set(bound(policies, all.values().map(|(_, binding)| binding)));
    }

    /// Takes over the policies and bindings of files in place of those before. Has to be called on a runtime.
    pub fn set_manifests(&self, policies: Vec<Value>, bindings: &[Value]) {
        let read = |object| {
            let origin = Origin::Manifest(Arc::new(object));
            Policy::read(self.phase, &origin, None, &self.compiler)
        };
        let policies: Vec<_> = policies.into_iter().map(read).collect();
        let bindings = bindings.iter();
        let bindings: Vec<_> = bindings
            .map(|binding| Arc::new(Binding::read(meta::name(binding), binding)))
            .collect();
        self.manifests
            .store(Arc::new(bound(policies.iter(), bindings.iter())));
    }

    /// The policies that may be about a write: those of files, then those that are stored.
    async fn lists(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<[Arc<Vec<Active>>; 2], ApiError> {
        let stored = match exempt_from_policies(attributes.gvr) {
            true => Arc::default(),
            false => configuration(&self.active, attributes, object).await?,
        };
        Ok([self.manifests.load_full(), stored])
    }

    /// Whether the match conditions of a policy hold.
    async fn conditions_of(
        &self,
        policy: &Policy,
        rules: &Rules,
        bindings: &kube_cel::Bindings<'_>,
        hosts: Hosts<'_>,
        operation: Operation,
    ) -> Matched {
        if rules.conditions.is_empty() {
            return Matched::Yes;
        }
        let begun = Instant::now();
        let matched = rules.conditions.matches(bindings, hosts).await;
        let (held, took) = (matched.held(), begun.elapsed());
        let labels = self.phase.condition_labels();
        self.metrics
            .conditions(&policy.name, labels, operation, held, took);
        matched
    }

    /// The namespace whose object expressions see; none for what is in none, and for namespaces themselves.
    async fn namespace(
        &self,
        attributes: &Attributes<'_>,
        namespaces: &Namespaces,
    ) -> Result<Option<Value>, ApiError> {
        let of_namespaces = attributes.gvr.group.is_empty() && &*attributes.gvk.kind == "Namespace";
        match namespace_of(attributes) {
            "" => Ok(None),
            _ if of_namespaces => Ok(None),
            name => namespaces.get(name).await.map(Some),
        }
    }
}

/// The policies that have bindings, with these, by name.
fn bound<'a>(
    policies: impl Iterator<Item = &'a Arc<Policy>>,
    all: impl Iterator<Item = &'a Arc<Binding>>,
) -> Vec<Active> {
    let mut bindings: HashMap<&str, Vec<Arc<Binding>>> = HashMap::new();
    for binding in all {
        bindings.entry(&binding.policy).or_default().push(binding.clone());
    }
    let mut active: Vec<Active> = Vec::new();
    for policy in policies {
        if let Some(mut bound) = bindings.remove(policy.name.as_str()) {
            bound.sort_by(|a, b| a.name.cmp(&b.name));
            active.push(Active {
                policy: policy.clone(),
                bindings: bound.into(),
            });
        }
    }
    active.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
    active
}

/// Compiles the objects that there are. `make` also receives what it made of an object's previous revision.
fn renew<T>(
    snapshot: &Snapshot,
    mut before: Made<T>,
    make: impl Fn(&Arc<Entry>, Option<Arc<T>>) -> Arc<T>,
) -> Made<T> {
    let entries = snapshot.objects.values().map(|entry| {
        let name = entry.name();
        let made = match before.remove(name) {
            Some((revision, made)) if revision == entry.revision => made,
            old => make(entry, old.map(|(_, made)| made)),
        };
        (name.to_string(), (entry.revision, made))
    });
    entries.collect()
}

#[async_trait::async_trait]
impl AdmissionPlugin for Policies {
    fn name(&self) -> &'static str {
        self.phase.kind()
    }

    fn is_synced(&self) -> bool {
        self.active.is_synced()
    }

    async fn wait_until_synced(&self, patience: Duration) {
        // Whether it came in time shows in the state.
        let _ = self.active.wait(patience).await;
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        let covers = |list: &[Active]| {
            let covers = |one: &Active| {
                one.policy
                    .matcher
                    .covers(operation, gvr, subresource, &self.directory)
            };
            list.iter().any(covers)
        };
        let stored = || (*self.active.peek()).as_ref().is_none_or(|list| covers(list));
        !without_policies(gvr) && (covers(&self.manifests.load()) || (!exempt_from_policies(gvr) && stored()))
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        match self.phase {
            Phase::Mutating => self.mutate(attributes, object).await,
            Phase::Validating => Ok(()),
        }
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        match self.phase {
            Phase::Mutating => Ok(()),
            Phase::Validating => self.check(attributes, object).await,
        }
    }
}

#[cfg(test)]
mod tests;
