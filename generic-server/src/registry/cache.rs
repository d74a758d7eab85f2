//! The watch cache: one resource's objects as immutable snapshots of final JSON, and its recent events, shared by all readers.
//!
//! Fed by a [`storage::WatchSink`]. With an in-process engine a write is in the newest snapshot before it is acknowledged.
//! It is not a policy: the options of list and watch requests are in `registry::list` and `handlers::watch`.
//!
//! Invariants:
//! - A snapshot is complete up to its revision, and its revision never goes back.
//! - Every event after a snapshot's revision is in the ring (or the ring says that it no longer is): a reader that takes a
//!   snapshot and then a [`Feed`] after its revision misses nothing and sees nothing twice.
//! - Readers pull. Nothing is queued per watcher, so a slow one costs nothing and is ended when the ring has moved past it.
//! - The snapshot is swapped before the event is offered: a client that has seen an event finds it in every later read. Its
//!   revision is published last: a reader that has seen a revision finds its events.
//! - While the engine's watch is broken, nothing newer than the newest snapshot is vouched for.
//!
//! Here is what readers see. `past` has older states for them, `kept` those that will be asked for again. `apply` takes the engine's events over, `load` fills the cache, `pending` announces the writes of this
//! process.

mod apply;
mod by_field;
mod change;
mod codec;
mod entry;
mod feed;
mod interest;
mod kept;
mod load;
mod past;
mod pending;
mod prepare;
mod ring;
#[cfg(test)]
mod tests;
mod unreadable;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use machinery::{ApiError, GroupResource};
use parking_lot::Mutex;
use storage::{Revision, StorageError, Store};

pub use by_field::ByField;
pub use change::{Change, ChangeKind};
pub use codec::{BuiltinCodec, JsonCodec, StorageCodec, StoredForm, ValueError};
pub use entry::Entry;
pub use feed::{Feed, FeedEnd};
pub use interest::Interest;
pub use pending::Pending;
pub use prepare::Prepared;
pub use unreadable::Unreadable;

use crate::registry::budget::Budget;
use crate::registry::config::StoreConfig;
use crate::registry::errors::{from_storage, too_large};
use crate::registry::figures::StoreFigures;
use apply::Feeding;
use interest::Interests;
use kept::SnapshotHistory;
use prepare::Expected;
use ring::Ring;

/// How long a reader waits for a revision before it gets a timeout error (upstream's figure).
const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a waiting reader polls the revision of an engine in this process.
const ASK_EVERY: Duration = Duration::from_millis(50);

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
    /// Snapshots for further pages and exact lists.
    kept: SnapshotHistory,
    /// Held while a state of the past is made.
    making: tokio::sync::Mutex<()>,
    /// The budget of snapshots and events.
    budget: Arc<Budget>,
    /// The engine's watch. Held while its events are taken over.
    feeding: Mutex<Feeding>,
    /// Whether the engine's watch is alive and none of its events waits for a key. While it is not so, the newest snapshot vouches
    /// for nothing newer than itself. Changed with `feeding` locked only.
    following: tokio::sync::watch::Sender<bool>,
    /// A sweep is under way.
    sweeping: AtomicBool,
    /// Deletions seen, and those possible during gaps.
    deletions: AtomicU64,
    /// What is counted of the resource.
    figures: Arc<StoreFigures>,
    /// Where restarts and sweeps run: engines call from threads of their own.
    runtime: tokio::runtime::Handle,
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
    /// the cache restarts by itself; until then reads answer as old as it is (consistent ones wait or fail).
    pub async fn start(
        engine: Arc<dyn Store>,
        config: &StoreConfig,
        codec: Arc<dyn StorageCodec>,
        budget: Arc<Budget>,
    ) -> Result<Arc<Self>, StorageError> {
        Self::start_from(engine, config, codec, budget, None, Arc::default()).await
    }

    /// The same. With a `seed`, which is a state of this engine, it follows from there and reads nothing.
    pub(super) async fn start_from(
        engine: Arc<dyn Store>,
        config: &StoreConfig,
        codec: Arc<dyn StorageCodec>,
        budget: Arc<Budget>,
        seed: Option<Arc<Snapshot>>,
        figures: Arc<StoreFigures>,
    ) -> Result<Arc<Self>, StorageError> {
        let cache = Arc::new(ObjectCache {
            engine,
            config: config.clone(),
            codec,
            newest: ArcSwap::default(),
            offered: tokio::sync::watch::Sender::default(),
            ring: Ring::new(budget.clone()),
            interests: Interests::default(),
            expected: Mutex::default(),
            kept: SnapshotHistory::new(budget.clone()),
            making: tokio::sync::Mutex::default(),
            budget: budget.clone(),
            feeding: Mutex::default(),
            following: tokio::sync::watch::Sender::new(false),
            sweeping: AtomicBool::new(false),
            deletions: AtomicU64::new(0),
            figures,
            runtime: tokio::runtime::Handle::current(),
        });
        let follows = match seed {
            Some(seed) => cache.follow_from(seed).await.map(|()| true),
            None => Ok(false),
        };
        match follows {
            Ok(true) => {}
            // What came after the seed is no longer in the log.
            Ok(false) | Err(StorageError::Compacted { .. }) => cache.load().await?,
            Err(error) => return Err(error),
        }
        let holder: Weak<ObjectCache> = Arc::downgrade(&cache);
        budget.enter(holder);
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

    /// What is counted of the resource.
    pub(crate) fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// The configuration of the store.
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
        let begun = Instant::now();
        let mut offered = self.offered.subscribe();
        let reached = async {
            // An engine in process delivers only events of this prefix to the cache, so its revision is polled.
            let mut every = tokio::time::interval(ASK_EVERY);
            while self.current() < revision {
                tokio::select! {
                    _ = offered.changed() => {}
                    _ = every.tick() => {}
                }
            }
        };
        // A timeout is not an error here: the state below decides.
        let _ = tokio::time::timeout(FRESHNESS_TIMEOUT, reached).await;
        self.figures.waited(begun.elapsed());
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

    /// The newest snapshot, known to be complete up to what the engine has published. `None` when it does not follow, or the engine is
    /// in another process.
    pub(super) fn vouched_for(&self) -> Option<Arc<Snapshot>> {
        // In this order, as in `fresh`.
        let published = self.engine.published()?;
        let follows = *self.following.borrow();
        follows.then(|| self.at_least(published))
    }

    async fn wait_until_following(&self) -> Result<(), ApiError> {
        let mut following = self.following.subscribe();
        match tokio::time::timeout(FRESHNESS_TIMEOUT, following.wait_for(|f| *f)).await {
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
                // Set before looking: snapshots kept from now on schedule a sweep of their own.
                cache.sweeping.store(false, Ordering::Release);
                let more = cache.kept.sweep(&cache.newest);
                if !(cache.ring.sweep() || more) || cache.sweeping.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// Makes room in the budget, on another thread than the one that took it: that may be the engine's.
    fn schedule_reclaim(&self) {
        let budget = self.budget.clone();
        if budget.reclaim_is_due() {
            self.runtime.spawn_blocking(move || budget.reclaim());
        }
    }

    /// It has no watchers and no objects: it can be dropped, and recreated on next use.
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
}
