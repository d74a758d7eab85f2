//! The watch cache: one resource's objects as immutable snapshots of final JSON, and its recent events, shared by all readers.
//!
//! Fed by a [`storage::WatchSink`]. With an in-process engine a write is in the newest snapshot before it is acknowledged.
//! It is not a policy: what a list or watch request may ask is in `registry::list` and `handlers::watch`.
//!
//! Invariants:
//! - A snapshot is complete up to its revision, and its revision never goes back.
//! - Every event after a snapshot's revision is in the ring (or the ring says that it no longer is): a reader that takes a
//!   snapshot and then a [`Feed`] after its revision misses nothing and sees nothing twice.
//! - Readers pull. Nothing is queued per watcher, so a slow one costs nothing and is ended when the ring has moved past it.
//! - The snapshot is swapped before the event is offered: who has seen an event finds it in every later read.

mod by_field;
mod codec;
mod entry;
mod feed;
mod interest;
mod prepare;
mod ring;
#[cfg(test)]
mod tests;
mod unreadable;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use machinery::{ApiError, GroupResource};
use parking_lot::Mutex;
use storage::{Event, EventKind, RangeRequest, Revision, StorageError, Store, WatchHandle, WatchSink};

pub use by_field::ByField;
pub use codec::{BuiltinCodec, JsonCodec, StorageCodec, StoredForm, ValueError};
pub use entry::Entry;
pub use feed::{Feed, FeedEnd};
pub use interest::Interest;
pub use prepare::Prepared;
pub use unreadable::Unreadable;

use crate::registry::errors::{from_storage, too_large};
use crate::registry::store::StoreConfig;
use interest::Interests;
use prepare::Expected;
use ring::Ring;

/// How long a reader waits for a revision before it is told that it asks too much (upstream's figure).
const PATIENCE: Duration = Duration::from_secs(3);
/// Objects per request of the first read. Of an engine in this process few, since what a page holds is there twice while it is
/// decoded; of one elsewhere many, since it counts what follows each.
const PAGE: usize = 2_000;
const REMOTE_PAGE: usize = 10_000;
/// Snapshots kept for pages of lists, and for how long (upstream's compaction interval is what clients are used to).
const RETAINED: usize = 32;
const RETAINED_FOR: Duration = Duration::from_secs(300);

/// All objects at one revision. Cheap to clone, never changes.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The revision that this is complete up to.
    pub revision: Revision,
    /// By storage key.
    pub objects: imbl::OrdMap<Arc<str>, Arc<Entry>>,
    /// The same by the indexed field, where the kind has it.
    pub by_field: ByField,
    /// Objects that are there and cannot be read, by storage key.
    pub unreadable: imbl::OrdMap<Arc<str>, Arc<Unreadable>>,
}

impl Snapshot {
    /// The same objects, known to be complete up to a later revision.
    fn known_up_to(&self, revision: Revision) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            revision,
            ..self.clone()
        })
    }
}

/// Events that wait for a key at most; with more of them the cache starts anew.
const WAITING_BYTES: usize = 64 << 20;
const WAITING_BATCHES: usize = 100_000;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the entry is its last state, with the deletion's revision.
    Deleted,
}

impl ChangeKind {
    /// The wire form: `ADDED`, `MODIFIED`, `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One event, shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The state after (for `Deleted` the last state, with the deletion's revision as resourceVersion).
    pub entry: Arc<Entry>,
    /// The state before.
    pub previous: Option<Arc<Entry>>,
    /// The event's revision.
    pub revision: Revision,
    /// The event on the wire, as watchers of the same form share it: by form, encoded by the first that needs it. `None` once few
    /// are likely to ask for it: whoever still does encodes it for itself.
    frames: Mutex<Option<Vec<(u64, Bytes)>>>,
}

impl Change {
    fn new(
        kind: ChangeKind,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
        revision: Revision,
    ) -> Arc<Self> {
        Arc::new(Change {
            kind,
            entry,
            previous,
            revision,
            frames: Mutex::new(Some(Vec::new())),
        })
    }

    /// The encoded event of a form, made once. `form` identifies version, media type and view; watchers of one form give the
    /// same bytes.
    pub fn frame<E>(&self, form: u64, encode: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let known = |frames: &[(u64, Bytes)]| frames.iter().find(|(f, _)| *f == form).map(|(_, b)| b.clone());
        // Encoding happens under the lock: a second watcher waits for the first one's bytes rather than making its own.
        let mut kept = self.frames.lock();
        let Some(frames) = &mut *kept else {
            drop(kept);
            return encode();
        };
        if let Some(bytes) = known(frames) {
            return Ok(bytes);
        }
        let bytes = encode()?;
        frames.push((form, bytes.clone()));
        Ok(bytes)
    }

