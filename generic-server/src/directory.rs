//! Every object store of the process by resource, for what works across resources: garbage collection, namespace
//! deletion, quota, role look-ups. Not for serving requests: handlers hold their store.

pub mod figures;
pub mod integrity;
pub mod monitor;
mod remote;
mod versions;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use imbl::{HashMap, OrdMap};
use machinery::{GroupKind, GroupResource};

pub use remote::{KindLocation, RemainingContent, RemoteAsk, RemoteLines, RemoteResource, RemoteResources};
pub use versions::{ServedVersion, SharedStore, Versions};

use crate::registry::ObjectStore;
use crate::resource::ServedResource;

/// The stores of all servers in the process. Stores come and go with CRDs.
#[derive(Debug, Default)]
pub struct Directory {
    listing: ArcSwap<Listing>,
    remote: OnceLock<Arc<dyn RemoteResources>>,
    changed: tokio::sync::watch::Sender<u64>,
}

/// The stores at one moment, and the ways to find one.
#[derive(Debug, Clone, Default)]
struct Listing {
    stores: Arc<OrdMap<GroupResource, Registered>>,
    kinds: HashMap<GroupKind, GroupResource>,
    /// By what their keys begin with, without the final slash.
    prefixes: HashMap<Arc<str>, GroupResource>,
    /// Of what is served under several versions, by each of their resources.
    versions: HashMap<GroupResource, Arc<dyn Versions>>,
}

impl Listing {
    fn without(&self, key: &GroupResource) -> Listing {
        let mut new = self.clone();
        if let Some(old) = Arc::make_mut(&mut new.stores).remove(key) {
            let kind = old.resource.gvk.group_kind();
            if new.kinds.get(&kind) == Some(key) {
                new.kinds.remove(&kind);
            }
            let prefix = old.store.config().prefix.as_str();
            if new.prefixes.get(prefix) == Some(key) {
                new.prefixes.remove(prefix);
            }
        }
        new
    }
}

/// A store with its preferred served version (whose strategy deletes and whose kind owner references name).
#[derive(Debug, Clone)]
pub struct Registered {
    /// The objects.
    pub store: Arc<ObjectStore>,
    /// The preferred version.
    pub resource: Arc<ServedResource>,
}

/// The same store, served by the same resource.
impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store) && Arc::ptr_eq(&self.resource, &other.resource)
    }
}

impl Directory {
    /// Adds or replaces a resource's store.
    pub fn register(&self, resource: Arc<ServedResource>) {
        let Some(store) = resource.store().cloned() else {
            return;
        };
        let key = resource.gvr.group_resource();
        let prefix: Arc<str> = store.config().prefix.as_str().into();
        let registered = Registered { store, resource };
        self.listing.rcu(|old| {
            let mut new = old.without(&key);
            new.kinds
                .insert(registered.resource.gvk.group_kind(), key.clone());
            new.prefixes.insert(prefix.clone(), key.clone());
            Arc::make_mut(&mut new.stores).insert(key.clone(), registered.clone());
            new
        });
        self.changed.send_modify(|n| *n += 1);
    }

    /// Forgets a resource.
    pub fn remove(&self, key: &GroupResource) {
        self.listing.rcu(|old| old.without(key));
        self.changed.send_modify(|n| *n += 1);
    }

    /// Sets or removes the versions of the objects of a resource.
    pub fn set_versions(&self, key: &GroupResource, versions: Option<&Arc<dyn Versions>>) {
        self.listing.rcu(|old| {
            let mut new = Listing::clone(old);
            match versions {
                Some(versions) => new.versions.insert(key.clone(), versions.clone()),
                None => new.versions.remove(key),
            };
            new
        });
    }

    /// The versions of the objects of a resource, where there are several.
    pub fn versions(&self, key: &GroupResource) -> Option<Arc<dyn Versions>> {
        self.listing.load().versions.get(key).cloned()
    }

    /// A resource's store.
    pub fn get(&self, key: &GroupResource) -> Option<Registered> {
        self.listing.load().stores.get(key).cloned()
    }

    /// The resource of a kind.
    pub fn of_kind(&self, kind: &GroupKind) -> Option<Registered> {
        let listing = self.listing.load();
        listing.stores.get(listing.kinds.get(kind)?).cloned()
    }

    /// The resource that a storage key belongs to.
    pub fn of_key(&self, key: &str) -> Option<GroupResource> {
        let listing = self.listing.load();
        let cuts = key.rmatch_indices('/').map(|(at, _)| &key[..at]);
        cuts.filter(|prefix| !prefix.is_empty())
            .find_map(|prefix| listing.prefixes.get(prefix))
            .cloned()
    }

    /// All of them, at this moment. Two such moments share what is the same, so that they are compared at the cost of what is not.
    pub fn all(&self) -> Arc<OrdMap<GroupResource, Registered>> {
        self.listing.load().stores.clone()
    }

    /// Sets what knows of other servers' content; the first one stays.
    pub fn set_remote_resources(&self, remote: Arc<dyn RemoteResources>) {
        let _ = self.remote.set(remote);
    }

    /// The content of other servers, where there are any.
    pub fn remote_resources(&self) -> Option<&Arc<dyn RemoteResources>> {
        self.remote.get()
    }

    /// Fires when a store comes or goes.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::fixture::fixture;

    #[test]
    fn a_resource_is_found_by_kind_and_key() {
        let fixture = fixture(false);
        let directory = Directory::default();
        directory.register(fixture.resource.clone());
        directory.register(fixture.resource.clone());
        let key = fixture.resource.gvr.group_resource();
        let kind = fixture.resource.gvk.group_kind();
        let prefix = fixture.resource.store().expect("a store").config().prefix.clone();
        assert!(directory.of_kind(&kind).is_some());
        assert_eq!(directory.of_key(&format!("{prefix}/a/b")), Some(key.clone()));
        assert_eq!(directory.of_key(&format!("{prefix}x/a/b")), None);
        assert_eq!(directory.of_key("/"), None);
        directory.remove(&key);
        assert!(directory.of_kind(&kind).is_none());
        assert_eq!(directory.of_key(&format!("{prefix}/a/b")), None);
    }
}
