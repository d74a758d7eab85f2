//! How the engine's events are taken over: into the newest snapshot, then into the ring, then to the watchers' bells.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use storage::{Event, EventKind, Revision, StorageError, WatchHandle, WatchSink};

use super::prepare::Expected;
use super::{Change, ChangeKind, Entry, ObjectCache, Prepared, Snapshot, ValueError};

/// Events that wait for a key at most; with more of them the cache restarts.
const WAITING_BYTES: usize = 64 << 20;
const WAITING_BATCHES: usize = 100_000;

/// The task that delivers events into the cache.
#[derive(Default)]
pub(super) struct Feeding {
    /// Rises when the cache restarts: late events of an earlier watch are ignored.
    pub(super) life: u64,
    /// It restarts now.
    pub(super) restarting: bool,
    /// Ends the engine's watch when the cache is dropped or restarts.
    pub(super) handle: Option<WatchHandle>,
    /// Events that wait for a key that is being fetched, and those behind them.
    pub(super) waiting: Option<Waiting>,
}

#[derive(Default)]
pub(super) struct Waiting {
    batches: VecDeque<(Revision, Vec<Event>)>,
    bytes: usize,
}

impl Waiting {
    fn push(&mut self, revision: Revision, events: &[Event]) {
        self.bytes += events.iter().map(|e| e.kv.value.len() + 256).sum::<usize>();
        self.batches.push_back((revision, events.to_vec()));
    }
}

impl ObjectCache {
    /// One batch of the engine's events: taken over at once, or once the keys that it needs have been fetched. Without events it
    /// only carries the engine's revision.
    fn deliver(self: &Arc<Self>, life: u64, revision: Revision, events: &[Event]) {
        let mut feeding = self.feeding.lock();
        if feeding.life != life {
            return;
        }
        if let Some(waiting) = &mut feeding.waiting {
            waiting.push(revision, events);
            if waiting.bytes > WAITING_BYTES || waiting.batches.len() > WAITING_BATCHES {
                drop(feeding);
                self.begin_restart();
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
        let mut sound = true;
        for event in events {
            let key = &event.kv.key;
            let before = objects.get(key).cloned();
            let was = match unreadable.is_empty() {
                true => None,
                false => unreadable.remove(key),
            };
            sound &= was.is_none();
            let known = before.clone().or_else(|| was.as_ref()?.last.clone());
            let after = match self.change(event, known.clone()) {
                Ok(Some(change)) => {
                    let after = (change.kind != ChangeKind::Deleted).then(|| change.entry.clone());
                    changes.push(change);
                    after
                }
                // The deleted object could never be decoded here, but a watcher may have seen it while it could.
                Ok(None) => {
                    untold |= was.is_some();
                    None
                }
                Err(error) => {
                    sound = false;
                    self.figures.undecodable();
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
        self.figures.events(events.len(), changes.len());
        self.kept.replaced(&changes);
        for previous in changes.iter().filter_map(|change| change.previous.as_ref()) {
            previous.forms().clear();
        }
        if !sound {
            self.ring.unsound(revision);
        }
        let first = self.ring.push(&changes);
        self.interests.offer(first, &changes);
        if untold {
            // Watchers list again.
            self.ring.reset(revision);
            self.interests.wake_all();
        }
        // Last: a reader that drains a feed up to here has been woken.
        self.offered.send_if_modified(|now| advance(now, revision));
        if self.ring.is_long() {
            self.schedule_sweep();
        }
        if self.kept.is_exceeded() || self.budget.is_exceeded() {
            self.schedule_reclaim();
        }
    }

    fn progress(&self, revision: Revision) {
        self.figures.progressed();
        let newest = self.newest.load_full();
        if revision > newest.revision {
            self.newest.store(newest.known_up_to(revision));
            self.offered.send_if_modified(|now| advance(now, revision));
        }
    }

    /// The change that an event of the engine is. `previous` is the object's state before, if it is known.
    pub(super) fn change(
        &self,
        event: &Event,
        previous: Option<Arc<Entry>>,
    ) -> Result<Option<Arc<Change>>, ValueError> {
        let kv = &event.kv;
        let previous = previous.or_else(|| {
            let before = event.prev.as_ref()?;
            let prepared = Prepared::of(&self.config, before, &*self.codec).ok()?;
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
                let prepared = Prepared::of(&self.config, kv, &*self.codec)?;
                Ok(Arc::new(prepared.finish(kv.mod_revision)))
            }
        }
    }
}

/// Raises a revision that never goes back; true when it did.
pub(super) fn advance(now: &mut Revision, to: Revision) -> bool {
    let newer = to > *now;
    if newer {
        *now = to;
    }
    newer
}

/// Where the engine delivers. Knows the cache weakly: an unused cache ends its watch by being dropped.
pub(super) struct Sink {
    pub(super) cache: Weak<ObjectCache>,
    pub(super) life: u64,
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
        // At a stop every cache sees this, and otherwise it recovers by itself.
        tracing::debug!(resource.gvr = %cache.resource(), %error, "the engine ended a watch, the cache restarts");
        cache.begin_restart();
    }
}
