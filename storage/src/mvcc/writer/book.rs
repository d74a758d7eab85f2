//! What the writer keeps in mind of a store: what may go and when, and which revision was newest when. Made from the log's headers.

use std::fmt;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet, Vector};

use super::super::index::{Index, Version};
use super::super::kv::Kv;
use super::super::migrate::{self, MapStep};
use super::super::record::{self, Header, Location};
use super::now_ms;
use crate::StorageError;
use crate::format;

/// The distance of the moments noted when a log is read back.
pub(super) const LOAD_SAMPLE_MS: u64 = 100;

/// A change nobody can read once everything up to `since` is compacted.
#[derive(Debug, Clone)]
pub(super) struct Garbage {
    pub(super) since: u64,
    pub(super) key: Arc<str>,
    pub(super) at: Location,
    pub(super) len: u32,
}

/// What the writer alone needs to know. Persistent, so that a fork costs nothing.
#[derive(Clone, Default)]
pub(in crate::mvcc) struct Bookkeeping {
    /// In order of `since`.
    pub(super) garbage: Vector<Garbage>,
    pub(super) garbage_bytes: u64,
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
    pub(super) fn record(
        &mut self,
        key: &Arc<str>,
        version: Version,
        before: Option<Version>,
        expires_ms: u64,
    ) {
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
}

/// Reads a store's settings and log headers. Makes the settings when the store is new, migrates it when it is old.
pub(in crate::mvcc) fn load(kv: &dyn Kv, steps: &[MapStep]) -> Result<Loaded, StorageError> {
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
