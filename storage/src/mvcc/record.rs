//! How the log looks in the ordered-key store. This file is the on-disk format; docs/storage.md describes it in prose.
//!
//! | key | value |
//! |---|---|
//! | `h` revision seq | header of one change ([`Header`]) behind its own place, twice ([`checked`]) |
//! | `v` revision seq chunk | its value, in chunks of `chunk` bytes; the header has its checksum |
//! | `m/format` | format version (u32) |
//! | `m/becoming` | the version that a migration under way leads to (u32) |
//! | `m/chunk` | chunk length (u32), fixed when the store is made |
//! | `m/restoring` | nothing; there while a backup is being restored |
//! | `m/oldest` | oldest readable revision (u64) |
//! | `m/revision` | a floor for the newest revision (u64): log records above it count, records need not reach it |
//!
//! Numbers in keys are big-endian, so that key order is revision order; numbers in values are little-endian. Settings (`m/`) are
//! [`checked`], too. In version 1 headers and settings stood alone, without place and checksum.

use bytes::Bytes;

use super::checked;
use super::kv::{Reader, Write};
use crate::{Damage, Revision, StorageError};

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

/// The metadata of a change, without its value.
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

const PLACE: usize = 8 + 4;
const FIXED: usize = 1 + 8 + 8 + 8 + 4 + 8 + 4 + 4;
const KIND_DELETE: u8 = 0;
const KIND_PUT: u8 = 1;

