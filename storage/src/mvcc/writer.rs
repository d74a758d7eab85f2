//! The thread that owns the store: group commit, revisions, expiry, compaction.
//!
//! A round takes all waiting requests, plans them one after the other on the index plus what this round has planned so
//! far, writes one durable batch, and only then changes the index, notifies the watches and answers. So no reader ever
//! sees a write that might still be lost, and the answer to a conflict never leaks a write that is not durable yet.

mod book;
mod failure;
mod plan;
mod space;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;

pub(super) use self::book::{Bookkeeping, begin_at, drop_lost, load, make_settings};
use self::book::{Garbage, LOAD_SAMPLE_MS};
use self::plan::{Change, Plan, event, put_change};
use self::space::Space;
use super::Shared;
use super::close::close_kv;
use super::index::{Index, Pin};
use super::kv::{Map, Write};
use super::queue::shut_down;
use super::record;
use crate::directory::Directory;
use crate::{CompactionInfo, Op, OpenOptions, Outcome, Revision, StorageError, Txn};

/// Superseded changes removed in a round that is about nothing else.
const SWEEP: usize = 2048;
/// Writes have paused when none came for this long.
const MARK_CLEAN_AFTER: Duration = Duration::from_millis(250);
/// How often history is looked at, at most, when there is twice as much as may be.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);
/// Expired keys deleted in one round.
const EXPIRE: usize = 1024;
/// The interval of warnings that there is more history than may be kept.
const WARN_CUT_EVERY: Duration = Duration::from_secs(600);

type Reply<T> = oneshot::Sender<Result<T, StorageError>>;

#[derive(Debug)]
pub(super) enum Request {
    Commit {
        txn: Txn,
        reply: Reply<Outcome>,
    },
    Compact {
        revision: u64,
        reply: Reply<CompactionInfo>,
    },
    Freeze {
        reply: Reply<Taken>,
    },
    Reset {
        to: Arc<dyn Past>,
        reply: Reply<Outcome>,
    },
}

/// The state between two rounds.
#[derive(Debug)]
pub(super) struct Taken {
    /// `None` when the log has to be copied.
    pub(super) kv: Option<Map>,
    pub(super) index: Index,
    pub(super) book: Bookkeeping,
    /// Keeps the records of the index until they are copied.
    pub(super) pin: Pin,
}

/// A state that the store can be put back to.
pub(super) trait Past: std::fmt::Debug + Send + Sync {
    /// What a key is, and when it ends, if it does. `None` when it is not there.
    fn at(&self, key: &str) -> Result<Option<(Bytes, Option<u64>)>, StorageError>;

    /// The keys that may not be as they are in `now`, in order. Costs as much as there are changes.
    fn changed(&self, now: &Index) -> Vec<Arc<str>>;
}

/// An answer that waits for the batch to be durable.
#[derive(Debug)]
enum Answer {
    Commit(Reply<Outcome>, Result<Outcome, StorageError>),
    Compact(Reply<CompactionInfo>),
}

