//! Admission: plugins that see a write before it is stored, first those that may change it, then those that may refuse it.
//!
//! Plugins run in the order of the chain. The registry calls [`AdmissionChain::admit`] before managed state is final and
//! [`AdmissionChain::validate`] with the object exactly as it would be stored, inside the retry loop of an update.

mod costs;
mod metrics;
mod reinvocation;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use machinery::schema::KindSchema;
use machinery::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::decoding::Decoding;
use crate::registry::strategy::Strategy;
use crate::request::Authorized;

use crate::metrics::Collect;

pub use metrics::DynamicMetrics;
use metrics::{ChainMetrics, Step};
pub(crate) use metrics::{ConditionLabels, WebhookOutcome};
pub use reinvocation::Reinvocation;
pub use report::AdmissionReport;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change (patch and apply included).
    Update,
    /// A deletion.
    Delete,
    /// A stream through a connecting subresource (exec, proxy, ...).
    Connect,
}

impl Operation {
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The write that admission looks at.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// The user and the request.
    pub authorized: &'a Authorized,
    /// The operation.
    pub operation: Operation,
    /// The kind of `object` (for a subresource its own kind, such as Scale or Eviction).
    pub gvk: &'a GroupVersionKind,
    /// The resource of the request.
    pub gvr: &'a GroupVersionResource,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name; empty for a create with generateName.
    pub name: &'a str,
    /// The object as it is now in the store, for updates and deletes.
    pub old: Option<&'a Value>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The request's options (CreateOptions, UpdateOptions, PatchOptions, DeleteOptions) as an object.
    pub options: Option<&'a Value>,
    /// The kind that `object` is of, where it may be changed; `None` where a subresource has a kind of its own.
    pub resource: Option<ObjectKind<'a>>,
    /// The state that the rounds of mutating admission share; the chain fills it in.
    pub rounds: Option<&'a Reinvocation>,
}

/// How objects of a kind are read and defaulted.
#[derive(Debug, Clone, Copy)]
pub struct ObjectKind<'a> {
    /// How they are read.
    pub decoding: &'a Decoding,
    /// The strategy that defaults them.
    pub strategy: &'a dyn Strategy,
}

impl<'a> ObjectKind<'a> {
    /// The schema, where there is one.
    pub fn schema(self) -> Option<&'a KindSchema> {
        self.decoding.schema()
    }
}

impl Attributes<'_> {
    /// An object that a webhook or a policy has changed: read back as its kind, with defaults.
    ///
    /// # Errors
    /// 500 when it is not an object of the kind any more.
    pub fn reread(&self, object: Value) -> Result<Value, ApiError> {
        let Some(kind) = self.resource else {
            return Ok(object);
        };
        let mut object = kind.decoding.reread(object)?;
        kind.strategy.default(&mut object);
        Ok(object)
    }
}

/// One admission plugin.
#[async_trait::async_trait]
pub trait AdmissionPlugin: Send + Sync + std::fmt::Debug {
    /// Upstream's name of the plugin.
    fn name(&self) -> &'static str;

    /// Whether it looks at such writes at all; asked before anything is prepared for it. A plugin that does not know yet says yes
    /// and waits in its phase.
    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool;

    /// Whether it has read its configuration. Readiness waits for it.
    fn is_synced(&self) -> bool {
        true
    }

    /// What it counts, where it has metrics of its own.
    fn metrics(&self) -> Option<Arc<dyn Collect>> {
        None
    }

    /// Waits until it has, no longer than `patience`.
    async fn wait_until_synced(&self, _patience: Duration) {}

    /// May change the object (`None` for deletes and connects without one) or refuse it.
    async fn admit(&self, _attributes: &Attributes<'_>, _object: Option<&mut Value>) -> Result<(), ApiError> {
        Ok(())
    }

    /// May refuse the object as it would be stored.
    async fn validate(&self, _attributes: &Attributes<'_>, _object: Option<&Value>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The plugins, in order. Immutable; a server has one.
#[derive(Debug, Clone, Default)]
pub struct AdmissionChain {
    plugins: Arc<[Arc<dyn AdmissionPlugin>]>,
    metrics: Arc<ChainMetrics>,
}

impl AdmissionChain {
    /// A chain of these plugins, in this order.
    pub fn new(plugins: Vec<Arc<dyn AdmissionPlugin>>) -> Self {
        AdmissionChain {
            metrics: Arc::new(ChainMetrics::new(plugins.iter().map(|plugin| plugin.name()))),
            plugins: plugins.into(),
        }
    }

    /// The durations of its phases and plugins.
    pub fn metrics(&self) -> Arc<dyn Collect> {
        self.metrics.clone()
    }

    /// The plugins that have not read their configuration.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let unsynced = self.plugins.iter().filter(|plugin| !plugin.is_synced());
        unsynced.map(|plugin| plugin.name()).collect()
    }

    /// Waits until all plugins have read their configuration, no longer than `patience`.
    pub async fn wait_until_synced(&self, patience: Duration) {
        futures_util::future::join_all(
            self.plugins
                .iter()
                .map(|plugin| plugin.wait_until_synced(patience)),
        )
        .await;
    }

    /// Whether any plugin looks at such writes.
    pub fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        self.plugins
            .iter()
            .any(|p| p.handles(operation, gvr, subresource))
    }

    /// Runs the mutating phase; twice when webhooks or policies have changed the object.
    pub async fn admit(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        let begun = Instant::now();
        let outcome = self.admit_in_rounds(attributes, object).await;
        let (rejected, took) = (outcome.is_err(), begun.elapsed());
        self.metrics
            .step(Step::Admit, attributes.operation, rejected, took);
        outcome
    }

    async fn admit_in_rounds(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        let rounds = Reinvocation::default();
        let attributes = Attributes {
            rounds: Some(&rounds),
            ..*attributes
        };
        loop {
            for (index, plugin) in self.plugins.iter().enumerate() {
                if plugin.handles(attributes.operation, attributes.gvr, attributes.subresource) {
                    let begun = Instant::now();
                    let outcome = plugin.admit(&attributes, object.as_deref_mut()).await;
                    let (rejected, took) = (outcome.is_err(), begun.elapsed());
                    self.metrics
                        .plugin(index, Step::Admit, attributes.operation, rejected, took);
                    outcome?;
                }
            }
            if !rounds.again() {
                return Ok(());
            }
        }
    }

    /// Runs the validating phase.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let step = Instant::now();
        let mut outcome = Ok(());
        for (index, plugin) in self.plugins.iter().enumerate() {
            if plugin.handles(attributes.operation, attributes.gvr, attributes.subresource) {
                let begun = Instant::now();
                outcome = plugin.validate(attributes, object).await;
                let (rejected, took) = (outcome.is_err(), begun.elapsed());
                self.metrics
                    .plugin(index, Step::Validate, attributes.operation, rejected, took);
                if rejected {
                    break;
                }
            }
        }
        let (rejected, took) = (outcome.is_err(), step.elapsed());
        self.metrics
            .step(Step::Validate, attributes.operation, rejected, took);
        outcome
    }
}
