//! Keeping what is made of a resource's objects in step with them: indexes and compiled configuration that requests read.

use std::sync::Arc;
use std::time::Duration;

use super::ObjectStore;
use super::cache::{Interest, Snapshot};

/// How long to wait before a store that could not be read is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Calls `apply` with everything there is, and again after every change, for ever. Changes that come together are one call.
pub async fn follow(store: Arc<ObjectStore>, mut apply: impl FnMut(&Arc<Snapshot>) + Send) {
    loop {
        let Ok(cache) = store.cache().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let snapshot = cache.snapshot();
        apply(&snapshot);
        // Too far behind already: everything anew.
        let Ok(mut feed) = cache.feed(snapshot.revision, Interest::All).await else {
            continue;
        };
        let mut changes = Vec::new();
        while feed.next(&mut changes).await.is_ok() {
            changes.clear();
            apply(&cache.snapshot());
        }
    }
}