    /// Few are likely to ask for the encoded event again.
    fn forget_frames(&self) {
        *self.frames.lock() = None;
    }

    /// About what it keeps in memory that the newest snapshot does not: the state before, and a deletion's own form of it. The
    /// state after is in the snapshot, or else the state before of a later event.
    fn weight(&self) -> usize {
        let own = match self.kind {
            ChangeKind::Deleted => self.entry.json.len(),
            ChangeKind::Added | ChangeKind::Modified => 0,
        };
        self.previous.as_ref().map_or(0, |p| p.json.len()) + own + 256
    }

    /// The same of an event that was read back from the engine, which shares its states with nothing.
    fn weight_alone(&self) -> usize {
        self.previous.as_ref().map_or(0, |p| p.json.len()) + self.entry.json.len() + 256
    }
}

/// One resource's cache.
pub struct ObjectCache {
    engine: Arc<dyn Store>,
    config: StoreConfig,
    codec: Arc<dyn StorageCodec>,
    newest: ArcSwap<Snapshot>,
    /// The newest revision whose events have all been offered to feeds.
    offered: tokio::sync::watch::Sender<Revision>,
    ring: Ring,
    interests: Interests,
    /// Writes of this process under way, by key.
    expected: Mutex<HashMap<Arc<str>, Vec<Arc<Expected>>>>,
    retained: Mutex<VecDeque<(Instant, Arc<Snapshot>)>>,
    /// The engine's watch. Held while its events are taken over.
    feeding: Mutex<Feeding>,
    /// Whether the engine's watch is alive and none of its events waits for a key. While it is not so, the newest snapshot vouches
    /// for nothing newer than itself. Changed with `feeding` locked only.
    following: tokio::sync::watch::Sender<bool>,
    /// A sweep is under way.
    sweeping: AtomicBool,
    /// The cache starts anew.
    restarting: AtomicBool,
    /// Objects that have gone, or that may have while nobody looked.
    deletions: AtomicU64,
    /// Where restarts and sweeps run: engines call from threads of their own.
    runtime: tokio::runtime::Handle,
}

/// What delivers events into the cache.
#[derive(Default)]
struct Feeding {
    /// Rises when the cache starts anew: what an earlier watch still delivers does not count.
    life: u64,
    /// Ends the engine's watch when the cache is dropped or starts anew.
    handle: Option<WatchHandle>,
    /// Events that wait for a key that is being fetched, and those behind them.
    waiting: Option<Waiting>,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<(Revision, Vec<Event>)>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, revision: Revision, events: &[Event]) {
        self.bytes += events.iter().map(|e| e.kv.value.len() + 256).sum::<usize>();
        self.batches.push_back((revision, events.to_vec()));
    }
}

impl fmt::Debug for ObjectCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = self.newest.load();
        f.debug_struct("ObjectCache")
            .field("prefix", &self.config.prefix)
            .field("revision", &newest.revision)
            .field("objects", &newest.objects.len())
            .finish_non_exhaustive()
    }
}

impl ObjectCache {
    /// Reads all objects under the config's prefix and follows the engine from there on. When the engine ends the watch later,
    /// the cache starts anew by itself; until then reads answer as old as it is (consistent ones wait or fail).
    pub async fn start(
        engine: Arc<dyn Store>,
        config: &StoreConfig,
        codec: Arc<dyn StorageCodec>,
    ) -> Result<Arc<Self>, StorageError> {
        let cache = Arc::new(ObjectCache {
            engine,
            config: config.clone(),
            codec,
            newest: ArcSwap::default(),
            offered: tokio::sync::watch::Sender::default(),
            ring: Ring::default(),
            interests: Interests::default(),
            expected: Mutex::default(),
            retained: Mutex::default(),
            feeding: Mutex::default(),
            following: tokio::sync::watch::Sender::new(false),
            sweeping: AtomicBool::new(false),
            restarting: AtomicBool::new(false),
            deletions: AtomicU64::new(0),
            runtime: tokio::runtime::Handle::current(),
        });
        cache.load().await?;
        Ok(cache)
    }

