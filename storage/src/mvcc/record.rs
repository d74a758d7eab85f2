//! How the log looks in the ordered-key store. This file is the on-disk format; docs/storage.md describes it in prose.
//!
//! | key | value |
//! |---|---|
//! | `h` revision seq | header of one change ([`Header`]) |
//! | `v` revision seq chunk | its value, in chunks of `chunk` bytes |
//! | `m/format` | format version (u32) |
//! | `m/becoming` | the version that a migration under way leads to (u32) |
//! | `m/chunk` | chunk length (u32), fixed when the store is made |
//! | `m/restoring` | nothing; there while a backup is being restored |
//! | `m/oldest` | oldest readable revision (u64) |
//! | `m/revision` | a floor for the newest revision (u64): log records above it count, records need not reach it |
//!
//! Numbers in keys are big-endian, so that key order is revision order; numbers in values are little-endian.

use bytes::Bytes;

use super::kv::{Reader, Write};
use crate::StorageError;

pub(crate) const META_FORMAT: &[u8] = b"m/format";
/// There while a migration is under way.
pub(crate) const META_BECOMING: &[u8] = b"m/becoming";
pub(crate) const META_CHUNK: &[u8] = b"m/chunk";
pub(crate) const META_OLDEST: &[u8] = b"m/oldest";
/// There while a backup is being restored.
pub(crate) const META_RESTORING: &[u8] = b"m/restoring";
pub(crate) const META_REVISION: &[u8] = b"m/revision";

/// Where a change is: its transaction's revision, and its place within the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub rev: u64,
    pub seq: u32,
}

/// What is known of a change without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub delete: bool,
    /// Wall clock at commit, in milliseconds since 1970.
    pub time_ms: u64,
    /// Revision that created this incarnation; for a delete, the incarnation that ended.
    pub create: u64,
    /// The change this one replaces, when that left a value.
    pub prev: Option<Location>,
    /// When the key is to be deleted, in milliseconds since 1970; zero for never.
    pub expires_ms: u64,
    pub len: u32,
    pub crc: u32,
    pub key: String,
}

const FIXED: usize = 1 + 8 + 8 + 8 + 4 + 8 + 4 + 4;
const KIND_DELETE: u8 = 0;
const KIND_PUT: u8 = 1;

impl Header {
    pub(crate) fn encode(&self) -> Bytes {
        let prev = self.prev.unwrap_or(Location { rev: 0, seq: 0 });
        let mut out = Vec::with_capacity(FIXED + self.key.len());
        out.push(if self.delete { KIND_DELETE } else { KIND_PUT });
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&self.create.to_le_bytes());
        out.extend_from_slice(&prev.rev.to_le_bytes());
        out.extend_from_slice(&prev.seq.to_le_bytes());
        out.extend_from_slice(&self.expires_ms.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.into()
    }

    pub(crate) fn wanted(&self, at: Location) -> Wanted {
        Wanted {
            at,
            len: self.len,
            crc: self.crc,
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, StorageError> {
        let bad = || StorageError::Corrupt("a log header is damaged".into());
        let mut at = Cursor(bytes);
        let kind = at.take::<1>().ok_or_else(bad)?[0];
        if kind > KIND_PUT {
            return Err(bad());
        }
        let time_ms = at.u64().ok_or_else(bad)?;
        let create = at.u64().ok_or_else(bad)?;
        let prev = Location {
            rev: at.u64().ok_or_else(bad)?,
            seq: at.u32().ok_or_else(bad)?,
        };
        let expires_ms = at.u64().ok_or_else(bad)?;
        let len = at.u32().ok_or_else(bad)?;
        let crc = at.u32().ok_or_else(bad)?;
        let key = std::str::from_utf8(at.0).map_err(|_| bad())?.to_owned();
        Ok(Header {
            delete: kind == KIND_DELETE,
            time_ms,
            create,
            prev: (prev.rev != 0).then_some(prev),
            expires_ms,
            len,
            crc,
            key,
        })
    }
}

/// Reads fixed-size numbers off the front of a slice.
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
}

pub(crate) fn header_key(at: Location) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.push(b'h');
    key.extend_from_slice(&at.rev.to_be_bytes());
    key.extend_from_slice(&at.seq.to_be_bytes());
    key
}

/// Keys of all headers with `from <= revision < to`.
pub(crate) fn header_range(from: u64, to: Option<u64>) -> (Vec<u8>, Vec<u8>) {
    let end = to.map_or_else(|| b"i".to_vec(), |rev| header_key(Location { rev, seq: 0 }));
    (header_key(Location { rev: from, seq: 0 }), end)
}

pub(crate) fn parse_header_key(key: &[u8]) -> Result<Location, StorageError> {
    match parse_key(b"h", key) {
        Some((at, [])) => Ok(at),
        _ => Err(StorageError::Corrupt("a log key is damaged".into())),
    }
}

fn parse_value_key(key: &[u8]) -> Result<Location, StorageError> {
    match parse_key(b"v", key) {
        Some((at, [_, _, _, _])) => Ok(at),
        _ => Err(StorageError::Corrupt("a log key is damaged".into())),
    }
}

/// The location in a key, and what follows it.
fn parse_key<'a>(kind: &[u8], key: &'a [u8]) -> Option<(Location, &'a [u8])> {
    let (rev, rest) = key.strip_prefix(kind)?.split_first_chunk::<8>()?;
    let (seq, rest) = rest.split_first_chunk::<4>()?;
    Some((
        Location {
            rev: u64::from_be_bytes(*rev),
            seq: u32::from_be_bytes(*seq),
        },
        rest,
    ))
}

