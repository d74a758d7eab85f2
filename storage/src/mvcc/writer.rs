//! The thread that owns the store: group commit, revisions, expiry, compaction.
//!
//! A round takes all waiting requests, plans them one after the other on the index plus what this round has planned so
//! far, writes one durable batch, and only then changes the index, tells the watches and answers. So nobody ever sees
//! what might still be lost, and the answer to a conflict never leaks a write that is not durable yet.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use imbl::{OrdMap, OrdSet, Vector};
use tokio::sync::oneshot;

use super::Shared;
use super::index::{Index, Version};
use super::kv::{Kv, Reader, Write};
use super::migrate::{self, MapStep};
use super::queue::shut_down;
use super::record::{self, Header, Location};
use crate::directory::Directory;
use crate::format;
use crate::{
    CompactionInfo, Event, EventKind, KeyValue, Op, OpenOptions, Outcome, Revision, StorageError, Txn,
};

/// Superseded changes removed in a round that is about nothing else.
const SWEEP: usize = 2048;
/// Writes have paused when none came for this long.
const SETTLE_AFTER: Duration = Duration::from_millis(250);
/// Expired keys deleted in one round.
const EXPIRE: usize = 1024;
/// How often the free space is asked for, at most, and after how many bytes written regardless.
const SPACE_EVERY: Duration = Duration::from_millis(500);
const SPACE_BYTES: u64 = 16 << 20;

/// How often it is told that there is more history than may be kept.
const TELL_CUT_EVERY: Duration = Duration::from_secs(600);

/// The distance of the moments noted when a log is read back.
const LOAD_SAMPLE_MS: u64 = 100;

type Reply<T> = oneshot::Sender<Result<T, StorageError>>;
type Forked = (Box<dyn Kv>, Index, Bookkeeping);

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
    Fork {
        reply: Reply<Forked>,
    },
}

/// A change nobody can read once everything up to `since` is compacted.
#[derive(Debug, Clone)]
struct Garbage {
    since: u64,
    key: Arc<str>,
    at: Location,
    len: u32,
}

/// What the writer alone needs to know. Persistent, so that a fork costs nothing.
#[derive(Clone, Default)]
pub(super) struct Bookkeeping {
    /// In order of `since`.
    garbage: Vector<Garbage>,
    garbage_bytes: u64,
    /// Keys with a time to live, by when they end (milliseconds since 1970), and back.
    expiries: OrdSet<(u64, Arc<str>)>,
    expiry_of: OrdMap<Arc<str>, u64>,
    /// The newest revision at some moments of the retention window, oldest first.
    times: Vector<(u64, u64)>,
}

impl fmt::Debug for Bookkeeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bookkeeping")
            .field("garbage", &self.garbage.len())
            .finish_non_exhaustive()
    }
}

impl Bookkeeping {
    fn record(&mut self, key: &Arc<str>, version: Version, before: Option<Version>, expires_ms: u64) {
        if let Some(before) = before.and_then(Version::live) {
            self.garbage_bytes += u64::from(before.len);
            self.garbage.push_back(Garbage {
                since: version.rev,
                key: key.clone(),
                at: before.at(),
                len: before.len,
            });
        }
        if version.is_delete() {
            self.garbage.push_back(Garbage {
                since: version.rev,
                key: key.clone(),
                at: version.at(),
                len: 0,
            });
        }
        if let Some(old) = self.expiry_of.remove(&**key) {
            self.expiries.remove(&(old, key.clone()));
        }
        if expires_ms != 0 {
            self.expiries.insert((expires_ms, key.clone()));
            self.expiry_of.insert(key.clone(), expires_ms);
        }
    }

    fn sample_time(&mut self, now_ms: u64, revision: u64, every_ms: u64) {
        if self
            .times
            .back()
            .is_none_or(|(last, _)| now_ms >= last + every_ms)
        {
            self.times.push_back((now_ms, revision));
        }
    }
}

