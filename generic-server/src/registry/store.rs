//! One resource's objects: consistent reads from the cache, guarded writes to the engine.
//!
//! The steps of a *request* (admission, strategy, managed fields, preconditions) are in [`crate::write`]; here an
//! object is JSON under a key. Objects are reached through a [`View`](super::View), which takes a proof of authorization. Objects are of the stored version and carry no resourceVersion when they are written: the
//! engine's revision is spliced in on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use machinery::ApiError;
use parking_lot::Mutex;
use serde_json::Value;
use storage::{Guard, KeyValue, Op, Outcome, Revision, StorageError, Store, Txn};

use crate::registry::budget::Budget;
use crate::registry::cache::{
    Entry, JsonCodec, ObjectCache, Prepared, Snapshot, StorageCodec, Unreadable, ValueError,
};
use crate::registry::config::StoreConfig;
use crate::registry::errors::{self, from_storage};
use crate::registry::figures::{Operation, StoreFigures};
use crate::registry::forms::FormCache;

/// One resource's objects.
#[derive(Debug)]
pub struct ObjectStore {
    config: StoreConfig,
    engine: Arc<dyn Store>,
    codec: Arc<dyn StorageCodec>,
    /// Errors name objects that cannot be read, and these may be deleted, as upstream's `AllowUnsafeMalformedObjectDeletion` has it.
    unsafe_deletion: bool,
    /// The budget of the cache's past states.
    budget: Arc<Budget>,
    /// There from the first use on, until it is empty and idle.
    cache: ArcSwapOption<ObjectCache>,
    /// The state that the first cache begins with.
    seed: Mutex<Option<Arc<Snapshot>>>,
    /// Held while a cache is started.
    starting: tokio::sync::Mutex<()>,
    /// The cache was used since the last check.
    used: AtomicBool,
    /// Deletions that caches have seen that are no longer here.
    earlier_deletions: AtomicU64,
    figures: Arc<StoreFigures>,
}

/// How a guarded write ended.
#[derive(Debug)]
pub enum Written {
    /// It is stored; the object as readers see it now.
    Stored(Arc<Entry>),
    /// Another writer was first; the newest state of the object, if there is one.
    Lost(Option<Arc<Entry>>),
}

impl ObjectStore {
    /// A store over an engine, with values as plain JSON. Nothing is read until it is used.
    pub fn new(engine: Arc<dyn Store>, config: StoreConfig) -> Arc<Self> {
        Self::with_codec(engine, config, Arc::new(JsonCodec))
    }

    /// A store whose values have another form (protobuf in an etcd shared with upstream).
    pub fn with_codec(
        engine: Arc<dyn Store>,
        config: StoreConfig,
        codec: Arc<dyn StorageCodec>,
    ) -> Arc<Self> {
        Self::with_rules(engine, config, codec, false, Budget::standard(), None)
    }

