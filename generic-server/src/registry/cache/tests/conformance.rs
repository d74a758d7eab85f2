//! The watch cache as a [`Store`]: the suite that engines pass, passed by the cache.
//!
//! Reads and watches are answered by an [`ObjectCache`]; writes are announced to it and committed to the engine below, as
//! `ObjectStore` does it. The engine is asked for one thing that the cache does not keep, the revision at which a key was created,
//! as of the revision that the cache has answered for. On the way it has to agree with the answer, so every read of the suite
//! also checks that a snapshot is complete up to its revision.

mod pull;

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use storage::conformance::Subject;
use storage::{
    BackupInfo, CompactionInfo, EngineKind, EtcdOptions, KeyValue, Op, OpenOptions, Outcome, RangeResponse,
    StoreStatus, Txn,
};

use super::*;
use crate::registry::store::ObjectStore;
use pull::Pull;

/// The disturbances that the cache is put through, beside those of its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Nothing: feeds read from the ring and never end by themselves.
    Quiet,
    /// Its ring keeps few events, and it restarts after every third commit: feeds end and come back, and are served from the
    /// engine's log, be it that the ring is filled from there (what is missing is less than half of it) or not.
    Hard,
}

/// Events that the ring keeps in a hard life.
const FEW: usize = 8;

mod memory {
    use super::*;
    storage::conformance_tests!(async { subject(storage::memory(), Life::Quiet).await });
}

mod redb {
    use super::*;
    storage::conformance_tests!(async {
        let dir = tempfile::tempdir().expect("a directory");
        let options = OpenOptions {
            engine: EngineKind::Redb,
            dir: Some(dir.path().to_owned()),
            min_free_bytes: 0,
            ..OpenOptions::default()
        };
        let engine = storage::open(options).expect("opens");
        subject(engine, Life::Quiet).await.keeping(dir)
    });
}

mod hard_pressed {
    use super::*;
    storage::conformance_tests!(async { subject(storage::memory(), Life::Hard).await });
}

/// Over an engine that is elsewhere, whose state has to be waited for. Skipped loudly without an etcd.
mod etcd {
    use super::*;
    storage::conformance_tests!(async {
        let cluster = test_tools::Cluster::start(1).await?;
        let options = EtcdOptions {
            endpoints: cluster.endpoints(),
            compaction_interval: Duration::ZERO,
            ..EtcdOptions::default()
        };
        let engine = storage::open_etcd(&options).expect("opens");
        Some(subject(engine, Life::Quiet).await.keeping(cluster))
    });
}

/// Where keys begin, without the slash.
const PREFIX: &str = "/registry";

/// Values are stored as the suite gives them, and cached as objects.
#[derive(Debug)]
struct Raw;

impl Raw {
    fn object(key: &str, value: &[u8]) -> Value {
        let path = key.strip_prefix(PREFIX).and_then(|path| path.strip_prefix('/'));
        let path = path.expect("cases keep to their prefix");
        let (namespace, name) = path.split_once('/').unwrap_or(("", path));
        json!({
            "kind": "Thing", "apiVersion": "v1", "metadata": {"namespace": namespace, "name": name},
            "data": BASE64.encode(value),
        })
    }

    fn value(object: &Value) -> Bytes {
        let data = object["data"].as_str().expect("a value of the suite");
        BASE64.decode(data).expect("a value of the suite").into()
    }
}

impl StorageCodec for Raw {
    fn decode(&self, key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        let json = serde_json::to_vec(&Self::object(key, stored));
        json.map(Bytes::from).map_err(ValueError::undecodable)
    }

    fn encode(&self, _key: &str, object: &Value, _json: &Bytes) -> Result<Bytes, ValueError> {
        Ok(Self::value(object))
    }
}

async fn subject(engine: Arc<dyn Store>, life: Life) -> Subject {
    let store = |namespaced| {
        let config = StoreConfig {
            resource: GroupResource::new("", "things"),
            kind: GroupKind::new("", "Thing"),
            prefix: PREFIX.into(),
            namespaced,
            fields: Vec::new(),
            ttl: None,
        };
        ObjectStore::new(engine.clone(), config)
    };
    let (deep, flat) = (store(true), store(false));
    let cache = ObjectCache::start(
        engine.clone(),
        deep.config(),
        Arc::new(Raw),
        crate::registry::Budget::standard(),
    )
    .await
    .expect("starts");
    if life == Life::Hard {
        cache.ring.limit(FEW);
    }
    let cached = Arc::new(Cached {
        engine,
        cache,
        deep,
        flat,
        life,
        commits: AtomicUsize::new(0),
        pulls: Mutex::default(),
        shut: Arc::default(),
    });
    match cached.publishes_before_acknowledging() {
        true => Subject::in_process(cached),
        false => Subject::remote(cached, format!("{PREFIX}/")),
    }
}