pub(super) struct Loaded {
    pub index: Index,
    pub book: Bookkeeping,
    pub chunk_len: u32,
}

/// Reads a store's settings and log headers. Makes the settings when the store is new, migrates it when it is old.
pub(super) fn load(kv: &dyn Kv, steps: &[MapStep]) -> Result<Loaded, StorageError> {
    if kv.reader()?.get(record::META_RESTORING)?.is_some() {
        return Err(StorageError::Corrupt(
            "the restore of a backup into this directory was not finished; empty it and restore again".into(),
        ));
    }
    migrate::migrate(kv, steps)?;
    let reader = kv.reader()?;
    let chunk_len = match record::read_u32(&*reader, record::META_FORMAT)? {
        Some(_) => record::read_u32(&*reader, record::META_CHUNK)?
            .filter(|len| *len > 0)
            .ok_or_else(|| StorageError::Corrupt("the store's settings are incomplete".into()))?,
        None => {
            let chunk_len = u32::try_from(kv.chunk_len()).unwrap_or(u32::MAX);
            drop(reader);
            kv.apply(&[
                record::put_u32(record::META_FORMAT, format::newest(steps)),
                record::put_u32(record::META_CHUNK, chunk_len),
            ])?;
            return Ok(Loaded {
                index: Index::default(),
                book: Bookkeeping::default(),
                chunk_len,
            });
        }
    };
    let mut index = Index::starting_at(record::read_u64(&*reader, record::META_OLDEST)?.unwrap_or(0));
    let floor = record::read_u64(&*reader, record::META_REVISION)?.unwrap_or(0);
    let mut book = Bookkeeping::default();
    let (from, to) = record::header_range(0, None);
    reader.scan(&from, &to, &mut |key, value| {
        let at = record::parse_header_key(key)?;
        let header = Header::decode(value)?;
        let version = Version {
            rev: at.rev,
            seq: at.seq,
            create: if header.delete { 0 } else { header.create },
            len: header.len,
            crc: header.crc,
        };
        let key = index.shared_key(&header.key);
        let before = index.apply(&key, version);
        book.record(&key, version, before, header.expires_ms);
        book.sample_time(header.time_ms, at.rev, LOAD_SAMPLE_MS);
        index.revision = at.rev;
        Ok(true)
    })?;
    index.revision = index.revision.max(index.oldest).max(floor);
    // The time the store was closed does not count against what it keeps: watchers resume after a long pause, too.
    if let Some((last, _)) = book.times.back().copied() {
        let pause = now_ms().saturating_sub(last);
        book.times = book.times.iter().map(|(at, rev)| (at + pause, *rev)).collect();
    }
    Ok(Loaded {
        index,
        book,
        chunk_len,
    })
}

pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A change of this round.
#[derive(Debug)]
struct Change {
    key: Arc<str>,
    /// `None` for a delete.
    value: Option<Bytes>,
    version: Version,
    prev: Option<Version>,
    expires_ms: u64,
}

/// A round's changes so far, on top of the index.
struct Plan<'a> {
    shared: &'a Shared,
    index: &'a Index,
    revision: u64,
    changes: Vec<Change>,
    newest: HashMap<Arc<str>, usize>,
    now_ms: u64,
}

