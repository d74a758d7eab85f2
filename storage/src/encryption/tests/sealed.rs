//! The contract holds with encryption in between: the suite, over stores whose values the production transformers seal.
//!
//! [`Sealed`] does as a store what the API server's codec does above one.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use test_tools::Cluster;

use super::*;
use crate::conformance::Subject;
use crate::{
    BackupInfo, CompactionInfo, EngineKind, EtcdOptions, Event, EventKind, KeyValue, Op, OpenOptions,
    Outcome, RangeRequest, RangeResponse, Revision, StorageError, Store, StoreStatus, Txn, WatchHandle,
    WatchSink,
};

/// Values are sealed on their way into a store and opened on their way out, bound to their keys.
#[derive(Debug)]
struct Sealed {
    inner: Arc<dyn Store>,
    writer: PrefixedTransformers,
    opener: Arc<Opener>,
}

/// Decrypts values. With a KMS plugin it is another replica than the one that encrypts them, and has to fetch the keys.
#[derive(Debug)]
struct Opener(PrefixedTransformers);

fn unreadable(error: TransformError) -> StorageError {
    StorageError::Corrupt(error.to_string())
}

impl Opener {
    async fn open(&self, mut pair: KeyValue) -> Result<KeyValue, StorageError> {
        if self.0.lacks_key(&pair.value) {
            self.0.prepare(&pair.value).await.map_err(unreadable)?;
        }
        let plain = self
            .0
            .read(&pair.value, pair.key.as_bytes())
            .map_err(unreadable)?;
        assert!(!plain.stale, "{} was written with another key", pair.key);
        pair.value = plain.data;
        Ok(pair)
    }

    async fn open_event(&self, event: &Event) -> Result<Event, StorageError> {
        let kv = match event.kind {
            EventKind::Put => self.open(event.kv.clone()).await?,
            EventKind::Delete => event.kv.clone(),
        };
        let prev = match &event.prev {
            Some(prev) => Some(self.open(prev.clone()).await?),
            None => None,
        };
        Ok(Event {
            kind: event.kind.clone(),
            kv,
            prev,
        })
    }
}

impl Sealed {
    fn over(inner: Arc<dyn Store>, writer: Prefixed, opener: Prefixed) -> Arc<dyn Store> {
        Arc::new(Sealed {
            inner,
            writer: all(vec![writer]),
            opener: Arc::new(Opener(all(vec![opener]))),
        })
    }

    fn seal(&self, op: Op) -> Op {
        let Op::Put { key, value, ttl } = op else {
            return op;
        };
        let sealed = self.writer.write(&value, key.as_bytes()).unwrap();
        // Of shorter ones chance may write a part.
        assert!(value.len() < 8 || !contains(&sealed, &value), "{key} is readable");
        Op::Put {
            key,
            value: sealed.into(),
            ttl,
        }
    }
}

#[async_trait::async_trait]
impl Store for Sealed {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        let (pair, revision) = self.inner.get(key, at).await?;
        let pair = match pair {
            Some(pair) => Some(self.opener.open(pair).await?),
            None => None,
        };
        Ok((pair, revision))
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        let mut response = self.inner.range(request).await?;
        for pair in &mut response.kvs {
            *pair = self.opener.open(pair.clone()).await?;
        }
        Ok(response)
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError> {
        let ops = txn.ops.into_iter().map(|op| self.seal(op)).collect();
        let txn = Txn { ops, ..txn };
        Ok(match self.inner.commit(txn).await? {
            Outcome::Conflict {
                guard,
                current: Some(pair),
                revision,
            } => Outcome::Conflict {
                guard,
                current: Some(self.opener.open(pair).await?),
                revision,
            },
            other => other,
        })
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        let opening = Arc::new(Opening {
            sink,
            opener: self.opener.clone(),
            runtime: tokio::runtime::Handle::current(),
        });
        self.inner.watch(prefix, after, opening).await
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        self.inner.fresh().await
    }

    async fn fresh_for(&self, prefix: &str) -> Result<Revision, StorageError> {
        self.inner.fresh_for(prefix).await
    }

    fn published(&self) -> Option<Revision> {
        self.inner.published()
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        self.inner.compact(revision).await
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.inner.status().await
    }

    async fn backup(&self, file: &Path) -> Result<BackupInfo, StorageError> {
        self.inner.backup(file).await
    }

    async fn shutdown(&self) {
        self.inner.shutdown().await;
    }
}

/// Opens the values of a watch's events.
struct Opening {
    sink: Arc<dyn WatchSink>,
    opener: Arc<Opener>,
    runtime: tokio::runtime::Handle,
}

impl WatchSink for Opening {
    fn events(&self, revision: Revision, events: &[Event]) {
        let open =
            futures_util::future::try_join_all(events.iter().map(|event| self.opener.open_event(event)));
        // A key may have to be fetched first, on any thread: the writer's, or one that is polling a future right now, whose
        // wake-ups waiting in place would take away.
        let wait =
            || std::thread::scope(|scope| scope.spawn(|| self.runtime.block_on(open)).join().expect("opens"));
        let opened = tokio::task::block_in_place(wait);
        self.sink.events(revision, &opened.unwrap());
    }

