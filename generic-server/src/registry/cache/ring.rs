//! The recent events of a resource, numbered without gaps. Watchers read them by number, as slowly as they like.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockWriteGuard};
use storage::Revision;

use super::Change;
use crate::registry::budget::Budget;

/// Events are kept up to this many, and this many bytes of states that nothing else keeps...
const MAX_EVENTS: usize = 100_000;
const MOST_BYTES: usize = 16 << 20;
/// ...and old ones only while there are few: a later reader is served from the engine's log. (Upstream's age.)
const FEW: usize = 1_000;
const FEW_BYTES: usize = 1 << 20;
pub(super) const YOUNG: Duration = Duration::from_secs(75);
/// Only the newest events keep their encoded frames, up to this many and of objects of about this many bytes, but at least a few:
/// a watcher further behind encodes again.
const FRAMED: u64 = 512;
const FRAMED_BYTES: usize = 4 << 20;
const FRAMED_LEAST: u64 = 16;
/// Numbers begin high, so that older events can be put in front.
const FIRST: u64 = 1 << 40;

#[derive(Debug)]
struct Slot {
    at: Instant,
    change: Arc<Change>,
    weight: usize,
}

#[derive(Debug)]
struct State {
    /// Rises when the cache restarts: positions of an earlier life are void.
    life: u64,
    /// Nothing will follow: readers end when they have read all.
    closed: bool,
    slots: VecDeque<Slot>,
    /// The number of the first slot.
    start: u64,
    /// Every event after this revision is in the slots.
    after: Revision,
    /// The previous objects of events after this revision are those that the cache held, so that the events can be undone.
    sound_after: Revision,
    bytes: usize,
    /// The number of the first event that keeps its frames, and the bytes of the objects from there on.
    framed: u64,
    framed_bytes: usize,
    limits: Limits,
}

impl Default for State {
    fn default() -> Self {
        State {
            life: 0,
            closed: false,
            slots: VecDeque::new(),
            start: FIRST,
            after: Revision(0),
            sound_after: Revision(0),
            bytes: 0,
            framed: FIRST,
            framed_bytes: 0,
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    count: usize,
    bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            count: MAX_EVENTS,
            bytes: MOST_BYTES,
        }
    }
}

/// The ring. Reads share its lock; the one writer holds it for the push of a batch only.
#[derive(Debug)]
pub(super) struct Ring {
    state: RwLock<State>,
    budget: Arc<Budget>,
}

/// The state, locked for a change. Its size is charged to the budget on drop.
struct Changing<'r> {
    state: RwLockWriteGuard<'r, State>,
    budget: &'r Budget,
    before: usize,
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.budget.count_events(self.before, self.state.bytes);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.budget.count_events(self.state.get_mut().bytes, 0);
    }
}

/// Where a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) life: u64,
    /// The number of the next event.
    pub(super) next: u64,
}

/// The reader's position is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overrun {
    /// It was too slow.
    Slow,
    /// The cache has restarted or ends.
    Over,
}

/// The ring does not reach back far enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    /// The ring's first event.
    pub(super) first: Position,
    /// Every event after this revision is in the ring.
    pub(super) after: Revision,
}

impl State {
    fn pop(&mut self) -> Option<Revision> {
        let slot = self.slots.pop_front()?;
        self.bytes -= slot.weight;
        if self.framed == self.start {
            self.framed += 1;
            self.framed_bytes -= slot.change.entry.json.len();
        }
        self.start += 1;
        Some(slot.change.revision)
    }

    fn end(&self) -> u64 {
        self.start + self.slots.len() as u64
    }

    /// Lets go of frames that few will ask for.
    fn trim_frames(&mut self) {
        loop {
            let framed = self.end() - self.framed;
            if framed <= FRAMED && (framed <= FRAMED_LEAST || self.framed_bytes <= FRAMED_BYTES) {
                return;
            }
            let at = usize::try_from(self.framed - self.start).unwrap_or(usize::MAX);
            let Some(slot) = self.slots.get(at) else { return };
            slot.change.forget_frames();
            self.framed_bytes -= slot.change.entry.json.len();
            self.framed += 1;
        }
    }