impl<'a> Plan<'a> {
    fn new(shared: &'a Shared, index: &'a Index, now_ms: u64) -> Plan<'a> {
        Plan {
            shared,
            index,
            revision: index.revision,
            changes: Vec::new(),
            newest: HashMap::new(),
            now_ms,
        }
    }

    fn current(&self, key: &str) -> Option<Version> {
        match self.newest.get(key) {
            Some(change) => self.changes[*change].version.live(),
            None => self.index.get(key),
        }
    }

    fn current_pair(&self, key: &str) -> Result<Option<KeyValue>, StorageError> {
        if let Some(change) = self.newest.get(key).map(|change| &self.changes[*change]) {
            return Ok(change.value.as_ref().map(|value| KeyValue {
                key: change.key.clone(),
                value: value.clone(),
                create_revision: Revision(change.version.create),
                mod_revision: Revision(change.version.rev),
            }));
        }
        let Some(version) = self.index.get(key) else {
            return Ok(None);
        };
        let key = self.index.shared_key(key);
        self.shared
            .with_reader(|reader| self.shared.load(reader, &key, version))
            .map(Some)
    }

    fn txn(&mut self, txn: Txn) -> Result<Outcome, StorageError> {
        for (guard, condition) in txn.guards.iter().enumerate() {
            let found = self.current(&condition.key).map_or(0, |version| version.rev);
            if found != condition.mod_revision.0 {
                return Ok(Outcome::Conflict {
                    guard,
                    current: self.current_pair(&condition.key)?,
                    revision: Revision(self.revision),
                });
            }
        }
        if txn.ops.len() > 1 {
            let mut keys = HashSet::with_capacity(txn.ops.len());
            for op in &txn.ops {
                let (Op::Put { key, .. } | Op::Delete { key }) = op;
                if !keys.insert(key.as_str()) {
                    return Err(StorageError::Engine {
                        message: format!("a transaction writes the key `{key}` twice"),
                        source: None,
                    });
                }
            }
        }
        let rev = self.revision + 1;
        let mut seq = 0;
        for op in txn.ops {
            seq += u32::from(self.op(Location { rev, seq }, op));
        }
        if seq > 0 {
            self.revision = rev;
        }
        Ok(Outcome::Committed(Revision(self.revision)))
    }

    /// Plans one operation. False when it changes nothing.
    fn op(&mut self, at: Location, op: Op) -> bool {
        let (key, value, ttl) = match op {
            Op::Put { key, value, ttl } => (key, Some(value), ttl),
            Op::Delete { key } => (key, None, None),
        };
        let prev = self.current(&key);
        let (create, len, crc) = match (&value, prev) {
            (None, None) => return false,
            (None, Some(_)) => (0, 0, 0),
            (Some(value), prev) => (
                prev.map_or(at.rev, |prev| prev.create),
                u32::try_from(value.len()).unwrap_or(u32::MAX),
                crc32fast::hash(value),
            ),
        };
        let expires_ms = ttl.map_or(0, |ttl| {
            self.now_ms
                .saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
                .max(1)
        });
        let key = match self.newest.get_key_value(key.as_str()) {
            Some((key, _)) => key.clone(),
            None => self.index.shared_key(&key),
        };
        self.newest.insert(key.clone(), self.changes.len());
        let version = Version {
            rev: at.rev,
            create,
            seq: at.seq,
            len,
            crc,
        };
        self.changes.push(Change {
            key,
            value,
            version,
            prev,
            expires_ms,
        });
        true
    }
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
    /// Something was written since the store was last settled, at this moment.
    unsettled: Option<Instant>,
    next_compaction: Instant,
    /// When it was last told that history is shorter than the retention.
    told_cut: Option<Instant>,
    space: Space,
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
            unsettled: None,
            next_compaction,
            told_cut: None,
            space: Space::default(),
        }
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

    /// When there is something to do even if nobody asks.
    fn wake_at(&self) -> Option<Instant> {
        if self.has_failed() {
            return None;
        }
        let now = Instant::now();
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
            now + Duration::from_millis(at_ms.saturating_sub(now_ms()).saturating_add(1).min(60_000))
        });
        let compaction = (!self.book.garbage.is_empty()).then_some(self.next_compaction);
        let settle = self.unsettled.map(|written| written + SETTLE_AFTER);
        [expiry, compaction, settle].into_iter().flatten().min()
    }

    fn round(&mut self, group: Vec<Request>) {
        let shared = self.shared.clone();
        let now_ms = now_ms();
        let mut answers = Vec::with_capacity(group.len());
        let mut forks = Vec::new();
        let mut compact_to = self.due_compaction(now_ms);
        let failed = shared.failed.lock().clone();
        let no_space = self.space.refusal(shared.kv.read().as_deref(), &self.options);

        let index = shared.index.read();
        let mut plan = Plan::new(&shared, &index, now_ms);
        if failed.is_none() {
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
                        (Some(message), _) => Err(StorageError::Unavailable {
                            message: message.clone(),
                            source: None,
                        }),
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
                        // The asker may have gone.
                        let _ = reply.send(Err(error));
                    } else {
                        compact_to = compact_to.max(Some(revision));
                        answers.push(Answer::Compact(reply));
                    }
                }
                Request::Fork { reply } => forks.push(reply),
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
        for reply in forks {
            // The asker may have gone.
            let _ = reply.send(self.fork());
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
            // Refused from now on, so that nobody begins to read what goes in this very batch.
            shared.index.write().oldest = to;
            batch.push(record::put_u64(record::META_OLDEST, to));
        }
        let swept = self.sweep(if changes.is_empty() {
            SWEEP
        } else {
            256 + 4 * changes.len()
        });
        for garbage in &swept {
            record::delete_record(&mut batch, garbage.at, garbage.len, shared.chunk_len);
        }
        if batch.is_empty() {
            self.settle();
            return;
        }
        if let Err(error) = self.apply(&batch) {
            self.fail(error, answers);
            return;
        }
        self.unsettled = Some(Instant::now());
        if changes.is_empty() {
            let mut index = shared.index.write();
            swept
                .iter()
                .for_each(|garbage| index.forget(&garbage.key, garbage.at.rev));
            return;
        }
        self.publish(&changes, revision, &swept);
        let interval = u64::try_from(sample_interval(&self.options).as_millis()).unwrap_or(u64::MAX);
        self.book.sample_time(now_ms, revision, interval);
    }

    /// Changes the index and tells the watches, in one step as far as watches being registered can see.
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
    fn settle(&mut self) {
        if self
            .unsettled
            .is_none_or(|written| written.elapsed() < SETTLE_AFTER)
        {
            return;
        }
        self.unsettled = None;
        let settled = self.shared.kv.read().as_ref().map(|kv| kv.settle());
        if let Some(Err(error)) = settled {
            self.fail(error, &mut []);
        }
    }

    /// What is on disk is not known any more, so nothing may be built on it until it is read afresh.
    fn fail(&mut self, error: StorageError, answers: &mut [Answer]) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "storage write failed, the store takes no more writes"
        );
        let message = format!("a write to the store failed ({error}), it has to be opened anew");
        for answer in answers {
            if let Answer::Commit(_, result) = answer {
                let wrote = matches!(result, Ok(Outcome::Committed(_)));
                *result = Err(if wrote {
                    StorageError::Uncertain(error.to_string())
                } else {
                    StorageError::Unavailable {
                        message: message.clone(),
                        source: None,
                    }
                });
            }
        }
        *self.shared.failed.lock() = Some(message);
    }

    fn answer(&self, answers: Vec<Answer>) {
        let failed = self.shared.failed.lock().clone();
        let oldest = self.shared.index.read().oldest;
        for answer in answers {
            // An asker that has gone does not want to know.
            match answer {
                Answer::Commit(reply, result) => drop(reply.send(result)),
                Answer::Compact(reply) => drop(reply.send(match &failed {
                    Some(message) => Err(StorageError::Unavailable {
                        message: message.clone(),
                        source: None,
                    }),
                    None => Ok(CompactionInfo {
                        oldest: Revision(oldest),
                    }),
                })),
            }
        }
    }

    /// Takes superseded changes that nobody can read any more off the books.
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

    /// The revision up to which history has outlived the options, at most once per interval.
    fn due_compaction(&mut self, now_ms: u64) -> Option<u64> {
        if Instant::now() < self.next_compaction {
            return None;
        }
        self.next_compaction = Instant::now() + compaction_interval(&self.options);
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
        if cut && self.told_cut.is_none_or(|told| told.elapsed() >= TELL_CUT_EVERY) {
            self.told_cut = Some(Instant::now());
            tracing::warn!(
                changes = self.options.max_history,
                bytes = self.options.max_history_bytes,
                "more was overwritten than is kept, history goes back less far than the retention says"
            );
        }
        to
    }

    fn fork(&self) -> Result<Forked, StorageError> {
        let kv = self.shared.kv.read();
        let kv = kv.as_ref().ok_or_else(shut_down)?;
        let kv = kv.fork().ok_or_else(|| StorageError::Engine {
            message: format!("a store of the engine `{}` cannot be forked", self.shared.engine),
            source: None,
        })?;
        Ok((kv, self.shared.index.read().clone(), self.book.clone()))
    }
}

