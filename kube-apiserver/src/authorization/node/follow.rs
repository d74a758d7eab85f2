//! Keeping the authorizer's index in step with pods, volumes and what else is bound to a node.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use generic_server::registry::cache::{ChangeKind, Interest, Snapshot};
use generic_server::registry::{Directory, Entry, ObjectStore};
use machinery::GroupResource;
use serde_json::Value;
use storage::Revision;

use super::graph::{Graph, Key, Kind, key};
use super::{NodeAuthorizer, references};
use crate::json::Json;

/// How long to wait before a store that could not be read is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// What is read, and what an object of it is in the index.
const FOLLOWED: [(&str, &str, Kind); 4] = [
    ("", "pods", Kind::Pod),
    ("", "persistentvolumes", Kind::Volume),
    ("storage.k8s.io", "volumeattachments", Kind::VolumeAttachment),
    ("resource.k8s.io", "resourceslices", Kind::ResourceSlice),
];

/// Reads what there is, and gives a task per kind that keeps the authorizer in step with it from there on. May be called again
/// when it fails.
///
/// # Errors
/// When a kind is not served or cannot be listed.
pub async fn follow(
    authorizer: Arc<NodeAuthorizer>,
    directory: &Directory,
) -> Result<Vec<impl Future<Output = ()> + Send + use<>>, ApiError> {
    let mut tasks = Vec::new();
    for (group, resource, kind) in FOLLOWED {
        let registered = directory
            .get(&GroupResource::new(group, resource))
            .ok_or_else(ApiError::no_such_path)?;
        let snapshot = registered.store.fresh().await?;
        authorizer.graph.replace(kind, &snapshot);
        let (authorizer, store) = (authorizer.clone(), registered.store.clone());
        tasks.push(async move { keep(&authorizer.graph, kind, &store, snapshot.revision).await });
    }
    Ok(tasks)
}

/// Applies every change after a revision, for ever. What was read before stays in force while the store cannot be read.
async fn keep(graph: &Graph, kind: Kind, store: &Arc<ObjectStore>, mut after: Revision) {
    let resource = &store.config().resource;
    loop {
        let cache = match store.cache().await {
            Ok(cache) => cache,
            Err(error) => {
                tracing::warn!(%resource, %error, "cannot list; what was read before stays in force");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(mut feed) = cache.feed(after, Interest::All).await else {
            // Too far behind: everything anew.
            let snapshot = cache.snapshot();
            graph.replace(kind, &snapshot);
            after = snapshot.revision;
            continue;
        };
        let mut changes = Vec::new();
        while feed.next(&mut changes).await.is_ok() {
            for change in changes.drain(..) {
                match change.kind {
                    ChangeKind::Deleted => graph.remove(kind, &change.entry),
                    _ => graph.put(kind, &change.entry),
                }
                after = change.revision;
            }
        }
    }
}

fn own_key(entry: &Entry) -> Key {
    key(entry.namespace(), entry.name())
}

impl Graph {
    /// Makes the index what a snapshot says. Objects that stay related are so at every moment.
    fn replace(&self, kind: Kind, snapshot: &Snapshot) {
        let keys: HashSet<Key> = snapshot.objects.values().map(|entry| own_key(entry)).collect();
        for gone in self.keys(kind) {
            if !keys.contains(&gone) {
                self.forget(kind, &gone);
            }
        }
        for entry in snapshot.objects.values() {
            self.put(kind, entry);
        }
    }

    fn remove(&self, kind: Kind, entry: &Entry) {
        self.forget(kind, &own_key(entry));
    }

    fn forget(&self, kind: Kind, own: &Key) {
        match kind {
            Kind::Volume => self.unbind_volume(own),
            kind => self.unbind(kind, own),
        }
    }

    fn put(&self, kind: Kind, entry: &Entry) {
        self.put_object(kind, own_key(entry), &entry.value());
    }

    pub(super) fn put_object(&self, kind: Kind, own: Key, object: &Value) {
        let spec = object.dig("spec");
        if kind == Kind::Volume {
            return match spec.has("claimRef") {
                true => {
                    let claim = spec.dig("claimRef");
                    let claim = key(claim.text("namespace"), claim.text("name"));
                    self.bind_volume(own, claim, references::secrets_of_volume(object));
                }
                false => self.unbind_volume(&own),
            };
        }
        match spec.text("nodeName") {
            "" => self.unbind(kind, &own),
            node => {
                let references = match kind {
                    Kind::Pod => references::of_pod(object),
                    _ => Vec::new(),
                };
                self.bind(kind, own, node, references);
            }
        }
    }
}