    /// The same; `unsafe_deletion` as the feature gate `AllowUnsafeMalformedObjectDeletion` says, past states within `budget`. Its first cache begins with `seed`.
    pub(crate) fn with_rules(
        engine: Arc<dyn Store>,
        config: StoreConfig,
        codec: Arc<dyn StorageCodec>,
        unsafe_deletion: bool,
        budget: Arc<Budget>,
        seed: Option<Arc<Snapshot>>,
    ) -> Arc<Self> {
        Arc::new(ObjectStore {
            config,
            engine,
            codec,
            unsafe_deletion,
            budget,
            cache: ArcSwapOption::empty(),
            seed: Mutex::new(seed),
            starting: tokio::sync::Mutex::default(),
            used: AtomicBool::new(false),
            earlier_deletions: AtomicU64::new(0),
            figures: Arc::default(),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// What is counted of it.
    pub fn figures(&self) -> &Arc<StoreFigures> {
        &self.figures
    }

    /// The encoded forms of objects, of all resources of the server.
    pub(crate) fn forms(&self) -> &Arc<FormCache> {
        self.budget.forms()
    }

    /// The engine below.
    pub(super) fn engine(&self) -> &Arc<dyn Store> {
        &self.engine
    }

    /// The storage key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        self.config.key(namespace, name)
    }

    /// The cache, started on first use. A reference stays usable after the store has dropped it.
    pub(super) async fn cache(&self) -> Result<Arc<ObjectCache>, ApiError> {
        if let Some(cache) = self.use_cache() {
            return Ok(cache);
        }
        let _starting = self.starting.lock().await;
        if let Some(cache) = self.use_cache() {
            return Ok(cache);
        }
        let (engine, codec) = (self.engine.clone(), self.codec.clone());
        let seed = self.seed.lock().take();
        let counted = self.figures.clone();
        let cache = ObjectCache::start_from(engine, &self.config, codec, self.budget.clone(), seed, counted)
            .await
            .map_err(|error| from_storage(&error, &self.config.resource, "list"))?;
        self.used.store(true, Ordering::Relaxed);
        self.cache.store(Some(cache.clone()));
        Ok(cache)
    }

    /// The cache, when it has been started. To look at it does not count as a use.
    pub(super) fn started_cache(&self) -> Option<Arc<ObjectCache>> {
        self.cache.load_full()
    }

    fn use_cache(&self) -> Option<Arc<ObjectCache>> {
        let cache = self.cache.load_full();
        // Written only when it changes: all requests share it.
        if cache.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        cache
    }

    /// Lets go of a cache that is empty, has no watchers and was not used since the last call. It ends once its last reference
    /// is dropped; the next use starts another. True when it did.
    pub fn drop_idle_cache(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        let idle = self.cache.load().as_ref().is_some_and(|cache| cache.idle());
        if idle {
            // Earlier findings are out of date.
            let before = self.cache.swap(None).map_or(0, |cache| cache.deletions());
            self.earlier_deletions.fetch_add(before + 1, Ordering::Relaxed);
        }
        idle
    }

    /// How many objects have gone since this process began to watch, at least: facts remembered about objects hold while it does
    /// not rise. Does not count as a use.
    pub fn deletions(&self) -> u64 {
        let cache = self.cache.load();
        let current = cache.as_ref().map_or(0, |cache| cache.deletions());
        self.earlier_deletions.load(Ordering::Relaxed) + current
    }

    /// All objects, no older than any write acknowledged before the call.
    pub(super) async fn fresh(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.cache().await?.fresh().await
    }

    /// One object, no older than any write acknowledged before the call. Where the cache does not keep up, the engine is asked.
    pub(super) async fn find(&self, namespace: &str, name: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        let key = self.key(namespace, name);
        match self.fresh().await {
            Ok(snapshot) => self.look_up(&snapshot, &key, "get").await,
            Err(error) if errors::is_too_large(&error) => self.ask(&key).await,
            Err(error) => Err(error),
        }
    }

    /// As [`ObjectStore::find`], without starting a cache for it where the engine is in this process: for callers that look
    /// once, when a server starts on a large store.
    pub(super) async fn find_once(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        if self.started_cache().is_some() || self.engine.published().is_none() {
            return self.find(namespace, name).await;
        }
        self.ask(&self.key(namespace, name)).await
    }

    /// The newest state of a key, from the engine.
    async fn ask(&self, key: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        match self.stored(key).await? {
            None => Ok(None),
            Some((kv, Ok(prepared))) => Ok(Some(Arc::new(prepared.finish(kv.mod_revision)))),
            Some((kv, Err(error))) => {
                let unreadable = Unreadable::new(&kv, error);
                Err(unreadable.refusal(self.unsafe_deletion))
            }
        }
    }

    /// The stored value of a key, decoded.
    async fn stored(&self, key: &str) -> Result<Option<(KeyValue, Result<Prepared, ValueError>)>, ApiError> {
        let asked = self.figures.request(Operation::Get, self.engine.get(key, None));
        let (found, _) = asked
            .await
            .map_err(|error| from_storage(&error, &self.config.resource, "get"))?;
        let Some(kv) = found else { return Ok(None) };
        self.codec.prepare(&kv.value).await;
        let prepared = Prepared::of(&self.config, &kv, &*self.codec);
        Ok(Some((kv, prepared)))
    }

    /// As [`View::is_damaged`](super::View::is_damaged).
    pub(super) async fn is_damaged(&self, namespace: &str, name: &str) -> Result<bool, ApiError> {
        let stored = self.stored(&self.key(namespace, name)).await?;
        Ok(matches!(stored, Some((_, Err(ValueError::Undecodable(_))))))
    }

    /// As [`View::remove_damaged`](super::View::remove_damaged).
    pub(super) async fn remove_damaged(&self, namespace: &str, name: &str) -> Result<bool, ApiError> {
        let key = self.key(namespace, name);
        match self.stored(&key).await? {
            Some((kv, Err(ValueError::Undecodable(_)))) => self.remove_at(&key, kv.mod_revision).await,
            _ => Ok(false),
        }
    }

    /// An object of a snapshot by its key. One that could not be read is read again.
    pub(super) async fn look_up(
        &self,
        snapshot: &Snapshot,
        key: &str,
        verb: &str,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        if let Some(entry) = snapshot.objects.get(key) {
            return Ok(Some(entry.clone()));
        }
        if !snapshot.unreadable.contains_key(key) {
            return Ok(None);
        }
        match self.cache().await?.reread(key).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(unreadable)) => Err(unreadable.refusal(self.unsafe_deletion)),
            Err(error) => Err(from_storage(&error, &self.config.resource, verb)),
        }
    }