impl Header {
    /// As it is stored at `at`.
    pub(crate) fn encode(&self, at: Location) -> Bytes {
        let mut body = Vec::with_capacity(PLACE + FIXED + self.key.len());
        body.extend_from_slice(&at.rev.to_le_bytes());
        body.extend_from_slice(&at.seq.to_le_bytes());
        self.encode_fields(&mut body);
        checked::encode(&body)
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        let prev = self.prev.unwrap_or(Location { rev: 0, seq: 0 });
        out.push(if self.delete { KIND_DELETE } else { KIND_PUT });
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        out.extend_from_slice(&self.create.to_le_bytes());
        out.extend_from_slice(&prev.rev.to_le_bytes());
        out.extend_from_slice(&prev.seq.to_le_bytes());
        out.extend_from_slice(&self.expires_ms.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
    }

    pub(crate) fn wanted(&self, at: Location) -> Wanted {
        Wanted {
            at,
            len: self.len,
            crc: self.crc,
        }
    }

    /// A header with the place it was written for. `None` when it is damaged.
    pub(crate) fn decode(stored: &[u8]) -> Option<(Location, Header)> {
        let mut fields = Cursor(checked::decode(stored)?);
        let at = Location {
            rev: fields.u64()?,
            seq: fields.u32()?,
        };
        Some((at, Header::decode_fields(fields.0)?))
    }

    /// The header stored at `at`. `None` when it is damaged, or was written for another place.
    pub(crate) fn decode_at(at: Location, stored: &[u8]) -> Option<Header> {
        let (place, header) = Header::decode(stored)?;
        (place == at).then_some(header)
    }

    /// As version 1 stored it.
    #[cfg(test)]
    pub(crate) fn encode_v1(&self) -> Bytes {
        let mut out = Vec::with_capacity(FIXED + self.key.len());
        self.encode_fields(&mut out);
        out.into()
    }

    /// A header as version 1 stored it. `None` when it is not one.
    pub(crate) fn decode_fields(bytes: &[u8]) -> Option<Header> {
        let mut at = Cursor(bytes);
        let kind = at.take::<1>()?[0];
        if kind > KIND_PUT {
            return None;
        }
        let time_ms = at.u64()?;
        let create = at.u64()?;
        let prev = Location {
            rev: at.u64()?,
            seq: at.u32()?,
        };
        let expires_ms = at.u64()?;
        let len = at.u32()?;
        let crc = at.u32()?;
        let key = std::str::from_utf8(at.0).ok()?.to_owned();
        Some(Header {
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

pub(crate) fn parse_header_key(key: &[u8]) -> Option<Location> {
    match parse_key(b"h", key) {
        Some((at, [])) => Some(at),
        _ => None,
    }
}

/// Whether a key is that of a setting. They follow the log's headers. No damaged byte makes one of a header's key: the number there
/// would have to begin with a slash.
pub(crate) fn is_setting(key: &[u8]) -> bool {
    key.starts_with(b"m/")
}

/// Whether all keys greater than this one are those of values, which follow headers and settings. It may be cut short.
pub(crate) fn is_after_headers(key: &[u8]) -> bool {
    key.starts_with(b"v")
}

/// A change whose header is lost, with its key. What is left of the key is a hint for the operator; nothing is decided by it.
pub(crate) fn lost_header(at: Location, stored: &[u8]) -> Damage {
    let hint = match remains_of_key(stored) {
        Some(key) => format!(", its key may have been `{key}`"),
        None => String::new(),
    };
    Damage {
        key: None,
        revision: Revision(at.rev),
        place: at.seq,
        what: format!("the header of a change at revision {} is damaged{hint}", at.rev),
    }
}

/// What the copies of a damaged header agree on as its key: a question mark stands for a byte that they do not, and for one that is
/// in no key. `None` where that is nothing like a key, so that no foreign bytes come into a log.
fn remains_of_key(stored: &[u8]) -> Option<String> {
    const SHOWN: usize = 300;
    let [first, second] = checked::copies(stored)?;
    let (first, second) = (first.get(PLACE + FIXED..)?, second.get(PLACE + FIXED..)?);
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._:".contains(&byte);
    let pairs = first.iter().zip(second).take(SHOWN);
    let key: String = pairs
        .map(|(first, second)| match first == second && is_of_key(*first) {
            true => char::from(*first),
            false => '?',
        })
        .collect();
    let unknown = key.matches('?').count();
    (key.starts_with('/') && unknown <= key.len() / 4).then_some(key)
}

/// Where the record is of which this is the key of the header or of a value.
pub(crate) fn location(key: &[u8]) -> Option<Location> {
    parse_header_key(key).or_else(|| parse_value_key(key))
}

fn parse_value_key(key: &[u8]) -> Option<Location> {
    match parse_key(b"v", key) {
        Some((at, [_, _, _, _])) => Some(at),
        _ => None,
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
    batch.push(Write::Put(header_key(at), header.encode(at)));
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

    /// The value when no more chunks follow: an empty one has no record at all.
    fn ended(&self, value: &mut Vec<u8>) -> Result<Bytes, StorageError> {
        let value = std::mem::take(value);
        if value.is_empty() && self.len > 0 {
            return Err(self.missing());
        }
        self.check(value.into())
    }

    fn missing(&self) -> StorageError {
        StorageError::Corrupt(format!(
            "the value written at revision {} is missing",
            self.at.rev
        ))
    }
}

/// How many bytes are stored as the value of a change whose header does not say.
pub(crate) fn stored_len(reader: &dyn Reader, at: Location) -> Result<u32, StorageError> {
    let mut len = 0;
    let (from, to) = (value_key(at, 0), value_key(at, u32::MAX));
    reader.scan(&from, &to, &mut |_, chunk| {
        len += chunk.len();
        Ok(true)
    })?;
    Ok(u32::try_from(len).unwrap_or(u32::MAX))
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

/// Reads values that lie close together, given in the order of their places, in one pass. A value that cannot be read is an error
/// of its own; the pass goes on. Fails when the engine does.
pub(crate) fn scan_values(
    reader: &dyn Reader,
    wanted: &[Wanted],
    mut found: impl FnMut(usize, Result<Bytes, StorageError>),
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
            // A key that is not one belongs to a value that will be found missing.
            let Some(at) = parse_value_key(key) else {
                return Ok(true);
            };
            while let Some(passed) = wanted.get(next).filter(|wanted| wanted.at < at) {
                found(next, passed.ended(&mut value));
                next += 1;
            }
            let Some(here) = wanted.get(next) else {
                return Ok(false);
            };
            if here.at > at {
                return Ok(true);
            }
            if value.is_empty() {
                value.reserve_exact(here.len as usize);
            }
            value.extend_from_slice(chunk);
            if value.len() >= here.len as usize {
                found(next, here.check(std::mem::take(&mut value).into()));
                next += 1;
            }
            Ok(true)
        },
    )?;
    for (index, left) in wanted.iter().enumerate().skip(next) {
        found(index, left.ended(&mut value));
    }
    Ok(())
}

/// A setting's bytes. Fails with `Corrupt` when both of its copies are damaged.
fn read_setting(reader: &dyn Reader, key: &[u8], len: usize) -> Result<Option<Bytes>, StorageError> {
    let Some(stored) = reader.get(key)? else {
        return Ok(None);
    };
    // Version 1 has the number alone. A damaged byte does not change the length.
    if stored.len() == len {
        return Ok(Some(stored));
    }
    let body = checked::decode(&stored).ok_or_else(|| bad_setting(key))?;
    Ok(Some(stored.slice_ref(body)))
}

/// The revision that a setting says the store has been at, where it is one that does and can be read.
pub(crate) fn parse_revision_setting(key: &[u8], stored: &[u8]) -> Option<u64> {
    if key != META_OLDEST && key != META_REVISION {
        return None;
    }
    let body = match stored.len() {
        8 => stored,
        _ => checked::decode(stored)?,
    };
    Cursor(body).u64()
}

fn bad_setting(key: &[u8]) -> StorageError {
    StorageError::Corrupt(format!(
        "the store's setting `{}` is damaged",
        String::from_utf8_lossy(key)
    ))
}

pub(crate) fn read_u64(reader: &dyn Reader, key: &[u8]) -> Result<Option<u64>, StorageError> {
    read_setting(reader, key, 8)?
        .map(|bytes| Cursor(&bytes).u64().ok_or_else(|| bad_setting(key)))
        .transpose()
}

pub(crate) fn read_u32(reader: &dyn Reader, key: &[u8]) -> Result<Option<u32>, StorageError> {
    read_setting(reader, key, 4)?
        .map(|bytes| Cursor(&bytes).u32().ok_or_else(|| bad_setting(key)))
        .transpose()
}

pub(crate) fn put_u64(key: &[u8], value: u64) -> Write {
    Write::Put(key.to_vec(), checked::encode(&value.to_le_bytes()))
}

pub(crate) fn put_u32(key: &[u8], value: u32) -> Write {
    Write::Put(key.to_vec(), checked::encode(&value.to_le_bytes()))
}

/// As version 1 stored it.
#[cfg(test)]
pub(crate) fn put_u32_v1(key: &[u8], value: u32) -> Write {
    Write::Put(key.to_vec(), Bytes::copy_from_slice(&value.to_le_bytes()))
}

/// As version 1 stored it.
#[cfg(test)]
pub(crate) fn put_u64_v1(key: &[u8], value: u64) -> Write {
    Write::Put(key.to_vec(), Bytes::copy_from_slice(&value.to_le_bytes()))
}
