//! Namespace deletion: everything in a terminating namespace is deleted, pods first, what remains is reported in conditions, and
//! when nothing does the `kubernetes` finalizer is taken away. Mirrors upstream's `pkg/controller/namespace/deletion`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{StreamExt, stream};
use generic_server::ApiError;
use generic_server::registry::cache::ChangeKind;
use generic_server::registry::{Event, Reflector};
use generic_server::write::DeleteOptions;
use machinery::time::Timestamp;
use machinery::{GroupResource, meta};
use serde_json::{Value, json};
use tracing::warn;

use super::REST;
use crate::client::{At, Client, list_of};
use crate::json::Json;

const NAMESPACES: At<'static> = ("", "namespaces");
/// How often a namespace that waits for others (pods with grace, finalizers) is looked at again.
const AGAIN: Duration = Duration::from_millis(250);
/// How many namespaces are emptied at once.
const NAMESPACE_CONCURRENCY: usize = 32;
/// How many deletions run at once in each.
const CONCURRENCY: usize = 64;

/// Empties terminating namespaces.
pub(super) async fn run(client: Client) {
    let store = loop {
        match client.resource(NAMESPACES) {
            Ok(registered) => break registered.store,
            Err(_) => tokio::time::sleep(REST).await,
        }
    };
    let ending = |entry: &generic_server::registry::Entry| entry.fields().any(|p| p == "Terminating");
    let mut waiting: BTreeSet<String> = BTreeSet::new();
    let mut reflector = Reflector::new(store);
    let mut changes = Vec::new();
    loop {
        waiting = sweep(&client, std::mem::take(&mut waiting)).await;
        let next = reflector.next(&mut changes);
        let event = if waiting.is_empty() {
            next.await
        } else {
            match tokio::time::timeout(AGAIN, next).await {
                Ok(event) => event,
                Err(_) => continue,
            }
        };
        match event {
            Event::Listed(snapshot) => {
                let found = snapshot.objects.values().filter(|entry| ending(entry));
                waiting.extend(found.map(|entry| entry.name().to_string()));
            }
            Event::Changed => {
                for change in changes.drain(..) {
                    let name = change.entry.name();
                    match change.kind {
                        ChangeKind::Deleted => {
                            waiting.remove(name);
                        }
                        _ if ending(&change.entry) => {
                            waiting.insert(name.to_string());
                        }
                        _ => {}
                    }
                }
            }
            Event::Failed(error) => warn!(error = error.message(), "cannot list namespaces; retrying"),
        }
    }
}

/// Works on every namespace once, several at a time; gives those that are not done.
async fn sweep(client: &Client, names: BTreeSet<String>) -> BTreeSet<String> {
    let works: Vec<BoxFuture<'_, Option<String>>> = names
        .into_iter()
        .map(|name| -> BoxFuture<'_, Option<String>> {
            Box::pin(async move {
                match finish(client, &name).await {
                    Ok(true) => None,
                    Ok(false) => Some(name),
                    Err(error) => {
                        let (namespace, error) = (&name, error.message());
                        warn!(namespace, error, "cannot empty a namespace");
                        Some(name)
                    }
                }
            })
        })
        .collect();
    let left = stream::iter(works).buffer_unordered(NAMESPACE_CONCURRENCY);
    left.filter_map(std::future::ready).collect().await
}

/// The remaining content of a namespace.
#[derive(Debug, Default)]
struct RemainingContent {
    /// Instances by resource, `deployments.apps`, or `pods.` of the core group.
    resources: BTreeMap<String, usize>,
    /// Instances by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// The deletions that failed.
    failures: Vec<String>,
    /// Group versions whose discovery failed.
    undiscovered: Vec<String>,
}

impl RemainingContent {
    fn add(&mut self, resource: &GroupResource, count: usize) {
        let name = format!("{}.{}", resource.resource, resource.group);
        *self.resources.entry(name).or_default() += count;
    }
}