    /// The newest snapshot: as old as the cache is.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.newest.load_full()
    }

    /// The newest revision whose events feeds can have seen.
    pub fn offered(&self) -> Revision {
        *self.offered.borrow()
    }

    /// Rises with every deletion, before it is acknowledged where the engine is in this process.
    pub fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Acquire)
    }

    /// What the store was told at birth.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// A snapshot no older than any write acknowledged before the call. 504 when the engine's state does not arrive in time.
    pub async fn fresh(&self) -> Result<Arc<Snapshot>, ApiError> {
        // In this order: while the cache follows, it has seen what was published before. The other way round it might have
        // stopped in between.
        let published = self.engine.published();
        if !*self.following.borrow() {
            self.wait_until_following().await?;
        }
        if let Some(published) = published {
            return Ok(self.at_least(published));
        }
        let revision = self
            .engine
            .fresh_for(&self.watch_prefix())
            .await
            .map_err(|error| self.failure(&error))?;
        self.wait_for(revision).await
    }

    /// A snapshot of at least this revision; 504 with the cause ResourceVersionTooLarge when it does not come in time.
    pub async fn wait_for(&self, revision: Revision) -> Result<Arc<Snapshot>, ApiError> {
        let newest = self.newest.load_full();
        if newest.revision >= revision {
            return Ok(newest);
        }
        if !*self.following.borrow() {
            self.wait_until_following().await?;
        }
        let mut offered = self.offered.subscribe();
        let reached = offered.wait_for(|offered| *offered >= revision);
        // Late or not, the state below tells.
        let _ = tokio::time::timeout(PATIENCE, reached).await;
        let newest = self.at_least(self.current());
        if newest.revision >= revision {
            Ok(newest)
        } else {
            Err(too_large(revision.0, newest.revision.0))
        }
    }

    /// The newest revision that the cache is known to be complete up to.
    pub fn current(&self) -> Revision {
        // In this order, as in `fresh`.
        let published = self.engine.published();
        let published = published.filter(|_| *self.following.borrow());
        published.unwrap_or_default().max(self.offered())
    }

    async fn wait_until_following(&self) -> Result<(), ApiError> {
        let mut following = self.following.subscribe();
        match tokio::time::timeout(PATIENCE, following.wait_for(|f| *f)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::server_timeout(&self.config.resource, "list", 2)),
        }
    }

    /// The newest snapshot, which is known to be complete up to `published`.
    fn at_least(&self, published: Revision) -> Arc<Snapshot> {
        let newest = self.newest.load_full();
        if newest.revision >= published {
            return newest;
        }
        newest.known_up_to(published)
    }

    /// Keeps a snapshot for a while: the next page of a list will ask for it.
    pub fn retain(self: &Arc<Self>, snapshot: &Arc<Snapshot>) {
        let mut retained = self.retained.lock();
        while retained.len() >= RETAINED {
            retained.pop_front();
        }
        if !retained.iter().any(|(_, s)| s.revision == snapshot.revision) {
            retained.push_back((Instant::now(), snapshot.clone()));
        }
        drop(retained);
        self.schedule_sweep();
    }

    /// Ends every feed once it has handed out what there is, and those that begin later: the kind is no longer served.
    pub fn end_feeds(&self) {
        self.ring.close();
        self.interests.wake_all();
    }

    /// Makes sure that what is kept for a while goes when that is over, even if nothing happens here any more.
    fn schedule_sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let cache = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(ring::YOUNG).await;
                let Some(cache) = cache.upgrade() else { return };
                // Said before looking: what is kept from now on schedules a sweep of its own.
                cache.sweeping.store(false, Ordering::Release);
                let now = Instant::now();
                let mut retained = cache.retained.lock();
                retained.retain(|(at, _)| now.duration_since(*at) <= RETAINED_FOR);
                let more = !retained.is_empty();
                drop(retained);
                if !(cache.ring.sweep() || more) || cache.sweeping.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// The state at exactly this revision: a kept snapshot, else what the engine still has. 410 when it has been compacted,
    /// 504 when it lies ahead.
    pub async fn exactly(self: &Arc<Self>, revision: Revision) -> Result<Arc<Snapshot>, ApiError> {
        let newest = self.newest.load_full();
        if newest.revision == revision {
            return Ok(newest);
        }
        if newest.revision < revision {
            let reached = self.wait_for(revision).await?;
            if reached.revision == revision {
                return Ok(reached);
            }
            // Nothing has happened here since `newest`: the same objects, at the revision that was asked for.
            if self.newest.load().revision == newest.revision {
                return Ok(newest.known_up_to(revision));
            }
        }
        let kept = self
            .retained
            .lock()
            .iter()
            .find(|(_, s)| s.revision == revision)
            .map(|(_, s)| s.clone());
        if let Some(snapshot) = kept {
            return Ok(snapshot);
        }
        let loaded = self
            .read(Some(revision))
            .await
            .map_err(|error| self.failure(&error))?;
        let loaded = Arc::new(loaded);
        self.retain(&loaded);
        Ok(loaded)
    }

    /// Announces a write, so that its event does not have to be read back. The announcement ends when dropped.
    pub fn expect(self: &Arc<Self>, prepared: Prepared) -> Pending {
        let expected = Arc::new(Expected {
            prepared,
            entry: OnceLock::new(),
        });
        self.expected
            .lock()
            .entry(expected.prepared.key().clone())
            .or_default()
            .push(expected.clone());
        Pending {
            cache: self.clone(),
            expected,
        }
    }

    /// Nobody watches it and it holds nothing: it can go, and come back on next use.
    pub fn idle(&self) -> bool {
        let newest = self.newest.load();
        newest.objects.is_empty() && newest.unreadable.is_empty() && self.interests.is_empty()
    }

    /// How many watch it, the server's own controllers included.
    pub fn watchers(&self) -> usize {
        self.interests.len()
    }

    fn failure(&self, error: &StorageError) -> ApiError {
        from_storage(error, &self.config.resource, "list")
    }

    fn resource(&self) -> &GroupResource {
        &self.config.resource
    }

    fn watch_prefix(&self) -> String {
        format!("{}/", self.config.prefix)
    }

    /// All objects at a revision (the newest), page by page. While one is decoded the next is read.
    async fn read(&self, at: Option<Revision>) -> Result<Snapshot, StorageError> {
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

    fn unreadable(
        &self,
        key: &Arc<str>,
        revision: Revision,
        error: ValueError,
        last: Option<Arc<Entry>>,
    ) -> Arc<Unreadable> {
        tracing::error!(resource.gvr = %self.resource(), key = %key, %error, "an object cannot be read");
        Arc::new(Unreadable {
            key: key.clone(),
            revision,
            error,
            last,
        })
    }

    /// Looks at an object's stored value once more: the key that it needs may be there by now. When it can be read, so may others,
    /// and the cache starts anew.
    ///
    /// # Errors
    /// Outside, when the engine does not answer; inside, why the object still cannot be read.
    pub async fn reread(
        self: &Arc<Self>,
        key: &str,
    ) -> Result<Result<Option<Arc<Entry>>, Arc<Unreadable>>, StorageError> {
        let (found, _) = self.engine.get(key, None).await?;
        let Some(kv) = found else { return Ok(Ok(None)) };
        self.codec.prepare(&kv.value).await;
        Ok(
            match Prepared::from_stored(&self.config, &kv.key, &kv.value, &*self.codec) {
                Ok(prepared) => {
                    self.start_anew();
                    Ok(Some(Arc::new(prepared.finish(kv.mod_revision))))
                }
                Err(error) => Err(self.unreadable(&kv.key, kv.mod_revision, error, None)),
            },
        )
    }

    /// Whether storing the object again, unchanged, would make a difference. Asked of writes that change nothing.
    pub(crate) async fn is_stale(&self, entry: &Entry) -> Result<bool, StorageError> {
        if !self.codec.may_be_stale() {
            return Ok(false);
        }
        let (found, _) = self.engine.get(&entry.key, None).await?;
        let current = found.filter(|kv| kv.mod_revision == entry.revision);
        Ok(current.is_some_and(|kv| self.codec.is_stale(&kv.key, &kv.value)))
    }

    /// Ends the engine's watch and reads everything again.
    fn start_anew(self: &Arc<Self>) {
        let handle = {
            let mut feeding = self.feeding.lock();
            self.following.send_replace(false);
            feeding.life += 1;
            feeding.waiting = None;
            feeding.handle.take()
        };
        drop(handle);
        if !self.restarting.swap(true, Ordering::AcqRel) {
            self.runtime.spawn(ObjectCache::restart(Arc::downgrade(self)));
        }
    }

    /// Reads everything and starts to follow. Feeds of an earlier life end.
    async fn load(self: &Arc<Self>) -> Result<(), StorageError> {
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
        self.restarting.store(false, Ordering::Release);
        self.following.send_replace(feeding.waiting.is_none());
        Ok(())
    }

    /// One batch of the engine's events: taken over at once, or once the keys that it needs have been fetched. Without events it
    /// only tells how far the engine is.
    fn deliver(self: &Arc<Self>, life: u64, revision: Revision, events: &[Event]) {
        let mut feeding = self.feeding.lock();
        if feeding.life != life {
            return;
        }
        if let Some(waiting) = &mut feeding.waiting {
            waiting.push(revision, events);
            if waiting.bytes > WAITING_BYTES || waiting.batches.len() > WAITING_BATCHES {
                drop(feeding);
                self.start_anew();
            }
            return;
        }
        let lacks_key = |e: &Event| e.kind == EventKind::Put && self.codec.lacks_key(&e.kv.value);
        if events.iter().any(lacks_key) {
            let mut waiting = Waiting::default();
            waiting.push(revision, events);
            feeding.waiting = Some(waiting);
            self.following.send_replace(false);
            self.runtime
                .spawn(ObjectCache::catch_up(Arc::downgrade(self), life));
        } else if events.is_empty() {
            self.progress(revision);
        } else {
            self.apply(revision, events);
        }
    }

    /// Fetches the keys that waiting events need and takes the events over, in their order.
    async fn catch_up(cache: Weak<Self>, life: u64) {
        loop {
            let Some(cache) = cache.upgrade() else { return };
            let values: Vec<Bytes> = {
                let feeding = cache.feeding.lock();
                let waiting = feeding.waiting.as_ref().filter(|_| feeding.life == life);
                let Some((_, events)) = waiting.and_then(|w| w.batches.front()) else {
                    return;
                };
                let puts = events.iter().filter(|e| e.kind == EventKind::Put);
                puts.map(|e| e.kv.value.clone()).collect()
            };
            for value in &values {
                cache.codec.prepare(value).await;
            }
            let mut feeding = cache.feeding.lock();
            if feeding.life != life {
                return;
            }
            let Some(waiting) = &mut feeding.waiting else {
                return;
            };
            if let Some((revision, events)) = waiting.batches.pop_front() {
                if events.is_empty() {
                    cache.progress(revision);
                } else {
                    cache.apply(revision, &events);
                }
            }
            if waiting.batches.is_empty() {
                feeding.waiting = None;
                // Until `load` has the watch in hand it is for `load` to say.
                cache.following.send_replace(feeding.handle.is_some());
                return;
            }
        }
    }

    /// Takes over one batch of the engine's events.
    fn apply(self: &Arc<Self>, revision: Revision, events: &[Event]) {
        let newest = self.newest.load_full();
        let mut objects = newest.objects.clone();
        let mut by_field = newest.by_field.clone();
        let mut changes = Vec::with_capacity(events.len());
        let mut unreadable = newest.unreadable.clone();
        let mut untold = false;
        for event in events {
            let key = &event.kv.key;
            let before = objects.get(key).cloned();
            let was = match unreadable.is_empty() {
                true => None,
                false => unreadable.remove(key),
            };
            let known = before.clone().or_else(|| was.as_ref()?.last.clone());
            let after = match self.change(event, known.clone()) {
                Ok(Some(change)) => {
                    let after = (change.kind != ChangeKind::Deleted).then(|| change.entry.clone());
                    changes.push(change);
                    after
                }
                // What went could never be read here, but somebody may have seen it when it could.
                Ok(None) => {
                    untold |= was.is_some();
                    None
                }
                Err(error) => {
                    let found = self.unreadable(key, event.kv.mod_revision, error, known);
                    unreadable.insert(key.clone(), found);
                    None
                }
            };
            by_field.change(before.as_deref(), after.as_deref());
            match after {
                None => objects.remove(key),
                Some(entry) => objects.insert(entry.key.clone(), entry),
            };
        }
        if events.iter().any(|e| e.kind == EventKind::Delete) {
            self.deletions.fetch_add(1, Ordering::Release);
        }
        let revision = revision.max(newest.revision);
        self.newest.store(Arc::new(Snapshot {
            revision,
            objects,
            by_field,
            unreadable,
        }));
        let first = self.ring.push(&changes);
        self.interests.offer(first, &changes);
        if untold {
            // Watchers list anew.
            self.ring.reset(revision);
            self.interests.wake_all();
        }
        // Last: who drains a feed up to here finds its bell rung.
        self.offered.send_if_modified(|now| advance(now, revision));
        if self.ring.is_long() {
            self.schedule_sweep();
        }
    }

    fn progress(&self, revision: Revision) {
        let newest = self.newest.load_full();
        if revision > newest.revision {
            self.newest.store(newest.known_up_to(revision));
            self.offered.send_if_modified(|now| advance(now, revision));
        }
    }

    /// What an event of the engine means. `previous` is the object's state before, if it is known.
    fn change(&self, event: &Event, previous: Option<Arc<Entry>>) -> Result<Option<Arc<Change>>, ValueError> {
        let kv = &event.kv;
        let previous = previous.or_else(|| {
            let before = event.prev.as_ref()?;
            let prepared =
                Prepared::from_stored(&self.config, &before.key, &before.value, &*self.codec).ok()?;
            Some(Arc::new(prepared.finish(before.mod_revision)))
        });
        match event.kind {
            EventKind::Put => {
                let entry = self.entry(event)?;
                let kind = match previous {
                    Some(_) => ChangeKind::Modified,
                    None => ChangeKind::Added,
                };
                Ok(Some(Change::new(kind, entry, previous, kv.mod_revision)))
            }
            EventKind::Delete => Ok(previous.map(|previous| {
                let entry = Arc::new(previous.at_revision(kv.mod_revision));
                Change::new(ChangeKind::Deleted, entry, Some(previous), kv.mod_revision)
            })),
        }
    }

    /// The entry of a put: the one announced, when this process wrote it.
    fn entry(&self, event: &Event) -> Result<Arc<Entry>, ValueError> {
        let kv = &event.kv;
        let expected = self.expected.lock().get(&kv.key).and_then(|list| {
            let ours = |e: &&Arc<Expected>| e.prepared.stored() == &kv.value && e.entry.get().is_none();
            list.iter().find(ours).cloned()
        });
        match expected {
            Some(expected) => {
                // Equal bytes of another writer give an equal entry; `Pending::finish` compares the revision.
                let entry = expected
                    .entry
                    .get_or_init(|| Arc::new(expected.prepared.finish(kv.mod_revision)));
                Ok(entry.clone())
            }
            None => {
                let prepared = Prepared::from_stored(&self.config, &kv.key, &kv.value, &*self.codec)?;
                Ok(Arc::new(prepared.finish(kv.mod_revision)))
            }
        }
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

fn advance(now: &mut Revision, to: Revision) -> bool {
    let newer = to > *now;
    if newer {
        *now = to;
    }
    newer
}

/// A write announced to the cache.
#[derive(Debug)]
pub struct Pending {
    cache: Arc<ObjectCache>,
    expected: Arc<Expected>,
}

impl Pending {
    /// The entry of the write, once it is committed at `revision`: the cache's own, when its event has arrived.
    pub fn finish(self, revision: Revision) -> Arc<Entry> {
        match self.expected.entry.get() {
            Some(entry) if entry.revision == revision => entry.clone(),
            // A write that changed nothing, or an engine whose event is still to come.
            _ => {
                let cached = self
                    .cache
                    .snapshot()
                    .objects
                    .get(self.expected.prepared.key())
                    .cloned();
                match cached {
                    Some(entry) if entry.revision == revision => entry,
                    _ => Arc::new(self.expected.prepared.finish(revision)),
                }
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut expected = self.cache.expected.lock();
        let key = self.expected.prepared.key();
        if let Some(list) = expected.get_mut(key) {
            list.retain(|e| !Arc::ptr_eq(e, &self.expected));
            if list.is_empty() {
                expected.remove(key);
            }
        }
    }
}

/// Where the engine delivers. Knows the cache weakly: a cache that nobody uses ends its watch by being dropped.
struct Sink {
    cache: Weak<ObjectCache>,
    life: u64,
}

impl WatchSink for Sink {
    fn events(&self, revision: Revision, events: &[Event]) {
        if let Some(cache) = self.cache.upgrade() {
            cache.deliver(self.life, revision, events);
        }
    }

    fn progress(&self, revision: Revision) {
        if let Some(cache) = self.cache.upgrade() {
            cache.deliver(self.life, revision, &[]);
        }
    }

    fn closed(&self, error: StorageError) {
        let Some(cache) = self.cache.upgrade() else { return };
        if cache.feeding.lock().life != self.life {
            return;
        }
        tracing::info!(resource.gvr = %cache.resource(), %error, "the engine ended a watch, the cache starts anew");
        cache.start_anew();
    }
}
