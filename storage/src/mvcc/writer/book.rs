//! The writer's bookkeeping of a store: which records may be removed and when, and which revision was newest when. Made from the
//! log's headers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::super::clock::Clock;
use super::super::index::{Index, Version};
use super::super::kv::{Kv, Write};
use super::super::migrate::{self, MapStep};
use super::super::record::{self, Header, Location};
use crate::format;
use crate::{Damage, StorageError};

/// The distance of the moments noted when a log is read back.
pub(super) const LOAD_SAMPLE_MS: u64 = 100;

/// A change that can no longer be read once everything up to `since` is compacted.
#[derive(Debug, Clone)]
pub(super) struct Garbage {
    pub(super) since: u64,
    pub(super) key: Arc<str>,
    pub(super) at: Location,
    pub(super) len: u32,
}

/// State that only the writer uses. Persistent, so that a fork costs nothing.
#[derive(Clone)]
pub(in crate::mvcc) struct Bookkeeping {
    pub(super) clock: Clock,
    /// In order of `since`.
    pub(super) garbage: Vector<Garbage>,
    pub(super) garbage_bytes: u64,
    /// Changes in the log.
    pub(in crate::mvcc) records: u64,
    /// Keys with a time to live, by when they end (milliseconds since 1970), and back.
    pub(super) expiries: OrdSet<(u64, Arc<str>)>,
    pub(super) expiry_of: OrdMap<Arc<str>, u64>,
    /// The newest revision at some moments of the retention window, oldest first.
    pub(super) times: Vector<(u64, u64)>,
}

impl fmt::Debug for Bookkeeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bookkeeping")
            .field("garbage", &self.garbage.len())
            .finish_non_exhaustive()
    }
}

impl Bookkeeping {
    fn new(clock: Clock) -> Bookkeeping {
        Bookkeeping {
            clock,
            garbage: Vector::new(),
            garbage_bytes: 0,
            records: 0,
            expiries: OrdSet::new(),
            expiry_of: OrdMap::new(),
            times: Vector::new(),
        }
    }

