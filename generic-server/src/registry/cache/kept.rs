//! Snapshots that are kept for a while: the next page of a list, or another exact list, will ask for them.
//!
//! They share their entries with each other and with the newest one. A snapshot is charged with what goes when it goes: the
//! objects that the next newer one, or the newest of all, no longer has. So every object is counted once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use imbl::ordmap::DiffItem;
use parking_lot::{Mutex, MutexGuard};
use storage::Revision;

use super::{Change, Entry, Snapshot};
use crate::registry::budget::Budget;

/// For how long (upstream's compaction interval is what clients are used to).
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The bytes of a snapshot itself.
const BASE: usize = 4096;
/// Nodes of the map that one object of its own makes a snapshot copy, at most; and per object when all of it is its own.
const PATH: usize = 3072;
const NODE: usize = 48;

#[derive(Debug)]
struct State {
    snapshot: Arc<Snapshot>,
    bytes: usize,
    since: Instant,
    asked: Instant,
}

type States = BTreeMap<Revision, State>;

/// The snapshots of one resource.
#[derive(Debug)]
pub(super) struct SnapshotHistory {
    budget: Arc<Budget>,
    states: Mutex<States>,
    /// The newest one's revision; zero when there is none.
    top: AtomicU64,
    /// The bytes that the newest one has come to keep alone since it was last charged.
    growth: AtomicUsize,
    /// The charge of all, growth included.
    bytes: AtomicUsize,
}

impl Drop for SnapshotHistory {
    fn drop(&mut self) {
        let number = self.states.get_mut().len();
        self.budget
            .count_snapshots((number, *self.bytes.get_mut()), (0, 0));
    }
}

impl SnapshotHistory {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        SnapshotHistory {
            budget,
            states: Mutex::default(),
            top: AtomicU64::new(0),
            growth: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The charge of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether they take more than one resource may have.
    pub(super) fn is_exceeded(&self) -> bool {
        self.bytes() > self.budget.share()
    }

    /// The snapshot of a revision.
    pub(super) fn get(&self, revision: Revision) -> Option<Arc<Snapshot>> {
        let mut states = self.states.lock();
        let state = states.get_mut(&revision)?;
        state.asked = Instant::now();
        Some(state.snapshot.clone())
    }

    /// The neighbours of a revision, the older and the newer one.
    pub(super) fn around(&self, revision: Revision) -> (Option<Arc<Snapshot>>, Option<Arc<Snapshot>>) {
        let states = self.states.lock();
        let older = states.range(..revision).next_back();
        let newer = states.range(revision..).next();
        let of = |state: (&Revision, &State)| state.1.snapshot.clone();
        (older.map(of), newer.map(of))
    }

    /// Keeps a snapshot, unless it takes more than all of them may. `newest` is the cache's newest one.
    pub(super) fn insert(&self, snapshot: &Arc<Snapshot>, newest: &ArcSwap<Snapshot>) {
        let now = Instant::now();
        let mut states = self.states.lock();
        if let Some(known) = states.get_mut(&snapshot.revision) {
            known.asked = now;
            return;
        }
        let number = states.len();
        let state = State {
            snapshot: snapshot.clone(),
            bytes: 0,
            since: now,
            asked: now,
        };
        states.insert(snapshot.revision, state);
        let older = states
            .range(..snapshot.revision)
            .next_back()
            .map(|(revision, _)| *revision);
        self.charge(&mut states, [Some(snapshot.revision), older], newest);
        let taken = states.get(&snapshot.revision).map(|state| state.bytes);
        if taken.is_some_and(|bytes| bytes > self.budget.share()) {
            states.remove(&snapshot.revision);
            self.charge(&mut states, [older, None], newest);
        }
        self.recount(&states, number);
    }

    /// Lets go of the snapshot of a revision; gives the bytes that came free.
    pub(super) fn remove(&self, revision: Revision, newest: &ArcSwap<Snapshot>) -> usize {
        let mut states = self.states.lock();
        let (number, before) = (states.len(), self.bytes());
        if states.remove(&revision).is_none() {
            return 0;
        }
        let older = states
            .range(..revision)
            .next_back()
            .map(|(revision, _)| *revision);
        self.charge(&mut states, [older, None], newest);
        self.recount(&states, number);
        before.saturating_sub(self.bytes())
    }

    /// Lets go of all that are too old; true when there are others.
    pub(super) fn sweep(&self, newest: &ArcSwap<Snapshot>) -> bool {
        let now = Instant::now();
        let mut states = self.states.lock();
        let number = states.len();
        states.retain(|_, state| now.duration_since(state.since) <= KEPT_FOR);
        if states.len() < number {
            let all: Vec<Revision> = states.keys().copied().collect();
            for revision in all {
                self.charge(&mut states, [Some(revision), None], newest);
            }
            self.recount(&states, number);
        }
        !states.is_empty()
    }

