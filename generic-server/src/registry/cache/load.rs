//! How the cache is filled: at first use, and anew whenever the engine has ended its watch.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use storage::{RangeRequest, Revision, StorageError};

use super::apply::{Sink, advance};
use super::{ByField, ObjectCache, Prepared, Snapshot};

/// Objects per request of the first read. Of an engine in this process few, since what a page holds is there twice while it is
/// decoded; of one elsewhere many, since it counts what follows each.
const PAGE: usize = 2_000;
const REMOTE_PAGE: usize = 10_000;

impl ObjectCache {
    /// All objects at a revision (the newest), page by page. While one is decoded the next is read.
    pub(super) async fn read(&self, at: Option<Revision>) -> Result<Snapshot, StorageError> {
        let limit = match self.engine.published() {
            Some(_) => PAGE,
            None => REMOTE_PAGE,
        };
        let page = |start: Option<String>, at: Option<Revision>| {
            let engine = self.engine.clone();
            let request = RangeRequest {
                prefix: self.watch_prefix(),
                start,
                limit,
                at,
                count_only: false,
            };
            self.runtime.spawn(async move { engine.range(request).await })
        };
        let mut objects = imbl::OrdMap::new();
        let mut by_field = ByField::of(&self.config);
        let mut unreadable = imbl::OrdMap::new();
        let mut next = Some(page(None, at));
        let mut at = at;
        while let Some(reading) = next.take() {
            let page_read = reading.await.map_err(|_| StorageError::Unavailable {
                message: "the read was given up".into(),
                source: None,
            })??;
            let revision = *at.get_or_insert(page_read.revision);
            if page_read.kvs.len() >= limit {
                // From the smallest key after the last one, at the first page's revision.
                let start = page_read.kvs.last().map(|kv| format!("{}\0", kv.key));
                next = Some(page(start, Some(revision)));
            }
            for kv in page_read.kvs {
                self.codec.prepare(&kv.value).await;
                match Prepared::from_stored(&self.config, &kv.key, &kv.value, &*self.codec) {
                    Ok(prepared) => {
                        let entry = Arc::new(prepared.finish(kv.mod_revision));
                        by_field.change(None, Some(&entry));
                        objects.insert(kv.key, entry);
                    }
                    // One damaged object must not take the whole resource down.
                    Err(error) => {
                        let found = self.unreadable(&kv.key, kv.mod_revision, error, None);
                        unreadable.insert(kv.key, found);
                    }
                }
            }
        }
        Ok(Snapshot {
            revision: at.unwrap_or_default(),
            objects,
            by_field,
            unreadable,
        })
    }

    /// Ends the engine's watch and reads everything again.
    pub(super) fn start_anew(self: &Arc<Self>) {
        let mut feeding = self.feeding.lock();
        self.following.send_replace(false);
        feeding.life += 1;
        feeding.waiting = None;
        let handle = feeding.handle.take();
        // One at a time, and none after the first has ended well: it would put an older snapshot over a newer one.
        if !std::mem::replace(&mut feeding.restarting, true) {
            self.runtime.spawn(ObjectCache::restart(Arc::downgrade(self)));
        }
        drop(feeding);
        drop(handle);
    }

    /// Reads everything and starts to follow. Feeds of an earlier life end.
    pub(super) async fn load(self: &Arc<Self>) -> Result<(), StorageError> {
        let snapshot = self.read(None).await?;
        let revision = snapshot.revision;
        self.newest.store(Arc::new(snapshot));
        self.deletions.fetch_add(1, Ordering::Release);
        self.ring.reset(revision);
        self.interests.wake_all();
        self.offered.send_if_modified(|now| advance(now, revision));
        let life = {
            let mut feeding = self.feeding.lock();
            feeding.life += 1;
            feeding.waiting = None;
            feeding.life
        };
        let sink = Arc::new(Sink {
            cache: Arc::downgrade(self),
            life,
        });
        let handle = self.engine.watch(&self.watch_prefix(), revision, sink).await?;
        let mut feeding = self.feeding.lock();
        if feeding.life != life {
            return Err(StorageError::Unavailable {
                message: "the watch has ended already".into(),
                source: None,
            });
        }
        feeding.handle = Some(handle);
        feeding.restarting = false;
        self.following.send_replace(feeding.waiting.is_none());
        Ok(())
    }

    /// After the engine has ended the watch: starts anew, however long that takes.
    async fn restart(cache: Weak<Self>) {
        let mut pause = Duration::from_millis(100);
        loop {
            // Only held while it is used: a cache that nobody needs any more ends this.
            let Some(strong) = cache.upgrade() else { return };
            match strong.load().await {
                Ok(()) => return,
                // While it stops, a server closes its store under its caches; a store that is away is in every answer anyway.
                Err(error) if matches!(error, StorageError::Unavailable { .. }) => {
                    tracing::debug!(resource.gvr = %strong.resource(), %error, "the cache cannot be filled");
                }
                Err(error) => {
                    tracing::warn!(resource.gvr = %strong.resource(), %error, "the cache cannot be filled");
                }
            }
            drop(strong);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }
}