    pub(super) fn record(
        &mut self,
        key: &Arc<str>,
        version: Version,
        before: Option<Version>,
        expires_ms: u64,
    ) {
        if let Some(before) = before.and_then(Version::live) {
            self.supersede(version.rev, key, before.at(), before.len);
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

    /// Notes that a value can no longer be read once everything up to `since` is compacted.
    fn supersede(&mut self, since: u64, key: &Arc<str>, at: Location, len: u32) {
        self.garbage_bytes += u64::from(len);
        self.garbage.push_back(Garbage {
            since,
            key: key.clone(),
            at,
            len,
        });
    }

    /// When a key ends, if it does: milliseconds since 1970.
    pub(in crate::mvcc) fn end_of(&self, key: &str) -> Option<u64> {
        self.expiry_of.get(key).copied()
    }

    pub(super) fn sample_time(&mut self, now_ms: u64, revision: u64, every_ms: u64) {
        if self
            .times
            .back()
            .is_none_or(|(last, _)| now_ms >= last + every_ms)
        {
            self.times.push_back((now_ms, revision));
        }
    }
}

pub(in crate::mvcc) struct Loaded {
    pub index: Index,
    pub book: Bookkeeping,
    pub chunk_len: u32,
    /// In the order of the log. Those without a key are what the index was made without.
    pub damaged: Vec<Damage>,
}

/// Makes the settings of a new store whose revisions begin at `begin`.
pub(in crate::mvcc) fn make_settings(kv: &dyn Kv, steps: &[MapStep], begin: u64) -> Result<(), StorageError> {
    let mut batch = vec![
        record::put_u32(record::META_FORMAT, format::newest(steps)),
        record::put_u32(record::META_CHUNK, chunk_len(kv)),
    ];
    if begin > 0 {
        batch.extend(begin_at(begin));
    }
    kv.apply(&batch)
}

/// The settings of a store that is at this revision, everything before which is compacted.
pub(in crate::mvcc) fn begin_at(revision: u64) -> [Write; 2] {
    [
        record::put_u64(record::META_OLDEST, revision),
        record::put_u64(record::META_REVISION, revision),
    ]
}

fn chunk_len(kv: &dyn Kv) -> u32 {
    u32::try_from(kv.chunk_len()).unwrap_or(u32::MAX)
}

/// Reads a store's settings and log headers. Migrates it when it is old, makes the settings when it `may_be_new` and has none; its
/// time begins at `wall_ms`, or at the newest of the log when that is later. Changes that cannot be read are skipped and reported; one that
/// a later change says it replaced is of the past alone, and has that one's key.
/// Fails with `Corrupt` when the settings or the order of the log are damaged.
pub(in crate::mvcc) fn load(
    kv: &dyn Kv,
    steps: &[MapStep],
    may_be_new: bool,
    wall_ms: u64,
) -> Result<Loaded, StorageError> {
    if kv.reader()?.get(record::META_RESTORING)?.is_some() {
        return Err(StorageError::Corrupt(
            "the restore of a backup into this directory was not finished; empty it and restore again".into(),
        ));
    }
    migrate::migrate(kv, steps)?;
    let reader = kv.reader()?;
    if record::read_u32(&*reader, record::META_FORMAT)?.is_none() {
        drop(reader);
        if !may_be_new || has_records(kv)? {
            return Err(StorageError::Corrupt("the store's settings are missing".into()));
        }
        make_settings(kv, steps, 0)?;
        return Ok(Loaded {
            index: Index::default(),
            book: Bookkeeping::new(Clock::new(wall_ms, 0)),
            chunk_len: chunk_len(kv),
            damaged: Vec::new(),
        });
    }
    let chunk_len = record::read_u32(&*reader, record::META_CHUNK)?
        .filter(|len| *len > 0)
        .ok_or_else(|| StorageError::Corrupt("the store's settings are incomplete".into()))?;
    let mut index = Index::starting_at(record::read_u64(&*reader, record::META_OLDEST)?.unwrap_or(0));
    let floor = record::read_u64(&*reader, record::META_REVISION)?.unwrap_or(0);
    let mut book = Bookkeeping::new(Clock::new(wall_ms, 0));
    let mut newest_ms = 0;
    let mut damaged: BTreeMap<Location, Damage> = BTreeMap::new();
    let mut last = None;
    // From the very first record to the settings, without regard to the keys between: a damaged one may sort elsewhere.
    reader.scan(b"", &[0xff; 32], &mut |stored_key, stored| {
        if record::is_setting(stored_key) {
            return Ok(false);
        }
        book.records += 1;
        let place = record::parse_header_key(stored_key);
        let Some((at, header)) = Header::decode(stored) else {
            // The key of the change is unknown, so no watch may resume from before it.
            let at = place.ok_or_else(out_of_order)?;
            if last.is_some_and(|last| at <= last) {
                return Err(out_of_order());
            }
            index.oldest = index.oldest.max(at.rev);
            index.revision = index.revision.max(at.rev);
            damaged.insert(at, record::lost_header(at, stored));
            last = Some(at);
            return Ok(true);
        };
        if place != Some(at) || last.is_some_and(|last| at <= last) {
            return Err(out_of_order());
        }
        last = Some(at);
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
        let replaced = header.prev.and_then(|at| Some((at, damaged.get_mut(&at)?)));
        if let Some((lost, damage)) = replaced {
            damage.key = Some(key.clone());
            let len = record::stored_len(&*reader, lost)?;
            book.supersede(version.rev, &key, lost, len);
        }
        newest_ms = newest_ms.max(header.time_ms);
        book.sample_time(header.time_ms, at.rev, LOAD_SAMPLE_MS);
        index.revision = index.revision.max(at.rev);
        Ok(true)
    })?;
    index.revision = index.revision.max(index.oldest).max(floor);
    book.clock = Clock::new(wall_ms, newest_ms);
    // The time the store was closed does not count against what it keeps: watchers resume after a long pause, too.
    if let Some((last, _)) = book.times.back().copied() {
        let pause = book.clock.now_ms().saturating_sub(last);
        book.times = book.times.iter().map(|(at, rev)| (at + pause, *rev)).collect();
    }
    Ok(Loaded {
        index,
        book,
        chunk_len,
        damaged: damaged.into_values().collect(),
    })
}

/// Removes the changes whose keys are not known, in one batch. The store keeps the revisions that loading them gave it: what a watcher
/// has not seen of the lost changes stays unseen.
pub(in crate::mvcc) fn drop_lost(kv: &dyn Kv, loaded: &Loaded) -> Result<(), StorageError> {
    let mut batch = vec![
        record::put_u64(record::META_OLDEST, loaded.index.oldest),
        record::put_u64(record::META_REVISION, loaded.index.revision),
    ];
    let reader = kv.reader()?;
    for damage in loaded.damaged.iter().filter(|damage| damage.key.is_none()) {
        let at = Location {
            rev: damage.revision.0,
            seq: damage.place,
        };
        let len = record::stored_len(&*reader, at)?;
        record::delete_record(&mut batch, at, len, loaded.chunk_len);
    }
    drop(reader);
    kv.apply(&batch)
}

/// The engine's own keys are damaged: neither its reads nor its overwrites can be trusted any more.
fn out_of_order() -> StorageError {
    StorageError::Corrupt("the keys of the log are damaged or out of order; restore a backup".into())
}

fn has_records(kv: &dyn Kv) -> Result<bool, StorageError> {
    let mut any = false;
    let (from, to) = record::header_range(0, None);
    kv.reader()?.scan(&from, &to, &mut |_, _| {
        any = true;
        Ok(false)
    })?;
    Ok(any)
}