    /// The newest state has been read again: the parts that the newest kept snapshot shares with it have to be recomputed.
    pub(super) fn rebase(&self, newest: &ArcSwap<Snapshot>) {
        let mut states = self.states.lock();
        let top = states.keys().next_back().copied();
        self.charge(&mut states, [top, None], newest);
        self.recount(&states, states.len());
    }

    /// The newest state has changed: entries that it no longer has are held by the newest kept snapshot alone. Called after
    /// it has been swapped.
    pub(super) fn replaced(&self, changes: &[Arc<Change>]) {
        // Either `charge` sees the newer state, or this sees its snapshot.
        fence(Ordering::SeqCst);
        let top = self.top.load(Ordering::SeqCst);
        if top == 0 {
            return;
        }
        let cost = |change: &Arc<Change>| {
            let previous = change.previous.as_ref().filter(|p| p.revision.0 <= top);
            PATH + previous.map_or(0, |previous| previous.weight())
        };
        let bytes = changes.iter().map(cost).sum();
        self.growth.fetch_add(bytes, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.count_snapshots((0, 0), (0, bytes));
    }

    /// Each with what would be gained by letting go of it: bytes, by the seconds since it was asked for.
    pub(super) fn gains(&self, newest: &ArcSwap<Snapshot>) -> Vec<(u64, u64)> {
        let now = Instant::now();
        let mut states = self.states.lock();
        // Growth is an estimate, and what many changes do to one object counts once.
        let top = states.keys().next_back().copied();
        self.charge(&mut states, [top, None], newest);
        self.recount(&states, states.len());
        let gain = |(revision, state): (&Revision, &State)| {
            let seconds = now.duration_since(state.asked).as_secs().max(1);
            let bytes = u64::try_from(state.bytes).unwrap_or(u64::MAX);
            (bytes.saturating_mul(seconds), revision.0)
        };
        states.iter().map(gain).collect()
    }

    /// Recomputes what each snapshot is charged with.
    fn charge(
        &self,
        states: &mut MutexGuard<'_, States>,
        which: [Option<Revision>; 2],
        newest: &ArcSwap<Snapshot>,
    ) {
        let before = self.top.load(Ordering::SeqCst);
        let top = states.keys().next_back().map_or(0, |revision| revision.0);
        // The growth since then belongs to the snapshot that was the newest, and is counted again where that one is charged.
        let grown = self.growth.swap(0, Ordering::Relaxed);
        if let Some(state) = states.get_mut(&Revision(before)) {
            state.bytes += grown;
        }
        self.top.store(top, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for revision in which.into_iter().flatten() {
            let newer = states
                .range(revision..)
                .nth(1)
                .map(|(_, state)| state.snapshot.clone());
            let newer = newer.unwrap_or_else(|| newest.load_full());
            if let Some(state) = states.get_mut(&revision) {
                state.bytes = cost(&state.snapshot, &newer);
            }
        }
    }

    /// The sum has changed; there were `number` before.
    fn recount(&self, states: &States, number: usize) {
        let charged: usize = states.values().map(|state| state.bytes).sum();
        let bytes = charged + self.growth.load(Ordering::Relaxed);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        self.budget
            .count_snapshots((number, before), (states.len(), bytes));
    }

    #[cfg(test)]
    pub(super) fn clear(&self) {
        let mut states = self.states.lock();
        let number = states.len();
        states.clear();
        self.top.store(0, Ordering::SeqCst);
        self.growth.store(0, Ordering::Relaxed);
        self.recount(&states, number);
    }

    #[cfg(test)]
    pub(super) fn revisions(&self) -> Vec<Revision> {
        self.states.lock().keys().copied().collect()
    }
}

/// The bytes that are freed when `snapshot` is dropped and the next newer one stays. The comparison passes over the
/// parts that both share.
fn cost(snapshot: &Snapshot, newer: &Snapshot) -> usize {
    let (mut own, mut differences) = (0, 0usize);
    for difference in snapshot.objects.diff(&newer.objects) {
        differences += 1;
        let gone: Option<&Arc<Entry>> = match difference {
            DiffItem::Add(..) => None,
            DiffItem::Update { old: (_, entry), .. } | DiffItem::Remove(_, entry) => Some(entry),
        };
        own += gone.map_or(0, |entry| entry.weight());
    }
    BASE + own + (differences * PATH).min(snapshot.objects.len() * NODE)
}
