//! Admission that objects configure: webhooks and policies, with the expressions that both of them match by.
//!
//! Each is an [`crate::admission::AdmissionPlugin`] that follows its configuration; until that has been read once, it lets no write
//! pass.

mod expression;
mod matching;
pub mod policy;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use machinery::{ApiError, meta};
use serde_json::Value;

use crate::admission::Attributes;
use crate::registry::Synced;

/// How long a write waits for a plugin that has not read its configuration yet. Upstream's figure (`timeToWaitForReady`).
const TIME_TO_WAIT_FOR_READY: Duration = Duration::from_secs(10);

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

#[cfg(test)]
mod tests {
    use machinery::{GroupVersionKind, GroupVersionResource};

    use super::*;
    use crate::admission::{AdmissionChain, AdmissionPlugin, Operation};
    use crate::authz::AlwaysAllow;
    use crate::directory::Directory;
    use crate::request::Authorized;

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