#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    book: Bookkeeping,
    directory: Option<Directory>,
    options: OpenOptions,
    /// Something was written since the store was last marked clean, at this moment.
    dirty_since: Option<Instant>,
    next_compaction: Instant,
    /// When the last warning was logged that history is shorter than the retention.
    warned_cut: Option<Instant>,
    space: Space,
    /// There was no room for a batch: expiry and sweeping wait until then.
    rests_until: Option<Instant>,
    /// The oldest readable revision has been raised and that is not on disk yet.
    oldest_unwritten: bool,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        book: Bookkeeping,
        directory: Option<Directory>,
        options: OpenOptions,
    ) -> Writer {
        let next_compaction = Instant::now() + compaction_interval(&options);
        Writer {
            shared,
            book,
            directory,
            options,
            dirty_since: None,
            next_compaction,
            warned_cut: None,
            space: Space::default(),
            rests_until: None,
            oldest_unwritten: false,
        }
    }

    /// Whether background writes have to wait for space.
    fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        while let Some(group) = shared.queue.take(self.wake_at()) {
            self.round(group);
        }
    }

    fn has_failed(&self) -> bool {
        self.shared.failed.lock().is_some()
    }

    /// Up to which revision the log may be cleaned now.
    fn sweep_limit(&self) -> u64 {
        let oldest = self.shared.index.read().oldest;
        self.shared.pins.oldest().map_or(oldest, |pin| pin.min(oldest))
    }

    /// When background work is due.
    fn wake_at(&self) -> Option<Instant> {
        if self.has_failed() {
            return None;
        }
        let now = Instant::now();
        if self.rests() {
            return self.rests_until;
        }
        if self
            .book
            .garbage
            .front()
            .is_some_and(|first| first.since <= self.sweep_limit())
        {
            return Some(now);
        }
        let expiry = self.book.expiries.get_min().map(|(at_ms, _)| {
            // One millisecond more, since the clock is read in whole ones and keys never end early.
            now + Duration::from_millis(
                at_ms
                    .saturating_sub(self.book.clock.now_ms())
                    .saturating_add(1)
                    .min(60_000),
            )
        });
        let compaction = (!self.book.garbage.is_empty()).then_some(self.next_compaction);
        let clean = self.dirty_since.map(|written| written + MARK_CLEAN_AFTER);
        [expiry, compaction, clean].into_iter().flatten().min()
    }

    fn round(&mut self, group: Vec<Request>) {
        let shared = self.shared.clone();
        let now_ms = self.book.clock.now_ms();
        let mut answers = Vec::with_capacity(group.len());
        let mut freezes = Vec::new();
        let failed = shared.failed.lock().clone();
        let rests = self.rests();
        let no_space = self.space.refusal(shared.kv.read().as_deref(), &self.options);
        let mut compact_to = match rests {
            true => None,
            false => self.due_compaction(now_ms, no_space.is_some()),
        };

        let index = shared.index.read();
        let mut plan = Plan::new(&shared, &index, now_ms);
        if failed.is_none() && !rests {
            for (_, key) in self
                .book
                .expiries
                .iter()
                .take_while(|(at, _)| *at < now_ms)
                .take(EXPIRE)
            {
                let expired = Txn {
                    guards: Vec::new(),
                    ops: vec![Op::Delete {
                        key: key.as_ref().to_owned(),
                    }],
                };
                // Neither guards nor reads: it cannot fail.
                let _ = plan.txn(expired);
            }
        }
        for request in group {
            match request {
                Request::Commit { txn, reply } => {
                    let puts = txn.ops.iter().any(|op| matches!(op, Op::Put { .. }));
                    let result = match (&failed, &no_space) {
                        (Some(message), _) => Err(unavailable(message)),
                        (None, Some(why)) if puts => Err(StorageError::NoSpace(why.clone())),
                        _ => plan.txn(txn),
                    };
                    answers.push(Answer::Commit(reply, result));
                }
                Request::Compact { revision, reply } => {
                    if revision > index.revision {
                        let error = StorageError::FutureRevision {
                            asked: Revision(revision),
                            newest: Revision(index.revision),
                        };
                        // The caller may have gone.
                        let _ = reply.send(Err(error));
                    } else {
                        compact_to = compact_to.max(Some(revision));
                        answers.push(Answer::Compact(reply));
                    }
                }
                Request::Reset { to, reply } => {
                    let result = match (&failed, &no_space) {
                        (Some(message), _) => Err(unavailable(message)),
                        (None, Some(why)) => Err(StorageError::NoSpace(why.clone())),
                        _ => plan.reset(&*to, &self.book),
                    };
                    answers.push(Answer::Commit(reply, result));
                }
                Request::Freeze { reply } => freezes.push(reply),
            }
        }
        let Plan {
            changes, revision, ..
        } = plan;
        let oldest = index.oldest;
        drop(index);

        if failed.is_none() {
            let compact_to = compact_to.filter(|to| *to > oldest);
            self.persist(changes, revision, compact_to, now_ms, &mut answers);
        }
        self.answer(answers);
        for reply in freezes {
            // The caller may have gone.
            let _ = reply.send(self.take());
        }
    }

    /// Makes the round durable, then visible. On failure turns the answers into errors and stops the store.
    fn persist(
        &mut self,
        changes: Vec<Change>,
        revision: u64,
        compact_to: Option<u64>,
        now_ms: u64,
        answers: &mut [Answer],
    ) {
        let shared = self.shared.clone();
        let mut batch = Vec::with_capacity(changes.len() * 2);
        for change in &changes {
            put_change(&mut batch, change, now_ms, shared.chunk_len);
        }
        if let Some(to) = compact_to {
            // Refused from now on, so that no reader starts on records that this batch removes.
            shared.index.write().oldest = to;
            self.oldest_unwritten = true;
        }
        let rests = self.rests();
        if self.oldest_unwritten && !rests {
            let oldest = shared.index.read().oldest;
            batch.push(record::put_u64(record::META_OLDEST, oldest));
        }
        let swept = self.sweep(match (rests, changes.is_empty()) {
            (true, _) => 0,
            (false, true) => SWEEP,
            (false, false) => 256 + 4 * changes.len(),
        });
        for garbage in &swept {
            record::delete_record(&mut batch, garbage.at, garbage.len, shared.chunk_len);
        }
        if batch.is_empty() {
            self.mark_clean();
            return;
        }
        let makes_room = changes.iter().all(|change| change.value.is_none());
        match self.apply(&batch) {
            Ok(()) => {}
            Err(StorageError::NoSpace(why)) => match self.retry_after_no_space(&batch, makes_room) {
                Ok(true) => {}
                Ok(false) => {
                    self.put_off(swept, why, answers);
                    return;
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the store cannot be reopened"
                    );
                    self.fail(StorageError::NoSpace(why), answers);
                    return;
                }
            },
            Err(error) => {
                self.fail(error, answers);
                return;
            }
        }
        self.oldest_unwritten &= rests;
        self.space
            .freed(swept.iter().map(|garbage| u64::from(garbage.len)).sum());
        self.dirty_since = Some(Instant::now());
        self.book.records = (self.book.records + changes.len() as u64).saturating_sub(swept.len() as u64);
        for garbage in &swept {
            shared.damaged.forget(Revision(garbage.at.rev), garbage.at.seq);
        }
        if changes.is_empty() {
            let mut index = shared.index.write();
            swept
                .iter()
                .for_each(|garbage| index.forget(&garbage.key, garbage.at.rev));
            return;
        }
        if let Some(directory) = &mut self.directory {
            directory.advanced(revision);
        }
        self.publish(&changes, revision, &swept);
        let interval = u64::try_from(sample_interval(&self.options).as_millis()).unwrap_or(u64::MAX);
        self.book.sample_time(now_ms, revision, interval);
    }

    /// Changes the index and notifies the watches, in one step as far as watches being registered can see.
    fn publish(&mut self, changes: &[Change], revision: u64, swept: &[Garbage]) {
        let shared = &self.shared;
        let mut hub = shared.hub.lock();
        {
            let mut index = shared.index.write();
            for change in changes {
                let before = index.apply(&change.key, change.version);
                self.book
                    .record(&change.key, change.version, before, change.expires_ms);
            }
            swept
                .iter()
                .for_each(|garbage| index.forget(&garbage.key, garbage.at.rev));
            index.revision = revision;
        }
        let keys: Vec<Arc<str>> = changes.iter().map(|change| change.key.clone()).collect();
        let kv = shared.kv.read();
        let overwrites = changes.iter().any(|change| change.prev.is_some());
        let reader = kv.as_ref().filter(|_| overwrites).and_then(|kv| kv.reader().ok());
        hub.publish(Revision(revision), &keys, |index| {
            event(shared, reader.as_deref(), &changes[index])
        });
        shared.published.store(revision, Ordering::Release);
    }

    fn apply(&mut self, batch: &[Write]) -> Result<(), StorageError> {
        for write in batch {
            if let Write::Put(_, value) = write {
                self.space.written += value.len() as u64;
            }
        }
        self.shared.kv.read().as_ref().ok_or_else(shut_down)?.apply(batch)
    }

    /// Writes have paused: leaves the store so that it opens quickly should the process die.
    fn mark_clean(&mut self) {
        if self
            .dirty_since
            .is_none_or(|written| written.elapsed() < MARK_CLEAN_AFTER)
        {
            return;
        }
        self.dirty_since = None;
        let marked = self.shared.kv.read().as_ref().map(|kv| kv.mark_clean());
        match marked {
            // Nothing depends on it but the time of the next start.
            Some(Err(StorageError::NoSpace(_))) => {
                if let Err(error) = self.reopen(&[]) {
                    self.fail(error, &mut []);
                }
            }
            Some(Err(error)) => self.fail(error, &mut []),
            _ => {}
        }
    }

    fn answer(&self, answers: Vec<Answer>) {
        let failed = self.shared.failed.lock().clone();
        let oldest = self.shared.index.read().oldest;
        for answer in answers {
            // A caller that has gone needs no answer.
            match answer {
                Answer::Commit(reply, result) => drop(reply.send(result)),
                Answer::Compact(reply) => drop(reply.send(match &failed {
                    Some(message) => Err(unavailable(message)),
                    None => Ok(CompactionInfo {
                        oldest: Revision(oldest),
                    }),
                })),
            }
        }
    }

    /// Removes superseded changes that can no longer be read from the bookkeeping.
    fn sweep(&mut self, most: usize) -> Vec<Garbage> {
        let limit = self.sweep_limit();
        let mut swept = Vec::new();
        while swept.len() < most
            && self
                .book
                .garbage
                .front()
                .is_some_and(|first| first.since <= limit)
        {
            let Some(garbage) = self.book.garbage.pop_front() else {
                break;
            };
            self.book.garbage_bytes -= u64::from(garbage.len);
            swept.push(garbage);
        }
        swept
    }

    /// The revision up to which history has outlived the options, at most once per interval. On a full disk that is all of it: what
    /// was deleted has to make room.
    fn due_compaction(&mut self, now_ms: u64, full: bool) -> Option<u64> {
        let interval = compaction_interval(&self.options);
        // Writes that make history faster than it is looked at do not wait for the next look.
        let ahead = match self.book.garbage_bytes / 2 > self.options.max_history_bytes {
            true => interval.saturating_sub(LOOK_AT_MOST_EVERY),
            false => Duration::ZERO,
        };
        if Instant::now() + ahead < self.next_compaction {
            return None;
        }
        self.next_compaction = Instant::now() + interval;
        if full && !self.book.garbage.is_empty() {
            if self.warned_cut.is_none_or(|at| at.elapsed() >= WARN_CUT_EVERY) {
                self.warned_cut = Some(Instant::now());
                tracing::warn!("the disk is full: the store's history is dropped to free space");
            }
            return Some(self.shared.index.read().revision);
        }
        let retention = u64::try_from(self.options.retention.as_millis()).unwrap_or(u64::MAX);
        let cutoff = now_ms.saturating_sub(retention);
        let interval_ms = u64::try_from(sample_interval(&self.options).as_millis()).unwrap_or(u64::MAX);
        let mut to = None;
        while let Some((at, rev)) = self.book.times.front().copied().filter(|(at, _)| *at <= cutoff) {
            to = Some(rev);
            // The newest sample before the cutoff is kept: it is true until the next one.
            if self.book.times.get(1).is_none_or(|(next, _)| *next > cutoff) {
                // Nothing was written since for a whole window, or there would be another sample.
                if self.book.times.len() == 1 && at + 2 * LOAD_SAMPLE_MS.max(interval_ms) <= cutoff {
                    to = Some(self.shared.index.read().revision);
                }
                break;
            }
            self.book.times.pop_front();
        }
        // However young, there is a limit to how much.
        let mut cut = false;
        let mut left = self.book.garbage.len() as u64;
        let mut left_bytes = self.book.garbage_bytes;
        for garbage in &self.book.garbage {
            if left <= self.options.max_history && left_bytes <= self.options.max_history_bytes {
                break;
            }
            left -= 1;
            left_bytes -= u64::from(garbage.len);
            if to.is_none_or(|to| to < garbage.since) {
                to = Some(garbage.since);
                cut = true;
            }
        }
        if cut && self.warned_cut.is_none_or(|at| at.elapsed() >= WARN_CUT_EVERY) {
            self.warned_cut = Some(Instant::now());
            tracing::warn!(
                changes = self.options.max_history,
                bytes = self.options.max_history_bytes,
                "more was overwritten than is kept, history goes back less far than the retention says"
            );
        }
        to
    }

    /// The state between two rounds: the writer alone changes it, so its parts fit.
    fn take(&self) -> Result<Taken, StorageError> {
        if let Some(message) = self.shared.failed.lock().as_ref() {
            return Err(unavailable(message));
        }
        let kv = self.shared.kv.read();
        let kv = kv.as_ref().ok_or_else(shut_down)?;
        let index = self.shared.index.read();
        Ok(Taken {
            kv: kv.share(),
            pin: self.shared.pins.pin(index.revision),
            index: index.clone(),
            book: self.book.clone(),
        })
    }
}

