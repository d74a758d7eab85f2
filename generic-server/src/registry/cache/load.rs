//! How the cache is filled: at first use, and again whenever the engine has ended its watch.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use storage::{KeyValue, RangeRequest, Revision, StorageError};

use super::apply::{Sink, advance};
use super::{ByField, Entry, ObjectCache, Prepared, Snapshot, ValueError};
use crate::registry::figures::Operation;

/// Objects per request of the first read. Of an engine in this process few, since what a page holds is there twice while it is
/// decoded; of one elsewhere many, since it counts what follows each.
const PAGE: usize = 2_000;
const REMOTE_PAGE: usize = 10_000;

impl ObjectCache {
    /// All objects at a revision (the newest), page by page. While one is decoded the next is read. Entries that are the same in
    /// `near` or `other`, which are of about the same time, are shared with them.
    pub(super) async fn read(
        &self,
        at: Option<Revision>,
        near: &Snapshot,
        other: Option<&Snapshot>,
    ) -> Result<Snapshot, StorageError> {
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
            let figures = self.figures.clone();
            let read = async move { figures.request(Operation::List, engine.range(request)).await };
            self.runtime.spawn(read)
        };
        // Of the past it is known that what was readable was so.
        let decoded_before = at.is_some();
        let mut read = Snapshot {
            unreadable: imbl::OrdMap::new(),
            ..near.clone()
        };
        if near.objects.is_empty() {
            read.by_field = ByField::of(&self.config);
        }
        let mut keys = Vec::new();
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
                let of = |snapshot: &Snapshot| {
                    let known = snapshot.objects.get(&kv.key)?;
                    (known.revision == kv.mod_revision).then(|| known.clone())
                };
                let known = of(near).or_else(|| of(other?));
                keys.push(known.as_ref().map_or(&kv.key, |known| &known.key).clone());
                if let Some(known) = &known
                    && decoded_before
                    && kv.damage.is_none()
                {
                    put(&mut read, known.clone());
                    continue;
                }
                match self.decode(&kv).await {
                    Ok(entry) => put(&mut read, known.unwrap_or(entry)),
                    // One damaged object must not take the whole resource down.
                    Err(error) => {
                        self.figures.undecodable();
                        let found = self.unreadable(&kv.key, kv.mod_revision, error, None);
                        read.unreadable.insert(kv.key.clone(), found);
                        take(&mut read, &kv.key);
                    }
                }
            }
        }
        for gone in not_among(near, &keys) {
            take(&mut read, &gone);
        }
        read.revision = at.unwrap_or_default();
        Ok(read)
    }

    /// Decodes a stored value, once the key that it needs has been fetched.
    pub(super) async fn decode(&self, kv: &KeyValue) -> Result<Arc<Entry>, ValueError> {
        self.codec.prepare(&kv.value).await;
        let prepared = Prepared::of(&self.config, kv, &*self.codec)?;
        Ok(Arc::new(prepared.finish(kv.mod_revision)))
    }

    /// Ends the engine's watch and reads everything again.
    pub(super) fn begin_restart(self: &Arc<Self>) {
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
        let snapshot = self.read(None, &self.newest.load_full(), None).await?;
        self.follow_from(Arc::new(snapshot)).await
    }

    /// Follows the engine from a state of it.
    pub(super) async fn follow_from(self: &Arc<Self>, snapshot: Arc<Snapshot>) -> Result<(), StorageError> {
        let revision = snapshot.revision;
        self.figures.initialized(snapshot.objects.len());
        self.newest.store(snapshot);
        self.kept.rebase(&self.newest);
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

    /// After the engine has ended the watch: restarts, however long that takes.
    async fn restart(cache: Weak<Self>) {
        let mut pause = Duration::from_millis(100);
        loop {
            // Only held while it is used: dropping an unused cache ends this.
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

/// Puts an object in, unless it is there.
fn put(snapshot: &mut Snapshot, entry: Arc<Entry>) {
    let before = snapshot.objects.get(&entry.key);
    if before.is_some_and(|before| Arc::ptr_eq(before, &entry)) {
        return;
    }
    let before = snapshot.objects.insert(entry.key.clone(), entry.clone());
    snapshot.by_field.change(before.as_deref(), Some(&entry));
}

/// Takes an object out.
fn take(snapshot: &mut Snapshot, key: &Arc<str>) {
    if let Some(before) = snapshot.objects.remove(key) {
        snapshot.by_field.change(Some(&before), None);
    }
}

/// The keys of a snapshot that are not among others, which are in order.
fn not_among(snapshot: &Snapshot, keys: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut keys = keys.iter().peekable();
    let mut gone = Vec::new();
    for key in snapshot.objects.keys() {
        while keys.next_if(|other| *other < key).is_some() {}
        if keys.peek().is_none_or(|other| *other != key) {
            gone.push(key.clone());
        }
    }
    gone
}