/// Deletes what is in a namespace; true when it is gone.
async fn finish(client: &Client, name: &str) -> Result<bool, ApiError> {
    let Some(namespace) = client.find(NAMESPACES, "", name).await? else {
        return Ok(true);
    };
    if meta::deletion_timestamp(&namespace).is_none() {
        return Ok(true);
    }
    if !namespace.strings("spec.finalizers").any(|f| f == "kubernetes") {
        // Others hold it; they take it from here.
        return Ok(true);
    }
    let remaining = empty(client, name).await;
    if remaining.resources.is_empty() && remaining.failures.is_empty() && remaining.undiscovered.is_empty() {
        client
            .update(NAMESPACES, "", name, "finalize", |live| {
                let spec = live.ensure("spec");
                let rest: Vec<Value> = spec
                    .list("finalizers")
                    .iter()
                    .filter(|f| f.as_str() != Some("kubernetes"))
                    .cloned()
                    .collect();
                spec.put("finalizers", rest);
                Ok(())
            })
            .await?;
        return Ok(true);
    }
    let wanted = conditions(&remaining);
    if !up_to_date(&namespace, &wanted) {
        client
            .update(NAMESPACES, "", name, "status", |live| {
                set_conditions(live, &wanted);
                Ok(())
            })
            .await?;
    }
    Ok(false)
}

/// Deletes everything once and says what is still there. While pods remain nothing else is touched: they may need it to end.
async fn empty(client: &Client, namespace: &str) -> RemainingContent {
    let mut remaining = RemainingContent::default();
    let stores = client.directory().all();
    let mut all: Vec<_> = stores
        .iter()
        .filter(|(_, registered)| registered.store.config().namespaced)
        .collect();
    all.sort_by_key(|(key, _)| {
        (
            !(key.group.is_empty() && &*key.resource == "pods"),
            key.to_string(),
        )
    });
    for (key, registered) in all {
        let (entries, unreadable) = match list_of(registered, namespace).await {
            Ok(listed) => listed,
            Err(error) => {
                remaining.failures.push(error.message().to_string());
                continue;
            }
        };
        if !unreadable.is_empty() {
            // Unreadable objects are content too: an administrator has to delete them unread.
            match registered.store.as_system().unreadable_in_list(&unreadable).await {
                Ok(Some(error)) | Err(error) => remaining.failures.push(error.message().to_string()),
                Ok(None) => remaining.add(key, unreadable.len()),
            }
        }
        if entries.is_empty() {
            continue;
        }
        let options = DeleteOptions {
            propagation: Some("Background".into()),
            ..DeleteOptions::default()
        };
        for batch in entries.chunks(CONCURRENCY) {
            let deletions = batch
                .iter()
                .map(|entry| client.delete_of(registered, namespace, entry.name(), &options));
            for done in join_all(deletions).await {
                match done {
                    Ok(Some(deleted)) if !deleted.gone => {
                        remaining.add(key, 1);
                        for finalizer in meta::finalizers(&deleted.object) {
                            *remaining.finalizers.entry(finalizer.to_string()).or_default() += 1;
                        }
                    }
                    Ok(_) => {}
                    Err(error) => remaining.failures.push(error.message().to_string()),
                }
            }
        }
        if key.group.is_empty() && &*key.resource == "pods" && !remaining.resources.is_empty() {
            let elsewhere = client.directory().remote_resources();
            remaining.undiscovered = elsewhere.map(|e| e.undiscovered()).unwrap_or_default();
            return remaining;
        }
    }
    // Aggregated servers come after local resources: an unreachable one blocks only its own content.
    if let Some(elsewhere) = client.directory().remote_resources() {
        let remote = elsewhere.empty(namespace).await;
        remaining.undiscovered = remote.undiscovered;
        remaining.failures.extend(remote.failures);
        remaining.failures.sort();
        for (resource, count) in remote.resources {
            remaining.add(&resource, count);
        }
        for (finalizer, count) in remote.finalizers {
            *remaining.finalizers.entry(finalizer).or_default() += count;
        }
    }
    remaining
}

