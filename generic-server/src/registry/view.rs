//! Access to a store's objects, which takes a proof of authorization. Costs nothing at run time.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use machinery::ApiError;
use serde_json::Value;
use storage::{Guard, Store};

use super::cache::{Entry, ObjectCache, Snapshot, Unreadable};
use super::store::{ObjectStore, Written};
use crate::request::Authorized;

/// A store's objects, for work that is authorized: the only way to them from outside of the registry.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a ObjectStore);

impl ObjectStore {
    /// The objects, for a request that has passed authorization.
    pub fn view(&self, _proof: &Authorized) -> View<'_> {
        View(self)
    }

    /// The objects, for the server's own work: controllers, configuration, start-up. Never for what a request asks for.
    pub fn as_system(&self) -> View<'_> {
        View(self)
    }
}

impl Deref for View<'_> {
    type Target = ObjectStore;

    fn deref(&self) -> &ObjectStore {
        self.0
    }
}

impl<'a> View<'a> {
    /// The engine below.
    pub fn engine(self) -> &'a Arc<dyn Store> {
        self.0.engine()
    }

    /// The cache, started on first use. A reference stays usable after the store has dropped it.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn cache(self) -> Result<Arc<ObjectCache>, ApiError> {
        self.0.cache().await
    }

    /// The cache, when it has been started. To look at it does not count as a use.
    pub fn started_cache(self) -> Option<Arc<ObjectCache>> {
        self.0.started_cache()
    }

    /// All objects, no older than any write acknowledged before the call.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn fresh(self) -> Result<Arc<Snapshot>, ApiError> {
        self.0.fresh().await
    }

    /// One object, no older than any write acknowledged before the call.
    ///
    /// # Errors
    /// When the engine does not answer, or the object cannot be decoded.
    pub async fn find(self, namespace: &str, name: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        self.0.find(namespace, name).await
    }

    /// As [`View::find`], without starting a cache for it where the engine is in this process: for a single look when a server
    /// starts on a large store.
    ///
    /// # Errors
    /// As for [`View::find`].
    pub async fn find_once(self, namespace: &str, name: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        self.0.find_once(namespace, name).await
    }

    /// One object, or 404.
    ///
    /// # Errors
    /// When it is not there, or as for [`View::find`].
    pub async fn get(self, namespace: &str, name: &str) -> Result<Arc<Entry>, ApiError> {
        self.0.get(namespace, name).await
    }

    /// An object of a snapshot by its key. One that could not be read is read again.
    pub(crate) async fn look_up(
        self,
        snapshot: &Snapshot,
        key: &str,
        verb: &str,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        self.0.look_up(snapshot, key, verb).await
    }

    /// The error of a list for objects that cannot be read, when there are any among these. They are read again first; `None`
    /// when they can be read now, and the caller takes a newer snapshot.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn unreadable_in_list(
        self,
        unreadable: &[Arc<Unreadable>],
    ) -> Result<Option<ApiError>, ApiError> {
        self.0.unreadable_in_list(unreadable).await
    }

    /// Removes an object that cannot be read, without checks of its content. False when it is not there.
    pub(crate) async fn remove_unread(self, key: &str) -> Result<bool, ApiError> {
        self.0.remove_unread(key).await
    }

    /// Stores a new object, which has a name and no resourceVersion. `Lost` when the name is taken.
    ///
    /// # Errors
    /// When the engine does not answer or refuses, or the object cannot be encoded.
    pub async fn insert(self, object: &Value, ttl: Option<Duration>) -> Result<Written, ApiError> {
        self.0.insert(object, ttl).await
    }

    /// As [`View::insert`], or as [`View::replace`] where there is a `previous`, as long as other keys of this engine are as `guards`
    /// say.
    ///
    /// # Errors
    /// As for [`View::insert`], and 500 `ServerTimeout` when a guard does not hold.
    pub(crate) async fn put_guarded(
        self,
        previous: Option<&Arc<Entry>>,
        object: &Value,
        guards: Vec<Guard>,
    ) -> Result<Written, ApiError> {
        self.0.put_guarded(previous, object, guards).await
    }

    /// Replaces an object as it was at `previous`. `Lost` when it has changed since or is gone. Storing what is there
    /// already writes nothing and answers `previous`.
    ///
    /// # Errors
    /// As for [`View::insert`].
    pub async fn replace(
        self,
        previous: &Arc<Entry>,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Written, ApiError> {
        self.0.replace(previous, object, ttl).await
    }

    /// Removes an object as it was at `previous`. The entry answered is its last state with the deletion's revision.
    ///
    /// # Errors
    /// When the engine does not answer or refuses.
    pub async fn remove(self, previous: &Arc<Entry>) -> Result<Written, ApiError> {
        self.0.remove(previous).await
    }

    /// Whether the stored value is damaged or not an object at all, so that it will never be readable. A value that cannot be
    /// decrypted is not: its key may come.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn is_damaged(self, namespace: &str, name: &str) -> Result<bool, ApiError> {
        self.0.is_damaged(namespace, name).await
    }

    /// Removes an object if it [is damaged](View::is_damaged), for callers that can make it again. True when it was there.
    ///
    /// # Errors
    /// When the engine does not answer, and 409 when it was written meanwhile.
    pub async fn remove_damaged(self, namespace: &str, name: &str) -> Result<bool, ApiError> {
        self.0.remove_damaged(namespace, name).await
    }
}
