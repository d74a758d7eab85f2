//! Keeping the authorizer's index in step with pods, volumes and what else is bound to a node.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::directory::Directory;
use generic_server::registry::cache::{Change, ChangeKind, Snapshot};
use generic_server::registry::{Entry, Event, Reflector};
use machinery::GroupResource;
use serde_json::Value;

use super::graph::{Graph, Key, Kind, key};
use super::{NodeAuthorizer, references};
use crate::json::Json;

/// The resources that are followed, and the kind of their objects in the index.
const FOLLOWED: [(&str, &str, Kind); 4] = [
    ("", "pods", Kind::Pod),
    ("", "persistentvolumes", Kind::Volume),
    ("storage.k8s.io", "volumeattachments", Kind::VolumeAttachment),
    ("resource.k8s.io", "resourceslices", Kind::ResourceSlice),
];

/// What is followed besides while its feature is on.
const POD_CERTIFICATES: (&str, &str, Kind) = (
    "certificates.k8s.io",
    "podcertificaterequests",
    Kind::PodCertificateRequest,
);

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
    let more = authorizer.pod_certificates.then_some(POD_CERTIFICATES);
    for (group, resource, kind) in FOLLOWED.into_iter().chain(more) {
        let registered = directory
            .get(&GroupResource::new(group, resource))
            .ok_or_else(ApiError::no_such_path)?;
        let mut reflector = Reflector::new(registered.store);
        if let Event::Failed(error) = authorizer
            .graph
            .follow(kind, &mut reflector, &mut Vec::new())
            .await
        {
            return Err(error);
        }
        let authorizer = authorizer.clone();
        tasks.push(async move {
            let mut changes = Vec::new();
            loop {
                let event = authorizer.graph.follow(kind, &mut reflector, &mut changes).await;
                if let Event::Failed(error) = event {
                    tracing::warn!(resource, %error, "cannot list; the previous state stays in force");
                }
            }
        });
    }
    Ok(tasks)
}

fn own_key(entry: &Entry) -> Key {
    key(entry.namespace(), entry.name())
}

impl Graph {
    /// Waits for what happens next to objects of a kind, and makes it count.
    async fn follow(&self, kind: Kind, reflector: &mut Reflector, changes: &mut Vec<Arc<Change>>) -> Event {
        let event = reflector.next(changes).await;
        if let Event::Listed(snapshot) = &event {
            self.replace(kind, snapshot);
        }
        for change in changes.drain(..) {
            match change.kind {
                ChangeKind::Deleted => self.remove(kind, &change.entry),
                _ => self.put(kind, &change.entry),
            }
        }
        event
    }

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
        self.measured(kind, true, |graph| match kind {
            Kind::Volume => graph.unbind_volume(own),
            kind => graph.unbind(kind, own),
        });
    }

    fn put(&self, kind: Kind, entry: &Entry) {
        let object = entry.value();
        self.measured(kind, false, |graph| {
            graph.put_object(kind, own_key(entry), &object);
        });
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
