//! One resource's objects: consistent reads from the cache, guarded writes to the engine.
//!
//! What a *request* does (admission, strategy, managed fields, preconditions) is in [`crate::registry::write`]; here an
//! object is JSON under a key. Objects are of the stored version and carry no resourceVersion when they are written: the
//! engine's revision is spliced in on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use machinery::{ApiError, GroupKind, GroupResource};
use serde_json::Value;
use storage::{Guard, Op, Outcome, Revision, Store, Txn};

use crate::registry::cache::{Entry, JsonCodec, ObjectCache, Prepared, Snapshot, StorageCodec};
use crate::registry::errors::from_storage;
use crate::registry::strategy::SelectableField;

/// What an object store is told at birth.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The resource.
    pub resource: GroupResource,
    /// Its kind.
    pub kind: GroupKind,
    /// Where its keys begin, without a final slash: `/registry/pods`.
    pub prefix: String,
    /// Keys are `prefix/namespace/name` rather than `prefix/name`.
    pub namespaced: bool,
    /// What selectors may name, besides name and namespace.
    pub fields: Vec<SelectableField>,
    /// Objects of this resource go after this long (events), unless a write says otherwise.
    pub ttl: Option<Duration>,
}

/// One resource's objects.
#[derive(Debug)]
pub struct ObjectStore {
    config: StoreConfig,
    engine: Arc<dyn Store>,
    codec: Arc<dyn StorageCodec>,
    /// There from the first use on, until it is empty and idle.
    cache: ArcSwapOption<ObjectCache>,
    /// Held while a cache is started.
    starting: tokio::sync::Mutex<()>,
    /// The cache was used since somebody last looked.
    used: AtomicBool,
}

/// How a guarded write ended.
#[derive(Debug)]
pub enum Written {
    /// It is stored; the object as readers see it now.
    Stored(Arc<Entry>),
    /// Somebody else was first; the newest state of the object, if there is one.
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
        Arc::new(ObjectStore {
            config,
            engine,
            codec,
            cache: ArcSwapOption::empty(),
            starting: tokio::sync::Mutex::default(),
            used: AtomicBool::new(false),
        })
    }

    /// What it was told.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The engine below.
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.engine
    }

    /// The storage key of an object.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &self.config.prefix;
        if self.config.namespaced {
            format!("{prefix}/{namespace}/{name}")
        } else {
            format!("{prefix}/{name}")
        }
    }

    /// The cache, started on first use. Who holds it can go on using it, also when the store lets go of it meanwhile.
    pub async fn cache(&self) -> Result<Arc<ObjectCache>, ApiError> {
        if let Some(cache) = self.use_cache() {
            return Ok(cache);
        }
        let _starting = self.starting.lock().await;
        if let Some(cache) = self.use_cache() {
            return Ok(cache);
        }
        let cache = ObjectCache::start(self.engine.clone(), &self.config, self.codec.clone())
            .await
            .map_err(|error| from_storage(&error, &self.config.resource, "list"))?;
        self.used.store(true, Ordering::Relaxed);
        self.cache.store(Some(cache.clone()));
        Ok(cache)
    }

    /// The cache, when it has been started. To look at it does not count as a use.
    pub fn started_cache(&self) -> Option<Arc<ObjectCache>> {
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

    /// Lets go of a cache that is empty, has no watchers and was not used since the last call. It ends once nobody holds it; the
    /// next use starts another. True when it did.
    pub fn drop_idle_cache(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        let idle = self.cache.load().as_ref().is_some_and(|cache| cache.idle());
        if idle {
            self.cache.store(None);
        }
        idle
    }

    /// All objects, no older than any write acknowledged before the call.
    pub async fn fresh(&self) -> Result<Arc<Snapshot>, ApiError> {
        self.cache().await?.fresh().await
    }

    /// One object, no older than any write acknowledged before the call.
    pub async fn find(&self, namespace: &str, name: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        let snapshot = self.fresh().await?;
        Ok(snapshot.objects.get(self.key(namespace, name).as_str()).cloned())
    }

    /// One object, or 404.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<Arc<Entry>, ApiError> {
        self.find(namespace, name)
            .await?
            .ok_or_else(|| ApiError::not_found(&self.config.resource, name))
    }

    /// Stores a new object, which has a name and no resourceVersion. `Lost` when the name is taken.
    pub async fn insert(&self, object: &Value, ttl: Option<Duration>) -> Result<Written, ApiError> {
        self.put(object, None, ttl, "create").await
    }

    /// Replaces an object as it was at `previous`. `Lost` when it has changed since or is gone. Storing what is there
    /// already writes nothing and answers `previous`.
    pub async fn replace(
        &self,
        previous: &Arc<Entry>,
        object: &Value,
        ttl: Option<Duration>,
    ) -> Result<Written, ApiError> {
        self.put(object, Some(previous), ttl, "update").await
    }

    async fn put(
        &self,
        object: &Value,
        previous: Option<&Arc<Entry>>,
        ttl: Option<Duration>,
        verb: &str,
    ) -> Result<Written, ApiError> {
        let cache = self.cache().await?;
        let prepared = Prepared::from_value(self, object, &*self.codec)
            .map_err(|error| from_storage(&error, &self.config.resource, verb))?;
        if let Some(previous) = previous
            && prepared.finish(previous.revision).json == previous.json
        {
            return Ok(Written::Stored(previous.clone()));
        }
        let guard = previous.map_or(Revision(0), |entry| entry.revision);
        let key = prepared.key().to_string();
        let value = prepared.stored().clone();
        let pending = cache.expect(prepared);
        let txn = Txn {
            guards: vec![Guard {
                key: key.clone(),
                mod_revision: guard,
            }],
            ops: vec![Op::Put {
                key: key.clone(),
                value,
                ttl: ttl.or(self.config.ttl),
            }],
        };
        match self.engine.commit(txn).await {
            Ok(Outcome::Committed(revision)) => Ok(Written::Stored(pending.finish(revision))),
            Ok(Outcome::Conflict { revision, .. }) => Ok(Written::Lost(self.state_at(&key, revision).await?)),
            Err(error) => Err(from_storage(&error, &self.config.resource, verb)),
        }
    }

    /// Removes an object as it was at `previous`. The entry answered is its last state with the deletion's revision.
    pub async fn remove(&self, previous: &Arc<Entry>) -> Result<Written, ApiError> {
        let key = previous.key.to_string();
        let txn = Txn {
            guards: vec![Guard {
                key: key.clone(),
                mod_revision: previous.revision,
            }],
            ops: vec![Op::Delete { key: key.clone() }],
        };
        match self.engine.commit(txn).await {
            Ok(Outcome::Committed(revision)) => Ok(Written::Stored(Arc::new(previous.at_revision(revision)))),
            Ok(Outcome::Conflict { revision, .. }) => Ok(Written::Lost(self.state_at(&key, revision).await?)),
            Err(error) => Err(from_storage(&error, &self.config.resource, "delete")),
        }
    }

    /// The state of a key once the cache has reached `revision`.
    async fn state_at(&self, key: &str, revision: Revision) -> Result<Option<Arc<Entry>>, ApiError> {
        let snapshot = self.cache().await?.wait_for(revision).await?;
        Ok(snapshot.objects.get(key).cloned())
    }
}