impl Drop for Writer {
    /// Also when it panics: callers get an answer, watches end, the directory is given up.
    fn drop(&mut self) {
        self.shared.queue.abandon();
        self.shared.hub.close(shut_down);
        let kv = self.shared.kv.write().take();
        drop(kv);
        // Last, so that whoever takes the directory next finds the engine closed.
        self.directory.take();
    }
}

fn put_change(batch: &mut Vec<Write>, change: &Change, now_ms: u64, chunk_len: u32) {
    let header = Header {
        delete: change.value.is_none(),
        time_ms: now_ms,
        create: change.prev.map_or(change.version.create, |prev| prev.create),
        prev: change.prev.map(|prev| prev.at()),
        expires_ms: change.expires_ms,
        len: change.version.len,
        crc: change.version.crc,
        key: change.key.as_ref().to_owned(),
    };
    let value = change.value.clone().unwrap_or_default();
    record::put_record(batch, change.version.at(), &header, &value, chunk_len);
}

fn event(shared: &Shared, reader: Option<&dyn Reader>, change: &Change) -> Event {
    let prev = change.prev.zip(reader).and_then(|(prev, reader)| {
        let loaded = shared.load(reader, &change.key, prev);
        loaded
            .inspect_err(|error| {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    key = &*change.key,
                    "the state before a change cannot be read"
                );
            })
            .ok()
    });
    Event {
        kind: if change.value.is_some() {
            EventKind::Put
        } else {
            EventKind::Delete
        },
        kv: KeyValue {
            key: change.key.clone(),
            value: change.value.clone().unwrap_or_default(),
            create_revision: Revision(change.version.create),
            mod_revision: Revision(change.version.rev),
        },
        prev,
    }
}

