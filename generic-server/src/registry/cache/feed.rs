//! A watcher's view of the events: pulled by position, without a queue of its own.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use machinery::ApiError;
use parking_lot::Mutex;
use storage::{Event, Revision, StorageError, WatchSink};
use tokio::sync::Notify;

use super::interest::Bell;
use super::ring::{Gap, Overrun, Position};
use super::{Change, Interest, ObjectCache};

/// Events taken per look at the ring.
const BATCH: usize = 256;
/// The most that is read back from the engine's log for one watcher.
const REPLAY_MOST: usize = 100_000;
const REPLAY_BYTES: usize = 64 << 20;
/// How long an engine may take to hand out its past.
const REPLAY_PATIENCE: Duration = Duration::from_secs(10);

/// The feed is over: the watcher was too slow, or the cache has restarted. It has to list again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedEnd;

impl From<Overrun> for FeedEnd {
    fn from(_: Overrun) -> Self {
        FeedEnd
    }
}

/// Every event after a revision, in order, each once, of those that the interest covers.
pub struct Feed {
    cache: Arc<ObjectCache>,
    interest: Interest,
    id: u64,
    bell: Arc<Bell>,
    position: Position,
    /// Events up to this revision have been seen.
    after: Revision,
    /// The last event that was handed out is of this revision; there may be more of it.
    last: Revision,
    /// There may be more in the ring from the position on.
    behind: bool,
    /// Events from the engine's log that the ring no longer has.
    past: VecDeque<Arc<Change>>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("cache", &self.cache)
            .field("interest", &self.interest)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.cache.interests.remove(&self.interest, self.id);
    }
}

impl ObjectCache {
    /// Every event after `after`, at once when the ring still has them, else from the engine's log. 410 when they are gone.
    pub async fn feed(self: &Arc<Self>, after: Revision, interest: Interest) -> Result<Feed, ApiError> {
        // The bell hangs before the position is taken: an event in between rings it in vain, none is missed.
        let (id, bell) = self.interests.hang(&interest);
        let mut feed = Feed {
            cache: self.clone(),
            interest,
            id,
            bell,
            position: Position { life: 0, next: 0 },
            after,
            last: after,
            behind: true,
            past: VecDeque::new(),
        };
        match self.ring.seek(after) {
            Ok(position) => feed.position = position,
            Err(gap) => {
                let past = self.replay(after, gap).await?;
                if self.ring.fill(gap, after, &past)
                    && let Ok(position) = self.ring.seek(after)
                {
                    feed.position = position;
                } else {
                    feed.position = gap.first;
                    feed.past = past;
                }
                self.schedule_sweep();
            }
        }
        Ok(feed)
    }

    /// The events after `after` that the ring no longer has, from the engine.
    async fn replay(&self, after: Revision, gap: Gap) -> Result<VecDeque<Arc<Change>>, ApiError> {
        let expired = || ApiError::expired(format!("too old resource version: {after} ({})", gap.after));
        let sink = Arc::new(Replay::default());
        let watch = self.engine.watch(&self.watch_prefix(), after, sink.clone()).await;
        let _handle = match watch {
            Ok(handle) => handle,
            Err(StorageError::Compacted { .. }) => return Err(expired()),
            Err(error) => return Err(self.failure(&error)),
        };
        // In-process engines have delivered by now; others say how far they are.
        if self.engine.published().is_none() {
            let reached = sink.wait_for(gap.after);
            if tokio::time::timeout(REPLAY_PATIENCE, reached).await.is_err() {
                return Err(expired());
            }
        }
        let state = std::mem::take(&mut *sink.state.lock());
        if state.failed {
            return Err(expired());
        }
        let mut past = VecDeque::new();
        for event in state.events.iter().filter(|e| e.kv.mod_revision <= gap.after) {
            for value in [Some(&event.kv), event.prev.as_ref()].into_iter().flatten() {
                self.codec.prepare(&value.value).await;
            }
            match self.change(event, None) {
                Ok(Some(change)) => past.push_back(change),
                // The history is incomplete.
                Ok(None) | Err(_) => return Err(expired()),
            }
        }
        Ok(past)
    }
}

impl Feed {
    /// Everything up to this revision has been handed out, when the last poll found nothing more.
    pub fn after(&self) -> Revision {
        self.after
    }

