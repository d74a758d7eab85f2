//! An engine whose watch does not keep up with its writes, as that of an etcd under load or between two members.

use storage::{CompactionInfo, KeyValue, RangeResponse, StoreStatus};

use super::*;

/// Accepts writes and notifies no watch of them.
#[derive(Debug)]
struct Deaf(Arc<MvccStore>);

#[async_trait::async_trait]
impl Store for Deaf {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        self.0.get(key, at).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        self.0.range(request).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError> {
        self.0.commit(txn).await
    }

    async fn watch(
        &self,
        _prefix: &str,
        _after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        // The cache is held by its sink weakly.
        drop(sink);
        Ok(WatchHandle::guarding(Arc::new(())))
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        self.0.fresh().await
    }

    fn published(&self) -> Option<Revision> {
        None
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        self.0.compact(revision).await
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.0.status().await
    }

    async fn shutdown(&self) {
        self.0.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn writes_do_not_wait_for_a_cache_that_is_behind() {
    let store = ObjectStore::new(Arc::new(Deaf(engine())), config());
    let cache = store.cache().await.expect("starts");
    let object = pod("a", "p", "n1");
    let Ok(Written::Stored(first)) = store.insert(&object, None).await else {
        panic!("nothing is there yet")
    };
    assert!(cache.snapshot().objects.is_empty(), "the cache has no event yet");
    // The name is taken, and by what.
    match store.insert(&object, None).await {
        Ok(Written::Lost(Some(newest))) => assert_eq!(newest.revision, first.revision),
        other => panic!("{other:?}"),
    }
    // The reads at the beginning and at the end of an update.
    let found = store.find("a", "p").await.expect("the engine knows");
    assert_eq!(found.map(|entry| entry.revision), Some(first.revision));
    let changed = store.replace(&first, &pod("a", "p", "n2"), None).await;
    let Ok(Written::Stored(second)) = changed else {
        panic!("{changed:?}")
    };
    match store.remove(&first).await {
        Ok(Written::Lost(Some(newest))) => assert_eq!(newest.revision, second.revision),
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.remove(&second).await, Ok(Written::Stored(_))));
    assert!(store.find("a", "p").await.expect("the engine knows").is_none());
    // A request for a newer revision by name fails because it is not there yet.
    let error = cache.wait_for(second.revision).await.expect_err("it never comes");
    assert_eq!(error.code(), 504);
}