    fn progress(&self, revision: Revision) {
        self.sink.progress(revision);
    }

    fn closed(&self, error: StorageError) {
        self.sink.closed(error);
    }
}

fn seal_with(inner: Arc<dyn Store>, name: &str) -> Arc<dyn Store> {
    let provider = provider(name, &[("k1", &[7; 32])]);
    Sealed::over(inner, provider.clone(), provider)
}

/// Sealed by one replica and opened by another, each with the same plugin, which lives as long as what is kept.
async fn seal_with_kms(inner: Arc<dyn Store>) -> (Arc<dyn Store>, (tempfile::TempDir, Plugin)) {
    let dir = tempfile::tempdir().unwrap();
    let plugin = Plugin::listen(&dir.path().join("kms.sock"), "key-1").unwrap();
    let replica = || {
        Kms::new(KmsOptions {
            name: "test".into(),
            socket: dir.path().join("kms.sock"),
            timeout: crate::conformance::DEADLINE,
        })
    };
    let prefixed = |transformer| Prefixed {
        prefix: b"k8s:enc:kms:v2:test:"[..].into(),
        transformer,
    };
    let (writer, opener) = (replica(), replica());
    writer.check().await.unwrap();
    let store = Sealed::over(inner, prefixed(writer), prefixed(opener));
    (store, (dir, plugin))
}

fn on_disk(engine: EngineKind, dir: &Path) -> Arc<dyn Store> {
    let options = OpenOptions {
        engine,
        dir: Some(dir.to_owned()),
        min_free_bytes: 0,
        ..OpenOptions::default()
    };
    crate::open(options).unwrap()
}

fn sealed_on_disk(engine: EngineKind, name: &str) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    Subject::in_process(seal_with(on_disk(engine, dir.path()), name)).keeping(dir)
}

async fn sealed_in_etcd() -> Option<Subject> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cluster = Cluster::start(1).await?;
    let options = EtcdOptions {
        endpoints: cluster.endpoints(),
        compaction_interval: Duration::ZERO,
        ..EtcdOptions::default()
    };
    let store = seal_with(crate::open_etcd(&options).unwrap(), "aesgcm");
    let prefix = format!("/sealed/{}/", NEXT.fetch_add(1, Ordering::Relaxed));
    Some(Subject::remote(store, prefix).keeping(cluster))
}

mod aescbc_in_memory {
    use super::*;
    crate::conformance_tests!(async { Subject::in_process(seal_with(crate::memory(), "aescbc")) });
}

mod aesgcm_in_redb {
    use super::*;
    crate::conformance_tests!(async { sealed_on_disk(EngineKind::Redb, "aesgcm") });
}

mod secretbox_in_sled {
    use super::*;
    crate::conformance_tests!(async { sealed_on_disk(EngineKind::Sled, "secretbox") });
}

mod kms_in_memory {
    use super::*;
    crate::conformance_tests!(async {
        let (store, plugin) = seal_with_kms(crate::memory()).await;
        Subject::in_process(store).keeping(plugin)
    });
}

mod aesgcm_in_etcd {
    use super::*;
    crate::conformance_tests!(sealed_in_etcd());
}

/// Every file below a directory.
fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(std::fs::read(path).unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_file_holds_plaintext() {
    const NAMES: [&str; 3] = ["aescbc", "aesgcm", "secretbox"];
    for engine in [EngineKind::Redb, EngineKind::Sled] {
        let dir = tempfile::tempdir().unwrap();
        let inner = on_disk(engine, &dir.path().join("data"));
        let (kms, _plugin) = seal_with_kms(inner.clone()).await;
        let mut stores: Vec<_> = NAMES.map(|name| seal_with(inner.clone(), name)).into();
        stores.push(kms);
        for (n, store) in stores.into_iter().enumerate() {
            let s = Subject::in_process(store);
            for name in ["gone", "kept"] {
                s.write(&format!("{n}/{name}"), PLAIN).await;
            }
            s.remove(&format!("{n}/gone")).await;
            assert_eq!(s.read(&format!("{n}/kept"), None).await.unwrap().value, PLAIN);
            let raw = inner.get(&s.key(&format!("{n}/kept")), None).await.unwrap().0;
            assert!(raw.unwrap().value.starts_with(b"k8s:enc:"));
        }
        inner.backup(&dir.path().join("backup")).await.unwrap();
        inner.shutdown().await;
        let readable = || files(dir.path()).iter().any(|file| contains(file, PLAIN));
        assert!(!readable(), "{engine:?}");

        // The same is found when it was written as it is.
        let plain = Subject::in_process(on_disk(engine, &dir.path().join("data")));
        plain.write("plain", PLAIN).await;
        plain.finish().await;
        assert!(readable(), "{engine:?}");
    }
}