/// The adapter.
#[derive(Debug)]
struct Cached {
    engine: Arc<dyn Store>,
    cache: Arc<ObjectCache>,
    /// Lay out objects whose keys have a slash, as namespaced ones, and those without.
    deep: Arc<ObjectStore>,
    flat: Arc<ObjectStore>,
    life: Life,
    commits: AtomicUsize,
    pulls: Mutex<Vec<Weak<Pull>>>,
    shut: Arc<AtomicBool>,
}

impl Cached {
    /// Not an engine that is elsewhere, nor what is read again after the acknowledgement.
    fn publishes_before_acknowledging(&self) -> bool {
        self.engine.published().is_some() && self.life == Life::Quiet
    }

    /// Announces a value of the suite to the cache.
    fn announce(&self, key: &str, value: &Bytes) -> Pending {
        let object = Raw::object(key, value);
        let store = match machinery::meta::namespace(&object) {
            "" => &self.flat,
            _ => &self.deep,
        };
        let prepared = Prepared::from_value(store.config(), &object, &Raw).expect("it can be laid out");
        assert_eq!((&**prepared.key(), prepared.stored()), (key, value));
        self.cache.expect(prepared)
    }

    /// The cache's state at a revision, or one no older than any acknowledged write.
    async fn state(&self, at: Option<Revision>) -> Result<Arc<Snapshot>, StorageError> {
        self.check_open()?;
        let state = match at {
            Some(revision) => self.cache.exactly(revision).await,
            None => self.cache.fresh().await,
        };
        match state {
            Ok(snapshot) => {
                assert!(at.is_none_or(|at| at == snapshot.revision));
                assert!(snapshot.unreadable.is_empty());
                Ok(snapshot)
            }
            Err(error) => Err(failure(&self.cache, &error, at.unwrap_or_default()).await),
        }
    }

    fn check_open(&self) -> Result<(), StorageError> {
        match self.shut.load(Ordering::Acquire) {
            true => Err(unavailable("it was shut down")),
            false => Ok(()),
        }
    }

    /// Hands to every sink what the cache has for it now.
    async fn deliver(&self) {
        let pulls: Vec<Arc<Pull>> = {
            let mut pulls = self.pulls.lock();
            pulls.retain(|pull| pull.strong_count() > 0);
            pulls.iter().filter_map(Weak::upgrade).collect()
        };
        for pull in pulls {
            pull.deliver().await;
        }
    }
}

fn unavailable(why: &str) -> StorageError {
    StorageError::Unavailable {
        message: why.into(),
        source: None,
    }
}

/// The error that the cache returns to clients, as an error of an engine.
async fn failure(cache: &ObjectCache, error: &ApiError, asked: Revision) -> StorageError {
    let causes = error
        .details()
        .map(|details| &details.causes[..])
        .unwrap_or_default();
    let ahead = causes
        .iter()
        .any(|cause| cause.reason == "ResourceVersionTooLarge");
    match error.reason() {
        Reason::Expired => StorageError::Compacted {
            asked,
            oldest: cache
                .engine
                .status()
                .await
                .map(|status| status.oldest)
                .unwrap_or_default(),
        },
        Reason::Timeout if ahead => StorageError::FutureRevision {
            asked,
            newest: cache.current(),
        },
        Reason::ServerTimeout => unavailable(error.message()),
        _ => StorageError::Engine {
            message: error.to_string(),
            source: None,
        },
    }
}

/// The value in an object.
fn value(entry: &Entry) -> Bytes {
    let object = entry.value();
    assert_eq!(object["metadata"]["resourceVersion"], *entry.revision.to_string());
    Raw::value(&object)
}

fn pair(entry: &Entry, created: Revision) -> KeyValue {
    KeyValue {
        damage: None,
        key: entry.key.clone(),
        value: value(entry),
        create_revision: created,
        mod_revision: entry.revision,
    }
}