    /// Whether the feature gate `AllowUnsafeMalformedObjectDeletion` is on.
    pub(crate) fn allows_unsafe_deletion(&self) -> bool {
        self.unsafe_deletion
    }

    /// The error of a list with objects that cannot be read. They are read again first; `None` when they can be read now, and
    /// the caller takes a newer snapshot.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub(super) async fn unreadable_in_list(
        &self,
        unreadable: &[Arc<Unreadable>],
    ) -> Result<Option<ApiError>, ApiError> {
        let cache = self.cache().await?;
        for one in unreadable {
            match cache.reread(&one.key).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => {
                    let resource = &self.config.resource;
                    return Ok(Some(Unreadable::list_refusal(
                        unreadable,
                        resource,
                        self.unsafe_deletion,
                    )));
                }
                Err(error) => return Err(from_storage(&error, &self.config.resource, "list")),
            }
        }
        Ok(None)
    }

    /// Removes an object that cannot be read, without checks of its content. False when it is not there.
    pub(super) async fn remove_unread(&self, key: &str) -> Result<bool, ApiError> {
        let failed = |error: StorageError| from_storage(&error, &self.config.resource, "delete");
        let asked = self.figures.request(Operation::Get, self.engine.get(key, None));
        let (found, _) = asked.await.map_err(failed)?;
        match found {
            Some(found) => self.remove_at(key, found.mod_revision).await,
            None => Ok(false),
        }
    }

    /// Removes the value written to a key at this revision, without checks of its content.
    async fn remove_at(&self, key: &str, mod_revision: Revision) -> Result<bool, ApiError> {
        let failed = |error: StorageError| from_storage(&error, &self.config.resource, "delete");
        let txn = Txn {
            guards: vec![Guard {
                key: key.to_string(),
                mod_revision,
            }],
            ops: vec![Op::Delete { key: key.to_string() }],
        };
        let asked = self.figures.request(Operation::Delete, self.engine.commit(txn));
        match asked.await.map_err(failed)? {
            Outcome::Committed(_) => Ok(true),
            Outcome::Conflict { current: None, .. } => Ok(false),
            // It was written again: it may be readable now.
            Outcome::Conflict { .. } => Err(ApiError::modified(&self.config.resource, key)),
        }
    }

    /// One object, or 404.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Result<Arc<Entry>, ApiError> {
        self.find(namespace, name)
            .await?
            .ok_or_else(|| ApiError::not_found(&self.config.resource, name))
    }

    /// Stores a new object, which has a name and no resourceVersion. `Lost` when the name is taken.
    pub(super) async fn insert(&self, object: &Value, ttl: Option<Duration>) -> Result<Written, ApiError> {
        self.put(object, None, ttl, Vec::new(), "create").await
    }

    /// As [`ObjectStore::insert`], or as [`ObjectStore::replace`] where there is a `previous`, as long as other keys of this engine
    /// are as `guards` say; 500 `ServerTimeout` when one is not.
    pub(super) async fn put_guarded(
        &self,
        previous: Option<&Arc<Entry>>,
        object: &Value,
        guards: Vec<Guard>,
    ) -> Result<Written, ApiError> {
        let verb = previous.map_or("create", |_| "update");
        self.put(object, previous, None, guards, verb).await
    }

    /// Replaces an object as it was at `previous`. `Lost` when it has changed since or is gone. Storing what is there
    /// already writes nothing and answers `previous`.
    pub(super) async fn replace(
        &self,
        previous: &Arc<Entry>,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Written, ApiError> {
        self.put(object, Some(previous), ttl, Vec::new(), "update").await
    }

    async fn put(
        &self,
        object: &Value,
        previous: Option<&Arc<Entry>>,
        ttl: Option<Duration>,
        guards: Vec<Guard>,
        verb: &str,
    ) -> Result<Written, ApiError> {
        let cache = self.cache().await?;
        let prepared =
            Prepared::from_value(&self.config, object, &*self.codec).map_err(ApiError::internal)?;
        if let Some(previous) = previous
            && previous.is(&prepared.finish(previous.revision))
        {
            let stale = cache.is_stale(previous).await;
            if !stale.map_err(|error| from_storage(&error, &self.config.resource, verb))? {
                return Ok(Written::Stored(previous.clone()));
            }
        }
        let guard = previous.map_or(Revision(0), |entry| entry.revision);
        let key = prepared.key().to_string();
        let value = prepared.stored().clone();
        let pending = cache.expect(prepared);
        let own = Guard {
            key: key.clone(),
            mod_revision: guard,
        };
        let txn = Txn {
            guards: std::iter::once(own).chain(guards).collect(),
            ops: vec![Op::Put {
                key: key.clone(),
                value,
                ttl: ttl.or(self.config.ttl),
            }],
        };
        let operation = match previous {
            Some(_) => Operation::Update,
            None => Operation::Create,
        };
        match self.figures.request(operation, self.engine.commit(txn)).await {
            Ok(Outcome::Committed(revision)) => Ok(Written::Stored(pending.finish(revision))),
            Ok(Outcome::Conflict { guard, .. }) if guard > 0 => {
                Err(ApiError::server_timeout(&self.config.resource, verb, 1))
            }
            Ok(Outcome::Conflict { revision, .. }) => {
                let newest = self.state_at(&key, revision).await;
                match previous {
                    Some(_) => newest.map(Written::Lost),
                    // The name is taken, whether or not what has it can be read.
                    None => Ok(Written::Lost(newest.unwrap_or_default())),
                }
            }
            Err(error) => Err(from_storage(&error, &self.config.resource, verb)),
        }
    }

    /// Removes an object as it was at `previous`. The entry answered is its last state with the deletion's revision.
    pub(super) async fn remove(&self, previous: &Arc<Entry>) -> Result<Written, ApiError> {
        let key = previous.key.to_string();
        let txn = Txn {
            guards: vec![Guard {
                key: key.clone(),
                mod_revision: previous.revision,
            }],
            ops: vec![Op::Delete { key: key.clone() }],
        };
        let asked = self.figures.request(Operation::Delete, self.engine.commit(txn));
        match asked.await {
            Ok(Outcome::Committed(revision)) => Ok(Written::Stored(Arc::new(previous.at_revision(revision)))),
            Ok(Outcome::Conflict { revision, .. }) => Ok(Written::Lost(self.state_at(&key, revision).await?)),
            Err(error) => Err(from_storage(&error, &self.config.resource, "delete")),
        }
    }

    /// The state of a key once the cache has reached `revision`. A write is not refused because the cache does not keep up: it is no
    /// read of that revision that a client has asked for.
    async fn state_at(&self, key: &str, revision: Revision) -> Result<Option<Arc<Entry>>, ApiError> {
        match self.cache().await?.wait_for(revision).await {
            Ok(snapshot) => self.look_up(&snapshot, key, "get").await,
            Err(error) if errors::is_too_large(&error) => self.ask(key).await,
            Err(error) => Err(error),
        }
    }
}
