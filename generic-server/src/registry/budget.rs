//! The memory that past states may take, over all resources: snapshots for exact and paged lists, and recent events for watches.
//!
//! Caches count such states here as they come and go. When there are too many, those go first that take most and were not
//! asked for longest; all of them can be had again from the store's history.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use machinery::limits;
use parking_lot::Mutex;

use super::forms::FormCache;
use crate::metrics::{Collect, family, sample};

/// A cache whose past states are counted. None of the calls waits for anything but the cache's own locks.
pub(crate) trait Holder: Send + Sync {
    /// Its snapshots: how much is gained by letting go of each (bytes by seconds since it was asked for), and its name.
    fn snapshots(&self) -> Vec<(u64, u64)>;
    /// Lets go of the snapshot of this name; gives the bytes that came free.
    fn evict(&self, name: u64) -> usize;
    /// Bytes of its snapshots.
    fn snapshot_bytes(&self) -> usize;
    /// Bytes of its recent events.
    fn event_bytes(&self) -> usize;
    /// Lets go of the older half of its recent events.
    fn halve_events(&self);
}

/// The budget of one server (`--watch-cache-history-mib`).
pub struct Budget {
    limit: usize,
    snapshots: AtomicUsize,
    snapshot_bytes: AtomicUsize,
    event_bytes: AtomicUsize,
    evicted: AtomicU64,
    halved: AtomicU64,
    undone: AtomicU64,
    read: AtomicU64,
    holders: Mutex<Vec<Weak<dyn Holder>>>,
    /// A task is scheduled to make room.
    due: AtomicBool,
    reclaiming: Mutex<()>,
    /// Encoded forms, which have a budget of their own.
    forms: Arc<FormCache>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit)
            .field("snapshot_bytes", &self.snapshot_bytes())
            .field("event_bytes", &self.event_bytes())
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::with_forms(limit, limits::FORM_BYTES)
    }

    /// The same with so many bytes for encoded forms, which do not count among the others.
    pub(crate) fn with_forms(limit: usize, forms: usize) -> Arc<Self> {
        Self::with(limit, FormCache::new(forms))
    }

    /// The same with encoded forms that have a budget already.
    pub(super) fn with(limit: usize, forms: Arc<FormCache>) -> Arc<Self> {
        Arc::new(Budget {
            limit,
            snapshots: AtomicUsize::new(0),
            snapshot_bytes: AtomicUsize::new(0),
            event_bytes: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            halved: AtomicU64::new(0),
            undone: AtomicU64::new(0),
            read: AtomicU64::new(0),
            holders: Mutex::default(),
            due: AtomicBool::new(false),
            reclaiming: Mutex::default(),
            forms,
        })
    }

    /// The default budget.
    pub fn standard() -> Arc<Self> {
        Self::new(limits::PAST_BYTES)
    }

    /// The encoded forms of all resources.
    pub(crate) fn forms(&self) -> &Arc<FormCache> {
        &self.forms
    }

    /// The bytes that the snapshots of one resource may take.
    pub(crate) fn share(&self) -> usize {
        self.limit / limits::PAST_SHARE
    }

    /// The bytes that the events of one resource may take.
    pub(crate) fn event_share(&self) -> usize {
        self.limit / limits::PAST_EVENT_SHARE
    }

    /// Bytes of snapshots, as they are counted.
    pub(crate) fn snapshot_bytes(&self) -> usize {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of recent events.
    pub(crate) fn event_bytes(&self) -> usize {
        self.event_bytes.load(Ordering::Relaxed)
    }

    /// How many snapshots have been let go of to make room.
    #[cfg(test)]
    pub(crate) fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How many past states have been made of recent events, and how many have been read from the store.
    #[cfg(test)]
    pub(crate) fn rebuilt(&self) -> (u64, u64) {
        (
            self.undone.load(Ordering::Relaxed),
            self.read.load(Ordering::Relaxed),
        )
    }

    /// Counts a cache's past states from now on.
    pub(crate) fn enter(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.holders.lock();
        holders.retain(|known| known.strong_count() > 0);
        holders.push(holder);
    }

    /// The number and bytes of a cache's snapshots have changed.
    pub(crate) fn count_snapshots(&self, (number, bytes): (usize, usize), (now, now_bytes): (usize, usize)) {
        change(&self.snapshots, number, now);
        change(&self.snapshot_bytes, bytes, now_bytes);
    }

    /// The bytes of a cache's recent events have changed.
    pub(crate) fn count_events(&self, before: usize, now: usize) {
        change(&self.event_bytes, before, now);
    }

    /// A past state was made of recent events.
    pub(crate) fn count_undone(&self) {
        self.undone.fetch_add(1, Ordering::Relaxed);
    }

    /// A past state was read from the store.
    pub(crate) fn count_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether more is held than may be.
    pub(crate) fn is_exceeded(&self) -> bool {
        let events = self.event_bytes();
        events > self.limit / 2 || events + self.snapshot_bytes() > self.limit
    }

    /// Whether [`Budget::reclaim`] has to be called: true once until it has been.
    pub(crate) fn reclaim_is_due(&self) -> bool {
        !self.due.swap(true, Ordering::AcqRel)
    }

    /// Makes room until no more is held than may be.
    pub(crate) fn reclaim(&self) {
        // One at a time, or two would let go of twice as much.
        let _reclaiming = self.reclaiming.lock();
        // Entries that are added from here on may be missed by this pass.
        self.due.store(false, Ordering::Release);
        let holders: Vec<Arc<dyn Holder>> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        self.shorten_events(&holders);
        for holder in &holders {
            let over = |bytes| bytes > self.share();
            if over(holder.snapshot_bytes()) {
                // Some more than needed, so that the next one does not come here again.
                self.evict(std::slice::from_ref(holder), || {
                    holder.snapshot_bytes() > self.share() - self.share() / 8
                });
            }
        }
        let held = || self.event_bytes() + self.snapshot_bytes();
        if held() > self.limit {
            self.evict(&holders, || held() > self.limit - self.limit / 8);
        }
    }

    fn evict(&self, holders: &[Arc<dyn Holder>], too_much: impl Fn() -> bool) {
        let mut all: Vec<(u64, usize, u64)> = Vec::new();
        for (index, holder) in holders.iter().enumerate() {
            let snapshots = holder.snapshots().into_iter();
            all.extend(snapshots.map(|(gain, name)| (gain, index, name)));
        }
        all.sort_unstable_by_key(|(gain, ..)| std::cmp::Reverse(*gain));
        for (_, index, name) in all {
            if !too_much() {
                return;
            }
            holders[index].evict(name);
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events may take half of the budget: they are many small gains that are soon made again, snapshots are what lists wait for.
    fn shorten_events(&self, holders: &[Arc<dyn Holder>]) {
        while self.event_bytes() > self.limit / 2 {
            let longest = holders.iter().max_by_key(|holder| holder.event_bytes());
            let Some(longest) = longest else { return };
            let before = longest.event_bytes();
            longest.halve_events();
            if longest.event_bytes() >= before {
                return;
            }
            self.halved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn change(counter: &AtomicUsize, before: usize, now: usize) {
    if now >= before {
        counter.fetch_add(now - before, Ordering::Relaxed);
    } else {
        counter.fetch_sub(before - now, Ordering::Relaxed);
    }
}

impl Collect for Budget {
    fn collect(&self, out: &mut String) {
        let gauges = [
            (
                "apiserver_watch_cache_history_limit_bytes",
                "What snapshots and recent events of all resources may take.",
                self.limit,
            ),
            (
                "apiserver_watch_cache_snapshot_bytes",
                "Bytes that snapshots for exact and paged lists keep, besides those that the newest state shares.",
                self.snapshot_bytes(),
            ),
            (
                "apiserver_watch_cache_snapshots",
                "Snapshots that are kept for exact and paged lists.",
                self.snapshots.load(Ordering::Relaxed),
            ),
            (
                "apiserver_watch_cache_event_bytes",
                "Bytes that recent events keep, besides those that the newest state shares.",
                self.event_bytes(),
            ),
        ];
        for (name, help, value) in gauges {
            family(out, name, "gauge", help);
            sample(out, name, &[], value);
        }
        let counters = [
            (
                "apiserver_watch_cache_history_evictions_total",
                "What was let go of to make room: snapshots, or the older half of a resource's events.",
                "kind",
                [("snapshot", &self.evicted), ("events", &self.halved)],
            ),
            (
                "apiserver_watch_cache_rebuilds_total",
                "Past states that were recreated, of recent events or by reading the store.",
                "source",
                [("events", &self.undone), ("store", &self.read)],
            ),
        ];
        for (name, help, label, values) in counters {
            family(out, name, "counter", help);
            for (of, value) in values {
                sample(out, name, &[(label, of)], value.load(Ordering::Relaxed));
            }
        }
        self.forms.collect(out);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::registry::forms::{Block, BlockKey, Owner};

    /// Snapshots by name, with the bytes of each.
    struct Snapshots {
        budget: Arc<Budget>,
        kept: Mutex<Vec<(u64, usize)>>,
    }

    impl Snapshots {
        fn new(budget: &Arc<Budget>) -> Arc<Self> {
            let snapshots = Arc::new(Snapshots {
                budget: budget.clone(),
                kept: Mutex::default(),
            });
            let weak: Weak<Self> = Arc::downgrade(&snapshots);
            budget.enter(weak);
            snapshots
        }

        fn size(&self) -> (usize, usize) {
            let kept = self.kept.lock();
            (kept.len(), kept.iter().map(|(_, bytes)| bytes).sum())
        }

        fn change(&self, change: impl FnOnce(&mut Vec<(u64, usize)>)) {
            let before = self.size();
            change(&mut self.kept.lock());
            self.budget.count_snapshots(before, self.size());
        }

        fn keep(&self, name: u64, bytes: usize) {
            self.change(|kept| kept.push((name, bytes)));
        }
    }

    impl Holder for Snapshots {
        fn snapshots(&self) -> Vec<(u64, u64)> {
            let kept = self.kept.lock();
            kept.iter().map(|(name, bytes)| (*bytes as u64, *name)).collect()
        }

        fn evict(&self, name: u64) -> usize {
            let before = self.size().1;
            self.change(|kept| kept.retain(|(other, _)| *other != name));
            before - self.size().1
        }

        fn snapshot_bytes(&self) -> usize {
            self.size().1
        }

        fn event_bytes(&self) -> usize {
            0
        }

        fn halve_events(&self) {}
    }

    #[test]
    fn the_default_budget_is_of_all_resources() {
        const SHARE: usize = limits::PAST_BYTES / limits::PAST_SHARE;
        let budget = Budget::standard();
        let resources: Vec<Arc<Snapshots>> =
            (0..limits::PAST_SHARE).map(|_| Snapshots::new(&budget)).collect();
        for resource in &resources {
            resource.keep(1, SHARE / 2);
            resource.keep(2, SHARE / 2);
        }
        assert!(!budget.is_exceeded());
        budget.reclaim();
        assert_eq!(
            (budget.snapshot_bytes(), budget.evictions()),
            (limits::PAST_BYTES, 0)
        );
        let other = Snapshots::new(&budget);
        other.keep(1, 1);
        assert!(budget.is_exceeded());
        budget.reclaim();
        assert_eq!(budget.evictions(), 1, "one of the largest makes room");
        assert_eq!(budget.snapshot_bytes(), limits::PAST_BYTES - SHARE / 2 + 1);
        assert_eq!(other.size(), (1, 1));
    }

    #[test]
    fn encoded_forms_have_their_budget() {
        let budget = Budget::standard();
        let forms = budget.forms();
        let owner: Owner = Arc::new(String::from("a resource"));
        let form = forms.id(&owner, 1);
        let keep = |name: &str, bytes: usize| {
            let key = BlockKey::new(forms, form, false, [(name, 1)].into_iter());
            let block = Block::new(key.clone(), Bytes::from(vec![0; bytes]), 1, 1, None);
            forms.keep_block(&block);
            forms.block(&key).is_some()
        };
        assert!(keep("a", 1));
        let cost = forms.held() - 1;
        let room = limits::FORM_BYTES - forms.held();
        assert!(!keep("b", room - cost + 1), "a byte past it");
        assert!(keep("b", room - cost));
        assert_eq!(forms.held(), limits::FORM_BYTES);
        assert!(!keep("c", 0));
    }
}