impl Drop for Writer {
    /// Also when it panics: callers get an answer, watches end, the directory is given up.
    fn drop(&mut self) {
        self.shared.queue.abandon();
        self.shared.hub.close(shut_down);
        let healthy = !self.has_failed() && !std::thread::panicking();
        let kv = self.shared.kv.write().take();
        let closed = kv.is_some_and(|kv| close_kv(kv, healthy));
        // Last, so that the next owner of the directory finds the engine closed.
        let Some(directory) = self.directory.take() else {
            return;
        };
        if closed && healthy {
            directory.closed(self.shared.index.read().revision, self.book.records);
        }
        // A writer may have failed because of damage that no read has reported.
        if !healthy || !self.shared.damaged.list().is_empty() {
            directory.note_damage(true);
        }
    }
}

fn unavailable(message: &str) -> StorageError {
    StorageError::Unavailable {
        message: message.to_owned(),
        source: None,
    }
}

/// How often the moment is noted at which a revision was newest: fine enough for the window, few enough to keep.
fn sample_interval(options: &OpenOptions) -> Duration {
    (options.retention / 100).clamp(Duration::from_millis(20), Duration::from_secs(10))
}

fn compaction_interval(options: &OpenOptions) -> Duration {
    (options.retention / 20).clamp(Duration::from_millis(50), Duration::from_secs(5))
}
