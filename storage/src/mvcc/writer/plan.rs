//! A round of transactions: each checked against what those before it will have done.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::Shared;
use super::super::index::{Index, Version};
use super::super::kv::{Reader, Write};
use super::super::record::{self, Header, Location};
use super::Past;
use super::book::Bookkeeping;
use crate::{Event, EventKind, KeyValue, Op, Outcome, Revision, StorageError, Txn};

/// A change of this round.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: Arc<str>,
    /// `None` for a delete.
    pub(super) value: Option<Bytes>,
    pub(super) version: Version,
    pub(super) prev: Option<Version>,
    pub(super) expires_ms: u64,
}

/// A round's changes so far, on top of the index.
pub(super) struct Plan<'a> {
    shared: &'a Shared,
    index: &'a Index,
    pub(super) revision: u64,
    pub(super) changes: Vec<Change>,
    newest: HashMap<Arc<str>, usize>,
    now_ms: u64,
}

impl<'a> Plan<'a> {
    pub(super) fn new(shared: &'a Shared, index: &'a Index, now_ms: u64) -> Plan<'a> {
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
                damage: None,
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

    pub(super) fn txn(&mut self, txn: Txn) -> Result<Outcome, StorageError> {
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

    /// Plans one transaction that makes every key what it was then.
    pub(super) fn reset(&mut self, to: &dyn Past, book: &Bookkeeping) -> Result<Outcome, StorageError> {
        let changed = to.changed(self.index);
        let planned: Vec<Arc<str>> = self.newest.keys().cloned().collect();
        let mut ops = Vec::new();
        let mut seen = HashSet::new();
        for key in changed
            .iter()
            .chain(&planned)
            .filter(|key| seen.insert((*key).clone()))
        {
            let op = match (to.at(key)?, self.current_pair(key)?) {
                (None, None) => continue,
                (None, Some(_)) => Op::Delete {
                    key: key.as_ref().to_owned(),
                },
                // What this round writes may end at another time than the bookkeeping says.
                (Some((value, end)), Some(now))
                    if now.damage.is_none()
                        && now.value == value
                        && end == book.end_of(key)
                        && !self.newest.contains_key(key) =>
                {
                    continue;
                }
                (Some((value, end)), _) => Op::Put {
                    key: key.as_ref().to_owned(),
                    value,
                    ttl: end.map(|end| Duration::from_millis(end.saturating_sub(self.now_ms))),
                },
            };
            ops.push(op);
        }
        self.txn(Txn {
            guards: Vec::new(),
            ops,
        })
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

/// Writes a change into a batch.
pub(super) fn put_change(batch: &mut Vec<Write>, change: &Change, now_ms: u64, chunk_len: u32) {
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

/// A change as an event for watches.
pub(super) fn event(shared: &Shared, reader: Option<&dyn Reader>, change: &Change) -> Event {
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
            damage: None,
            key: change.key.clone(),
            value: change.value.clone().unwrap_or_default(),
            create_revision: Revision(change.version.create),
            mod_revision: Revision(change.version.rev),
        },
        prev,
    }
}