    /// Old events are only kept while there are few.
    fn is_long(&self) -> bool {
        self.slots.len() > FEW || (self.bytes > FEW_BYTES && self.slots.len() > 1)
    }

    /// Lets go of what is too much or too old.
    fn trim(&mut self, now: Instant) {
        let too_much = |state: &State| {
            let old = state
                .slots
                .front()
                .is_some_and(|s| now.duration_since(s.at) > YOUNG);
            state.slots.len() > state.limits.count
                || (state.bytes > state.limits.bytes && state.slots.len() > 1)
                || (old && state.is_long())
        };
        while too_much(self) {
            let Some(revision) = self.pop() else { break };
            self.let_go(revision);
        }
        self.end_revision();
    }

    /// Events up to this revision are no longer there.
    fn let_go(&mut self, revision: Revision) {
        self.after = revision;
        self.sound_after = self.sound_after.max(revision);
    }

    /// A revision's events are complete or missing as a whole.
    fn end_revision(&mut self) {
        while self
            .slots
            .front()
            .is_some_and(|s| s.change.revision == self.after)
        {
            self.pop();
        }
    }
}

impl Ring {
    /// An empty ring, whose bytes are counted.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        let limits = Limits {
            bytes: MOST_BYTES.min(budget.event_share()),
            ..Limits::default()
        };
        Ring {
            state: RwLock::new(State {
                limits,
                ..State::default()
            }),
            budget,
        }
    }

    fn change(&self) -> Changing<'_> {
        let state = self.state.write();
        let before = state.bytes;
        Changing {
            state,
            budget: &self.budget,
            before,
        }
    }

    /// All changes after one revision up to another, when they are there and can be undone. Every event up to `to` has been pushed.
    pub(super) fn between(&self, after: Revision, to: Revision) -> Option<Vec<Arc<Change>>> {
        let state = self.state.read();
        if after < state.after.max(state.sound_after) {
            return None;
        }
        let from = state.slots.partition_point(|slot| slot.change.revision <= after);
        let changes = state.slots.range(from..).map(|slot| &slot.change);
        Some(
            changes
                .take_while(|change| change.revision <= to)
                .cloned()
                .collect(),
        )
    }

    /// A change at this revision has no event: earlier states cannot be rebuilt from later ones.
    pub(super) fn unsound(&self, revision: Revision) {
        let mut state = self.change();
        state.sound_after = state.sound_after.max(revision);
    }

    /// Lets go of the older half, and at least of one revision.
    pub(super) fn halve(&self) {
        let mut state = self.change();
        let wanted = state.bytes / 2;
        while state.bytes > wanted {
            let Some(revision) = state.pop() else { break };
            state.let_go(revision);
        }
        state.end_revision();
    }

    /// Bytes that it keeps.
    pub(super) fn bytes(&self) -> usize {
        self.state.read().bytes
    }

    /// Where a reader begins that has seen everything up to `revision`.
    pub(super) fn seek(&self, revision: Revision) -> Result<Position, Gap> {
        let state = self.state.read();
        let position = |next| Position {
            life: state.life,
            next,
        };
        if revision < state.after {
            return Err(Gap {
                first: position(state.start),
                after: state.after,
            });
        }
        let skip = state
            .slots
            .partition_point(|slot| slot.change.revision <= revision);
        Ok(position(state.start + skip as u64))
    }

    /// Appends; gives the number of the first.
    pub(super) fn push(&self, changes: &[Arc<Change>]) -> u64 {
        let at = Instant::now();
        let mut state = self.change();
        let first = state.end();
        for change in changes {
            let weight = change.weight();
            state.bytes += weight;
            state.framed_bytes += change.entry.json.len();
            state.slots.push_back(Slot {
                at,
                change: change.clone(),
                weight,
            });
        }
        state.trim_frames();
        state.trim(at);
        first
    }

    /// Puts the events that fill a gap in front of the others, so that the next reader finds them here. False when the ring has
    /// moved on meanwhile or has no room.
    pub(super) fn fill(&self, gap: Gap, after: Revision, changes: &VecDeque<Arc<Change>>) -> bool {
        let at = Instant::now();
        let mut state = self.change();
        let weight: usize = changes.iter().map(|c| c.weight_alone()).sum();
        let room = state.slots.len() + changes.len() <= state.limits.count / 2
            && state.bytes + weight <= state.limits.bytes / 2;
        let moved = state.life != gap.first.life || state.start != gap.first.next || state.after != gap.after;
        if moved || !room {
            return false;
        }
        for change in changes.iter().rev() {
            change.forget_frames();
            state.slots.push_front(Slot {
                at,
                change: change.clone(),
                weight: change.weight_alone(),
            });
        }
        state.start -= changes.len() as u64;
        state.bytes += weight;
        state.after = after;
        true
    }

    /// Lets go of what has become too old; true when there may be more to let go of later.
    pub(super) fn sweep(&self) -> bool {
        let mut state = self.change();
        state.trim(Instant::now());
        let (used, held) = (state.slots.len(), state.slots.capacity());
        if held > 4 * used.max(64) {
            state.slots.shrink_to(used);
        }
        state.is_long()
    }

    /// Whether a sweep would have something to do some time.
    pub(super) fn is_long(&self) -> bool {
        self.state.read().is_long()
    }

    /// Nothing will follow.
    pub(super) fn close(&self) {
        self.change().closed = true;
    }

    /// Copies up to `limit` events from a position on into `out`, those that `wanted` takes; moves the position. True when the
    /// end was reached and more may come.
    pub(super) fn read(
        &self,
        position: &mut Position,
        limit: usize,
        mut wanted: impl FnMut(&Change) -> bool,
        out: &mut Vec<Arc<Change>>,
    ) -> Result<bool, Overrun> {
        let state = self.state.read();
        if position.life != state.life {
            return Err(Overrun::Over);
        }
        let skip = position.next.checked_sub(state.start).ok_or(Overrun::Slow)?;
        let skip = usize::try_from(skip).map_err(|_| Overrun::Over)?;
        // Bounds the time under the lock, however few events pass the filter.
        let batch = state.slots.range(skip.min(state.slots.len())..).take(limit);
        let mut seen = 0;
        for slot in batch {
            seen += 1;
            if wanted(&slot.change) {
                out.push(slot.change.clone());
            }
        }
        if seen == 0 && state.closed {
            return Err(Overrun::Over);
        }
        position.next += seen;
        // At the end of a closed ring the next read returns the overrun.
        Ok(!state.closed && position.next >= state.end())
    }

    /// Empties it: every event after `revision` will follow.
    pub(super) fn reset(&self, revision: Revision) {
        let mut state = self.change();
        let end = state.end();
        *state.state = State {
            life: state.life + 1,
            start: end,
            framed: end,
            after: revision,
            sound_after: revision,
            limits: state.limits,
            ..State::default()
        };
    }

    /// How many events there are, their bytes, and how many of them keep frames.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize, u64) {
        let state = self.state.read();
        (state.slots.len(), state.bytes, state.end() - state.framed)
    }

    /// A sweep some time from now.
    #[cfg(test)]
    pub(super) fn age(&self, by: Duration) {
        self.change().trim(Instant::now() + by);
    }

    /// Lets go of everything up to a revision.
    #[cfg(test)]
    pub(super) fn forget(&self, revision: Revision) {
        let mut state = self.change();
        while state
            .slots
            .front()
            .is_some_and(|slot| slot.change.revision <= revision)
        {
            state.pop();
        }
        let after = state.after.max(revision);
        state.let_go(after);
    }

    #[cfg(test)]
    pub(super) fn limit(&self, count: usize) {
        self.change().limits.count = count;
    }
}
