//! Admission: plugins that see a write before it is stored, first those that may change it, then those that may refuse it.
//!
//! Plugins run in the order of the chain. The registry calls [`AdmissionChain::admit`] before managed state is final and
//! [`AdmissionChain::validate`] with the object exactly as it would be stored, inside the retry loop of an update.

mod expression;
mod matching;
pub mod policy;
mod reinvocation;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use machinery::{ApiError, GroupVersionKind, GroupVersionResource, meta};
use serde_json::Value;

use crate::registry::Synced;
use crate::request::Authorized;
use crate::resource::ServedResource;

pub use reinvocation::Reinvocation;

/// How long a write waits for a plugin that has not read its configuration yet. Upstream's figure (`timeToWaitForReady`).
const TIME_TO_WAIT_FOR_READY: Duration = Duration::from_secs(10);

/// What is being done.
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
    /// Who asks, and how.
    pub authorized: &'a Authorized,
    /// What is being done.
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
    /// The resource that `object` is of; `None` where a subresource has a kind of its own.
    pub resource: Option<&'a ServedResource>,
    /// What the rounds of mutating admission remember; the chain fills it in.
    pub rounds: Option<&'a Reinvocation>,
}

impl Attributes<'_> {
    /// An object that a plugin has changed as somebody else told it to: read back as its kind, with defaults.
    ///
    /// # Errors
    /// 500 when it is not an object of the kind any more.
    pub fn settle(&self, object: Value) -> Result<Value, ApiError> {
        let Some(resource) = self.resource else {
            return Ok(object);
        };
        let mut object = crate::handlers::body::reread(&resource.decoding, object)?;
        resource.strategy.default(&mut object);
        Ok(object)
    }
}

/// The configuration of a plugin. Waits for the first one: a plugin that has not read its configuration does not let writes pass.
///
/// # Errors
/// 403 when it does not come in time, in upstream's words.
async fn configuration<T>(
    synced: &Synced<T>,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<Arc<T>, ApiError> {
    let found = synced.wait(TIME_TO_WAIT_FOR_READY).await;
    found.ok_or_else(|| {
        let name = shown_name(attributes, object);
        ApiError::forbidden(
            &attributes.gvr.group_resource(),
            name,
            "not yet ready to handle request",
        )
    })
}

/// The name that refusals show: of the object, or what it will be called after.
fn shown_name<'a>(attributes: &Attributes<'a>, object: Option<&'a Value>) -> &'a str {
    let own = object.map(|object| match meta::name(object) {
        "" => meta::generate_name(object),
        name => name,
    });
    match (attributes.name, own) {
        ("", Some(own)) if !own.is_empty() => own,
        ("", _) => "Unknown",
        (name, _) => name,
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

    /// Whether it has read what it decides on. Readiness waits for it.
    fn is_synced(&self) -> bool {
        true
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
}

impl AdmissionChain {
    /// A chain of these plugins, in this order.
    pub fn new(plugins: Vec<Arc<dyn AdmissionPlugin>>) -> Self {
        AdmissionChain {
            plugins: plugins.into(),
        }
    }

    /// The plugins that have not read what they decide on.
    pub fn unsynced(&self) -> Vec<&'static str> {
        let unsynced = self.plugins.iter().filter(|plugin| !plugin.is_synced());
        unsynced.map(|plugin| plugin.name()).collect()
    }

    /// Waits until all plugins have read what they decide on, no longer than `patience`.
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
        mut object: Option<&mut Value>,
    ) -> Result<(), ApiError> {
        let rounds = Reinvocation::default();
        let attributes = Attributes {
            rounds: Some(&rounds),
            ..*attributes
        };
        loop {
            for plugin in self.plugins.iter() {
                if plugin.handles(attributes.operation, attributes.gvr, attributes.subresource) {
                    plugin.admit(&attributes, object.as_deref_mut()).await?;
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
        for plugin in self.plugins.iter() {
            if plugin.handles(attributes.operation, attributes.gvr, attributes.subresource) {
                plugin.validate(attributes, object).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::AlwaysAllow;
    use crate::registry::Directory;

    /// A write of a resource while nothing of the configuration has been read.
    async fn outcome(plugin: Arc<dyn AdmissionPlugin>, group: &str, resource: &str) -> Result<(), ApiError> {
        let gvk = GroupVersionKind::new(group, "v1", "Any");
        let gvr = GroupVersionResource::new(group, "v1", resource);
        let authorized = Authorized::system();
        let attributes = Attributes {
            authorized: &authorized,
            operation: Operation::Create,
            gvk: &gvk,
            gvr: &gvr,
            subresource: "",
            namespace: "default",
            name: "one",
            old: None,
            dry_run: false,
            options: None,
            resource: None,
            rounds: None,
        };
        let chain = AdmissionChain::new(vec![plugin]);
        assert_eq!(chain.unsynced().len(), 1);
        let mut object = serde_json::json!({"metadata": {"name": "one"}});
        chain.admit(&attributes, Some(&mut object)).await?;
        chain.validate(&attributes, Some(&object)).await
    }

    #[tokio::test(start_paused = true)]
    async fn configuration_that_was_never_read_lets_nothing_pass() {
        let directory = Arc::new(Directory::default());
        let authorizer = Arc::new(AlwaysAllow);
        let plugins: [Arc<dyn AdmissionPlugin>; 4] = [
            policy::Policies::new(policy::Phase::Mutating, directory.clone(), authorizer.clone()),
            policy::Policies::new(policy::Phase::Validating, directory.clone(), authorizer.clone()),
            webhook::Webhooks::new(webhook::Phase::Mutating, directory.clone(), authorizer.clone()),
            webhook::Webhooks::new(webhook::Phase::Validating, directory, authorizer),
        ];
        for plugin in plugins {
            let name = plugin.name();
            let refused = outcome(plugin.clone(), "", "configmaps").await.unwrap_err();
            let text = "configmaps \"one\" is forbidden: not yet ready to handle request";
            assert_eq!((refused.code(), refused.message()), (403, text), "{name}");
            // What configures admission is never held up by it: a broken configuration has to be removable.
            let group = "admissionregistration.k8s.io";
            let resource = "validatingwebhookconfigurations";
            assert!(outcome(plugin, group, resource).await.is_ok(), "{name}");
        }
    }
}
