//! The RBAC authorizer's index, kept in step with the stored roles and bindings.

use std::sync::Arc;

use generic_server::directory::Directory;
use generic_server::registry::cache::{self, ChangeKind};
use generic_server::registry::{Event, Reflector};
use generic_server::startup::retry_while_slow;
use machinery::{ApiError, GroupResource};
use serde_json::Value;

use crate::rbac::{Change, Kind, Rbac};

const GROUP: &str = "rbac.authorization.k8s.io";
const KINDS: [(&str, Kind); 4] = [
    ("roles", Kind::Role),
    ("clusterroles", Kind::ClusterRole),
    ("rolebindings", Kind::RoleBinding),
    ("clusterrolebindings", Kind::ClusterRoleBinding),
];

/// Loads the stored roles and bindings into the index, and gives one task per kind that keeps it in step with them.
///
/// # Errors
/// When they cannot be listed.
pub async fn follow_rbac(
    rbac: &Arc<Rbac>,
    directory: &Directory,
) -> Result<Vec<impl Future<Output = ()> + Send + use<>>, ApiError> {
    let mut tasks = Vec::new();
    for (resource, kind) in KINDS {
        let Some(registered) = directory.get(&GroupResource::new(GROUP, resource)) else {
            return Err(ApiError::internal(format_args!(
                "{resource}.{GROUP} is not served"
            )));
        };
        let store = registered.store;
        retry_while_slow(|| store.as_system().fresh()).await?;
        let mut reflector = Reflector::new(store);
        if let Event::Failed(error) = follow(rbac, kind, &mut reflector, &mut Vec::new()).await {
            return Err(error);
        }
        let rbac = rbac.clone();
        tasks.push(async move {
            let mut changes = Vec::new();
            loop {
                if let Event::Failed(error) = follow(&rbac, kind, &mut reflector, &mut changes).await {
                    tracing::warn!(?kind, %error, "cannot list; the previous state stays in force");
                }
            }
        });
    }
    Ok(tasks)
}

/// Waits for what happens next to roles or bindings of a kind, and applies it.
async fn follow(
    rbac: &Rbac,
    kind: Kind,
    reflector: &mut Reflector,
    changes: &mut Vec<Arc<cache::Change>>,
) -> Event {
    let event = reflector.next(changes).await;
    if let Event::Listed(snapshot) = &event {
        let objects: Vec<Value> = snapshot.objects.values().map(|entry| entry.value()).collect();
        rbac.replace(kind, &objects);
    }
    for change in changes.drain(..) {
        let entry = &change.entry;
        match change.kind {
            ChangeKind::Deleted => rbac.apply([Change::delete(kind, entry.namespace(), entry.name())]),
            ChangeKind::Added | ChangeKind::Modified => rbac.apply([Change::put(kind, &entry.value())]),
        }
    }
    event
}