fn value_key(at: Location, chunk: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(b'v');
    key.extend_from_slice(&at.rev.to_be_bytes());
    key.extend_from_slice(&at.seq.to_be_bytes());
    key.extend_from_slice(&chunk.to_be_bytes());
    key
}

/// How many chunks a value of `len` bytes has. An empty value has none.
fn chunks(len: u32, chunk_len: u32) -> u32 {
    len.div_ceil(chunk_len)
}

/// Adds a change to a batch.
pub(crate) fn put_record(
    batch: &mut Vec<Write>,
    at: Location,
    header: &Header,
    value: &Bytes,
    chunk_len: u32,
) {
    batch.push(Write::Put(header_key(at), header.encode()));
    let mut rest = value.clone();
    let mut chunk = 0;
    while !rest.is_empty() {
        let take = rest.len().min(chunk_len as usize);
        batch.push(Write::Put(value_key(at, chunk), rest.split_to(take)));
        chunk += 1;
    }
}

/// Adds the removal of a change to a batch.
pub(crate) fn delete_record(batch: &mut Vec<Write>, at: Location, len: u32, chunk_len: u32) {
    batch.push(Write::Delete(header_key(at)));
    batch.extend((0..chunks(len, chunk_len)).map(|chunk| Write::Delete(value_key(at, chunk))));
}

/// A value to be read: where it is, and what it has to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub at: Location,
    pub len: u32,
    pub crc: u32,
}

impl Wanted {
    fn check(&self, value: Bytes) -> Result<Bytes, StorageError> {
        if value.len() != self.len as usize || crc32fast::hash(&value) != self.crc {
            return Err(StorageError::Corrupt(format!(
                "the value written at revision {} fails its checksum",
                self.at.rev
            )));
        }
        Ok(value)
    }

    fn missing(&self) -> StorageError {
        StorageError::Corrupt(format!(
            "the value written at revision {} is missing",
            self.at.rev
        ))
    }
}

/// Reads a value and checks it.
pub(crate) fn read_value(reader: &dyn Reader, wanted: Wanted, chunk_len: u32) -> Result<Bytes, StorageError> {
    let chunk = |index: u32| -> Result<Bytes, StorageError> {
        reader
            .get(&value_key(wanted.at, index))?
            .ok_or_else(|| wanted.missing())
    };
    wanted.check(match chunks(wanted.len, chunk_len) {
        0 => Bytes::new(),
        1 => chunk(0)?,
        count => {
            let mut whole = Vec::with_capacity(wanted.len as usize);
            for index in 0..count {
                whole.extend_from_slice(&chunk(index)?);
            }
            whole.into()
        }
    })
}

/// Reads values that lie close together, given in the order of their places, in one pass.
pub(crate) fn scan_values(
    reader: &dyn Reader,
    wanted: &[Wanted],
    mut found: impl FnMut(usize, Bytes),
) -> Result<(), StorageError> {
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Ok(());
    };
    let mut next = 0;
    let mut value = Vec::new();
    reader.scan(
        &value_key(first.at, 0),
        &value_key(last.at, u32::MAX),
        &mut |key, chunk| {
            let at = parse_value_key(key)?;
            // Empty values have no record.
            while let Some(passed) = wanted
                .get(next)
                .filter(|wanted| wanted.at < at && wanted.len == 0)
            {
                found(next, passed.check(Bytes::new())?);
                next += 1;
            }
            let Some(here) = wanted.get(next) else {
                return Ok(false);
            };
            if here.at < at {
                return Err(here.missing());
            }
            if here.at > at {
                return Ok(true);
            }
            if value.is_empty() {
                value.reserve_exact(here.len as usize);
            }
            value.extend_from_slice(chunk);
            if value.len() >= here.len as usize {
                found(next, here.check(std::mem::take(&mut value).into())?);
                next += 1;
            }
            Ok(true)
        },
    )?;
    for (index, left) in wanted.iter().enumerate().skip(next) {
        if left.len > 0 {
            return Err(left.missing());
        }
        found(index, left.check(Bytes::new())?);
    }
    Ok(())
}

pub(crate) fn read_u64(reader: &dyn Reader, key: &[u8]) -> Result<Option<u64>, StorageError> {
    reader
        .get(key)?
        .map(|bytes| {
            Cursor(&bytes)
                .u64()
                .ok_or_else(|| StorageError::Corrupt("a store setting is damaged".into()))
        })
        .transpose()
}

pub(crate) fn read_u32(reader: &dyn Reader, key: &[u8]) -> Result<Option<u32>, StorageError> {
    reader
        .get(key)?
        .map(|bytes| {
            Cursor(&bytes)
                .u32()
                .ok_or_else(|| StorageError::Corrupt("a store setting is damaged".into()))
        })
        .transpose()
}

pub(crate) fn put_u64(key: &[u8], value: u64) -> Write {
    Write::Put(key.to_vec(), Bytes::copy_from_slice(&value.to_le_bytes()))
}

pub(crate) fn put_u32(key: &[u8], value: u32) -> Write {
    Write::Put(key.to_vec(), Bytes::copy_from_slice(&value.to_le_bytes()))
}