/// Type, status, reason and message of the conditions of a namespace that is being emptied.
fn conditions(remaining: &RemainingContent) -> Vec<(&'static str, &'static str, &'static str, String)> {
    let discovery = match remaining.undiscovered.as_slice() {
        [] => (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_string(),
        ),
        failing => (
            "True",
            "DiscoveryFailed",
            format!(
                "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                failing.len(),
                failing.join(", ")
            ),
        ),
    };
    let mut out = vec![
        (
            "NamespaceDeletionDiscoveryFailure",
            discovery.0,
            discovery.1,
            discovery.2,
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_string(),
        ),
    ];
    out.push(match remaining.failures.is_empty() {
        true => (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_string(),
        ),
        false => (
            "NamespaceDeletionContentFailure",
            "True",
            "ContentDeletionFailed",
            format!(
                "Failed to delete all resource types, {} remaining: {}",
                remaining.failures.len(),
                remaining.failures.join(", ")
            ),
        ),
    });
    let list = |map: &BTreeMap<String, usize>, how: &str| {
        let items: Vec<String> = map
            .iter()
            .map(|(what, n)| format!("{what}{how}{n} resource instances"))
            .collect();
        items.join(", ")
    };
    out.push(match remaining.resources.is_empty() {
        true => (
            "NamespaceContentRemaining",
            "False",
            "ContentRemoved",
            "All content successfully removed".to_string(),
        ),
        false => (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            format!(
                "Some resources are remaining: {}",
                list(&remaining.resources, " has ")
            ),
        ),
    });
    out.push(match remaining.finalizers.is_empty() {
        true => (
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_string(),
        ),
        false => (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                list(&remaining.finalizers, " in ")
            ),
        ),
    });
    out
}

type Condition = (&'static str, &'static str, &'static str, String);

fn up_to_date(namespace: &Value, wanted: &[Condition]) -> bool {
    wanted.iter().all(|(kind, status, reason, message)| {
        let list = namespace.list("status.conditions");
        let found = list.iter().find(|c| c.text("type") == *kind);
        found.is_some_and(|c| {
            c.text("status") == *status && c.text("reason") == *reason && c.text("message") == message
        })
    })
}

fn set_conditions(namespace: &mut Value, wanted: &[Condition]) {
    let now = Timestamp::now().to_rfc3339();
    let status = namespace.ensure("status");
    let mut list = status.list("conditions").to_vec();
    for (kind, state, reason, message) in wanted {
        let mut condition = json!({"type": kind, "status": state, "reason": reason, "message": message,
            "lastTransitionTime": now});
        match list.iter_mut().find(|c| c.text("type") == *kind) {
            Some(old) => {
                if old.text("status") == *state {
                    condition.copy_key("lastTransitionTime", old);
                }
                *old = condition;
            }
            None => list.push(condition),
        }
    }
    status.put("conditions", list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_content_is_reported_as_upstream() {
        let mut remaining = RemainingContent::default();
        remaining.add(&GroupResource::new("apps", "deployments"), 1);
        remaining.add(&GroupResource::new("", "pods"), 2);
        remaining.finalizers.insert("example.com/f".into(), 1);
        remaining
            .undiscovered
            .push("a.io/v1: stale GroupVersion discovery: a.io/v1".into());
        let found = conditions(&remaining);
        let message = |kind: &str| {
            let found = found.iter().find(|c| c.0 == kind);
            found.map(|c| c.3.clone()).unwrap_or_default()
        };
        assert_eq!(
            message("NamespaceContentRemaining"),
            "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances"
        );
        assert_eq!(
            message("NamespaceFinalizersRemaining"),
            "Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances"
        );
        let mut namespace = json!({});
        set_conditions(&mut namespace, &found);
        assert!(up_to_date(&namespace, &found));
    }
}
