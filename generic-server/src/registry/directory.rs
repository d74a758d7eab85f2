//! Every object store of the process by resource, for what works across resources: garbage collection, namespace
//! deletion, quota, role look-ups. Not for serving requests: handlers hold their store.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use imbl::HashMap;
use machinery::GroupResource;

use crate::registry::ObjectStore;
use crate::resource::ServedResource;

/// The stores of all servers in the process. Stores come and go with CRDs.
#[derive(Debug, Default)]
pub struct Directory {
    stores: ArcSwap<HashMap<GroupResource, Registered>>,
    elsewhere: OnceLock<Arc<dyn Elsewhere>>,
    changed: tokio::sync::watch::Sender<u64>,
}

/// What other servers keep for the same clients.
#[async_trait::async_trait]
pub trait Elsewhere: Send + Sync + std::fmt::Debug {
    /// Deletes what they keep in a namespace, and tells what could not be and what is still there.
    async fn empty(&self, namespace: &str) -> Leftovers;
}

/// What is left of a namespace on other servers.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// Group versions whose servers cannot be asked, as `group/version: why`.
    pub undiscovered: Vec<String>,
    /// What could not be listed or deleted, and why.
    pub failures: Vec<String>,
    /// Objects that are still there, by resource.
    pub resources: Vec<(GroupResource, usize)>,
    /// The same by finalizer.
    pub finalizers: Vec<(String, usize)>,
}

/// A store with its preferred served version (whose strategy deletes and whose kind owner references name).
#[derive(Debug, Clone)]
pub struct Registered {
    /// The objects.
    pub store: Arc<ObjectStore>,
    /// The preferred version.
    pub resource: Arc<ServedResource>,
}

impl Directory {
    /// Adds or replaces a resource's store.
    pub fn register(&self, resource: Arc<ServedResource>) {
        let Some(store) = resource.store().cloned() else {
            return;
        };
        let key = resource.gvr.group_resource();
        self.stores.rcu(|old| {
            let mut new = HashMap::clone(old);
            new.insert(
                key.clone(),
                Registered {
                    store: store.clone(),
                    resource: resource.clone(),
                },
            );
            new
        });
        self.changed.send_modify(|n| *n += 1);
    }

    /// Forgets a resource.
    pub fn remove(&self, key: &GroupResource) {
        self.stores.rcu(|old| {
            let mut new = HashMap::clone(old);
            new.remove(key);
            new
        });
        self.changed.send_modify(|n| *n += 1);
    }

    /// A resource's store.
    pub fn get(&self, key: &GroupResource) -> Option<Registered> {
        self.stores.load().get(key).cloned()
    }

    /// All of them, at this moment.
    pub fn all(&self) -> Arc<HashMap<GroupResource, Registered>> {
        self.stores.load_full()
    }

    /// Says who knows of other servers' content; the first one to be told stays.
    pub fn set_elsewhere(&self, elsewhere: Arc<dyn Elsewhere>) {
        let _ = self.elsewhere.set(elsewhere);
    }

    /// Who knows of other servers' content, if anybody does.
    pub fn elsewhere(&self) -> Option<&Arc<dyn Elsewhere>> {
        self.elsewhere.get()
    }

    /// Fires when a store comes or goes.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