#[async_trait::async_trait]
impl Store for Cached {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        let snapshot = self.state(at).await?;
        let (stored, revision) = self.engine.get(key, Some(snapshot.revision)).await?;
        let found = snapshot.objects.get(key);
        assert_eq!(
            found.map(|entry| entry.revision),
            stored.as_ref().map(|pair| pair.mod_revision),
            "{key} at {revision}"
        );
        let found = found
            .zip(stored)
            .map(|(entry, stored)| pair(entry, stored.create_revision));
        Ok((found, revision))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        let snapshot = self.state(request.at).await?;
        let stored = RangeRequest {
            at: Some(snapshot.revision),
            ..request.clone()
        };
        let stored = self.engine.range(stored).await?;
        let prefix = request.prefix.as_str();
        let start = request.start.as_deref().map_or(prefix, |start| start.max(prefix));
        let all = snapshot
            .objects
            .range::<_, str>((Bound::Included(start), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let all: Vec<&Arc<Entry>> = all.map(|(_, entry)| entry).collect();
        let limit = match (request.count_only, request.limit) {
            (true, _) => 0,
            (false, 0) => usize::MAX,
            (false, limit) => limit,
        };
        let page = &all[..all.len().min(limit)];
        if page.len() < all.len() {
            // The next page asks for it.
            self.cache.retain(&snapshot);
        }
        let pair_of = |pair: &KeyValue| (pair.key.clone(), pair.mod_revision);
        assert_eq!(
            page.iter()
                .map(|e| (e.key.clone(), e.revision))
                .collect::<Vec<_>>(),
            stored.kvs.iter().map(pair_of).collect::<Vec<_>>(),
            "{request:?} at {}",
            snapshot.revision
        );
        assert_eq!(all.len() as u64, stored.count);
        let created = stored.kvs.iter().map(|pair| pair.create_revision);
        Ok(RangeResponse {
            kvs: page
                .iter()
                .zip(created)
                .map(|(entry, created)| pair(entry, created))
                .collect(),
            count: all.len() as u64,
            revision: snapshot.revision,
        })
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError> {
        self.check_open()?;
        let puts = txn.ops.iter().filter_map(|op| match op {
            Op::Put { key, value, .. } => Some((self.announce(key, value), value.clone())),
            Op::Delete { .. } => None,
        });
        let announced: Vec<(Pending, Bytes)> = puts.collect();
        let revision = match self.engine.commit(txn).await? {
            Outcome::Committed(revision) => revision,
            conflict @ Outcome::Conflict { .. } => return Ok(conflict),
        };
        assert!(
            !self.publishes_before_acknowledging() || self.cache.snapshot().revision >= revision,
            "what is acknowledged is in the newest snapshot"
        );
        for (pending, written) in announced {
            let entry = pending.finish(revision);
            assert_eq!((entry.revision, value(&entry)), (revision, written));
        }
        // One restart at a time: each that disturbs another makes the cache pause longer.
        let third = self.commits.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        if self.life == Life::Hard && third && *self.cache.following.borrow() {
            self.cache.begin_restart();
        }
        self.deliver().await;
        Ok(Outcome::Committed(revision))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        self.check_open()?;
        let pull = Pull {
            cache: self.cache.clone(),
            prefix: prefix.into(),
            sink,
            resumes: !self.publishes_before_acknowledging(),
            shut: self.shut.clone(),
            delivered: tokio::sync::Mutex::new(after),
            reader: Mutex::default(),
        };
        let (pull, handle) = pull.start(after).await?;
        self.pulls.lock().push(pull);
        Ok(handle)
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        let revision = self.state(None).await?.revision;
        // The snapshot is there a moment before feeds are given its revision, and progress wakes none of them.
        let mut offered = self.cache.offered.subscribe();
        let reached = offered.wait_for(|offered| *offered >= revision).await.is_ok();
        assert!(reached, "the cache lives as long as this store");
        self.deliver().await;
        Ok(revision)
    }

    fn published(&self) -> Option<Revision> {
        self.engine.published().map(|_| self.cache.current())
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        let info = self.engine.compact(revision).await?;
        // From its ring the cache may deliver events that the engine has compacted, as upstream's does. The suite wants it refused.
        self.cache.ring.forget(info.oldest);
        Ok(info)
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.engine.status().await
    }

    async fn backup(&self, file: &Path) -> Result<BackupInfo, StorageError> {
        self.engine.backup(file).await
    }

    async fn shutdown(&self) {
        self.shut.store(true, Ordering::Release);
        self.cache.end_feeds();
        self.engine.shutdown().await;
    }
}