/// How often the moment is noted at which a revision was newest: fine enough for the window, few enough to keep.
fn sample_interval(options: &OpenOptions) -> Duration {
    (options.retention / 100).clamp(Duration::from_millis(20), Duration::from_secs(10))
}

fn compaction_interval(options: &OpenOptions) -> Duration {
    (options.retention / 20).clamp(Duration::from_millis(50), Duration::from_secs(5))
}

/// Watches the free space of the file system.
#[derive(Debug, Default)]
struct Space {
    checked: Option<Instant>,
    written: u64,
    refusal: Option<String>,
}

impl Space {
    /// Why nothing may be written now, if so.
    fn refusal(&mut self, kv: Option<&dyn Kv>, options: &OpenOptions) -> Option<String> {
        let min_free = options.min_free_bytes;
        let kv = kv.filter(|_| min_free > 0)?;
        let fresh = self.checked.is_some_and(|at| at.elapsed() < SPACE_EVERY) && self.written < SPACE_BYTES;
        if !fresh {
            self.checked = Some(Instant::now());
            self.written = 0;
            self.refusal = match kv.free_bytes() {
                Ok(Some(free)) if free < min_free => Some(format!(
                    "{free} bytes are free at `{}`, {min_free} are kept in reserve",
                    options.dir.as_deref().unwrap_or(Path::new("")).display()
                )),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot watch the free space"
                    );
                    None
                }
            };
        }
        self.refusal.clone()
    }
}