    /// Appends events to `out`. Ready when there is at least one, or when the feed is over.
    pub fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Arc<Change>>) -> Poll<Result<(), FeedEnd>> {
        self.bell.register(cx.waker());
        if self.take(out)? {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Like [`Feed::poll`], as a future. Cancel-safe: nothing is taken before it is ready.
    pub async fn next(&mut self, out: &mut Vec<Arc<Change>>) -> Result<(), FeedEnd> {
        std::future::poll_fn(|cx| self.poll(cx, out)).await
    }

    /// Everything that is there now, for a bookmark: gives the revision that the watcher has then seen everything up to.
    pub fn drain(&mut self, out: &mut Vec<Arc<Change>>) -> Result<Revision, FeedEnd> {
        // Read first: events may come while draining, the bookmark must not cover more than was drained.
        let current = self.cache.current();
        while self.take(out)? {}
        Ok(current.max(self.after))
    }

    /// Takes what is there; false when there was nothing.
    fn take(&mut self, out: &mut Vec<Arc<Change>>) -> Result<bool, FeedEnd> {
        let before = out.len();
        if !self.past.is_empty() {
            let most = self.past.len().min(BATCH);
            for change in self.past.drain(..most) {
                self.after = change.revision;
                if concerns(&self.interest, &change) {
                    out.push(change);
                }
            }
            return Ok(out.len() > before || self.take(out)?);
        }
        loop {
            if let Some(first) = self.bell.take() {
                // While nothing rang no event concerned this feed: the slots in between are skipped unread.
                if !self.behind {
                    self.position.next = self.position.next.max(first);
                }
                self.behind = true;
            }
            if !self.behind {
                return Ok(false);
            }
            let after = self.after;
            let interest = &self.interest;
            let wanted = |change: &Change| change.revision > after && concerns(interest, change);
            let read = self.cache.ring.read(&mut self.position, BATCH, wanted, out);
            if let Err(Overrun::Slow) = read {
                self.cache.figures.terminated();
            }
            let end = read?;
            self.behind = !end;
            if let Some(last) = out[before..].last() {
                self.last = last.revision;
            }
            // A batch may end within a revision, of which the position remembers the rest; the ring ends with a whole one.
            let done = match end {
                true => self.last,
                false => Revision(self.last.0.saturating_sub(1)),
            };
            self.after = self.after.max(done);
            if out.len() > before {
                return Ok(true);
            }
        }
    }
}

fn concerns(interest: &Interest, change: &Change) -> bool {
    let entry = &change.entry;
    match interest {
        Interest::All => true,
        Interest::Namespace(namespace) => entry.namespace() == &**namespace,
        Interest::Key(key) => *entry.key == **key,
        Interest::Field(index, value) => {
            entry.field(*index) == &**value
                || change
                    .previous
                    .as_ref()
                    .is_some_and(|p| p.field(*index) == &**value)
        }
    }
}

/// Collects the past.
#[derive(Default)]
struct Replay {
    state: Mutex<ReplayState>,
    moved: Notify,
}

#[derive(Default)]
struct ReplayState {
    events: Vec<Event>,
    bytes: usize,
    reached: Revision,
    failed: bool,
}

impl Replay {
    async fn wait_for(&self, revision: Revision) {
        loop {
            let moved = self.moved.notified();
            {
                let state = self.state.lock();
                if state.failed || state.reached >= revision {
                    return;
                }
            }
            moved.await;
        }
    }
}

impl WatchSink for Replay {
    fn events(&self, revision: Revision, events: &[Event]) {
        let mut state = self.state.lock();
        if !state.failed {
            state.bytes += events.iter().map(|e| e.kv.value.len() + 256).sum::<usize>();
            state.events.extend_from_slice(events);
            if state.bytes > REPLAY_BYTES || state.events.len() > REPLAY_MOST {
                state.failed = true;
                state.events = Vec::new();
            }
        }
        state.reached = revision;
        drop(state);
        self.moved.notify_waiters();
    }

    fn progress(&self, revision: Revision) {
        self.state.lock().reached = revision;
        self.moved.notify_waiters();
    }

    fn closed(&self, _error: StorageError) {
        self.state.lock().failed = true;
        self.moved.notify_waiters();
    }
}
