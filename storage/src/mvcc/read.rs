//! Reads and watches: on any thread, beside the writer.

use std::sync::Arc;

use bytes::Bytes;

use super::Shared;
use super::hub::Watcher;
use super::index::{Pin, Version};
use super::kv::Reader;
use super::queue::shut_down;
use super::record::{self, Header, Location};
use crate::{
    Damage, Event, EventKind, KeyValue, RangeRequest, RangeResponse, Revision, StorageError, StoreStatus,
    WatchHandle, WatchSink,
};

/// Replays are handed over in pieces of about this size, cut between revisions.
const REPLAY_EVENTS: usize = 256;
const REPLAY_BYTES: usize = 4 << 20;
/// A replay joins the live stream, with publication held up, once it is this close.
const REPLAY_JOIN: u64 = 64;
/// Values no more than this many revisions apart are read in one pass, if there are enough of them.
const SCAN_GAP: u64 = 4;
const SCAN_FROM: usize = 32;
const REPLAY_ROUNDS: usize = 4;

impl Shared {
    /// Runs `read` on the ordered-key store, which stays open for that long. Entries that the index had before are there,
    /// those that it says later need not be: a reader may be a snapshot.
    pub(super) fn with_reader<T>(
        &self,
        read: impl FnOnce(&dyn Reader) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let kv = self.kv.read();
        let reader = kv.as_ref().ok_or_else(shut_down)?.reader()?;
        read(&*reader)
    }

    /// A key with its value. Fails when the engine does; a damaged value is marked as such.
    pub(super) fn load(
        &self,
        reader: &dyn Reader,
        key: &Arc<str>,
        version: Version,
    ) -> Result<KeyValue, StorageError> {
        let value = record::read_value(reader, version.wanted(), self.chunk_len);
        self.pair(key.clone(), version.at(), version.create, value)
    }

    fn pair(
        &self,
        key: Arc<str>,
        at: Location,
        create: u64,
        value: Result<Bytes, StorageError>,
    ) -> Result<KeyValue, StorageError> {
        let (value, damage) = match value {
            Ok(value) => (value, None),
            Err(StorageError::Corrupt(what)) => {
                let damage = self.damaged.report(Damage {
                    key: Some(key.clone()),
                    revision: Revision(at.rev),
                    place: at.seq,
                    what,
                });
                (Bytes::from_static(KeyValue::UNREADABLE), Some(damage))
            }
            Err(error) => return Err(error),
        };
        Ok(KeyValue {
            key,
            value,
            create_revision: Revision(create),
            mod_revision: Revision(at.rev),
            damage,
        })
    }

    /// As `load`, of many. Values that lie close together in the log are read in one pass instead of being looked up.
    fn load_all(
        &self,
        reader: &dyn Reader,
        found: Vec<(Arc<str>, Version)>,
    ) -> Result<Vec<KeyValue>, StorageError> {
        if !self.on_disk {
            return found
                .iter()
                .map(|(key, version)| self.load(reader, key, *version))
                .collect();
        }
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_unstable_by_key(|index| found[*index].1.at());
        let mut values: Vec<_> = found.iter().map(|_| Ok(Bytes::new())).collect();
        for run in order.chunk_by(|a, b| found[*b].1.rev - found[*a].1.rev <= SCAN_GAP) {
            let wanted: Vec<_> = run.iter().map(|index| found[*index].1.wanted()).collect();
            let mut one_by_one = run.len() < SCAN_FROM;
            if !one_by_one {
                let set = |position: usize, value| values[run[position]] = value;
                match record::scan_values(reader, &wanted, set) {
                    // Where one pass cannot get through, some of the values can still be reached.
                    Err(StorageError::Corrupt(_)) => one_by_one = true,
                    passed => passed?,
                }
            }
            for (index, wanted) in run.iter().zip(&wanted) {
                // What a pass over a damaged page does not meet may still be found by its key.
                if one_by_one || matches!(values[*index], Err(StorageError::Corrupt(_))) {
                    values[*index] = record::read_value(reader, *wanted, self.chunk_len);
                }
            }
        }
        found
            .into_iter()
            .zip(values)
            .map(|((key, version), value)| self.pair(key, version.at(), version.create, value))
            .collect()
    }

    pub(super) fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        let (pin, found) = {
            let index = self.index.read();
            let rev = index.resolve(at)?;
            let found = index
                .get_at(key, rev)
                .map(|version| (index.shared_key(key), version));
            (self.pins.pin(rev), found)
        };
        self.with_reader(|reader| {
            let pair = found
                .map(|(key, version)| self.load(reader, &key, version))
                .transpose()?;
            Ok((pair, Revision(pin.rev)))
        })
    }

    pub(super) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, StorageError> {
        let (index, pin) = self.snapshot(request.at)?;
        let limit = match request.limit {
            _ if request.count_only => 0,
            0 => usize::MAX,
            limit => limit,
        };
        let mut found = Vec::new();
        let mut count = 0u64;
        for (key, version) in index.range(&request.prefix, request.start.as_deref(), pin.rev) {
            if found.len() < limit {
                found.push((key.clone(), version));
            }
            count += 1;
        }
        // While a snapshot is held, the writer copies what it changes.
        drop(index);
        self.with_reader(|reader| {
            let kvs = self.load_all(reader, found)?;
            Ok(RangeResponse {
                kvs,
                count,
                revision: Revision(pin.rev),
            })
        })
    }

    pub(super) fn snapshot(&self, at: Option<Revision>) -> Result<(super::Index, Pin), StorageError> {
        let index = self.index.read();
        let rev = index.resolve(at)?;
        Ok((index.clone(), self.pins.pin(rev)))
    }

    pub(super) fn status(&self) -> Result<StoreStatus, StorageError> {
        if let Some(reason) = &*self.failed.lock() {
            return Err(StorageError::Unavailable {
                message: reason.clone(),
                source: None,
            });
        }
        let size_bytes = self.kv.read().as_ref().ok_or_else(shut_down)?.size_bytes();
        let index = self.index.read();
        Ok(StoreStatus {
            engine: self.engine,
            revision: Revision(index.revision),
            oldest: Revision(index.oldest),
            size_bytes,
            keys: Some(index.live),
        })
    }

    pub(super) fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        let watcher = Arc::new(Watcher::new(prefix, sink));
        // Keeps everything that is to be replayed, and what it replaced.
        let _pin = {
            let index = self.index.read();
            let rev = index.resolve(Some(after))?;
            self.pins.pin(rev)
        };
        let mut done = after.0;
        for _ in 0..REPLAY_ROUNDS {
            let newest = self.index.read().revision;
            if newest - done <= REPLAY_JOIN {
                break;
            }
            self.replay(&watcher, done, newest)?;
            done = newest;
        }
        let mut hub = self.hub.lock();
        if hub.is_closed() {
            return Err(shut_down());
        }
        // The index does not change while the hub is locked.
        let newest = self.index.read().revision;
        self.replay(&watcher, done, newest)?;
        watcher.sink.progress(Revision(newest));
        hub.add(&watcher, Revision(newest));
        drop(hub);
        Ok(WatchHandle::guarding(watcher))
    }

    /// Delivers the watcher's events of `after < revision <= to`.
    fn replay(&self, watcher: &Watcher, after: u64, to: u64) -> Result<(), StorageError> {
        if after == to {
            return Ok(());
        }
        // A reader made now sees everything up to `to`.
        self.with_reader(|reader| {
            let mut events: Vec<Event> = Vec::new();
            let mut bytes = 0;
            let (from, until) = record::header_range(after + 1, Some(to + 1));
            reader.scan(&from, &until, &mut |key, value| {
                let Some((at, header)) =
                    record::parse_header_key(key).and_then(|at| Some((at, Header::decode_at(at, value)?)))
                else {
                    return Err(self.lost_header(key, value, after));
                };
                if !header.key.starts_with(&*watcher.prefix) {
                    return Ok(true);
                }
                let full = events.len() >= REPLAY_EVENTS || bytes >= REPLAY_BYTES;
                if let Some(last) = events.last().map(|event| event.kv.mod_revision)
                    && full
                    && last.0 < at.rev
                {
                    watcher.sink.events(last, &events);
                    events.clear();
                    bytes = 0;
                }
                let event = self.logged_event(reader, at, &header)?;
                bytes += event.kv.value.len();
                events.push(event);
                Ok(true)
            })?;
            if !events.is_empty() {
                watcher.sink.events(Revision(to), &events);
            }
            Ok(())
        })
    }

    fn logged_event(
        &self,
        reader: &dyn Reader,
        at: Location,
        header: &Header,
    ) -> Result<Event, StorageError> {
        let key: Arc<str> = header.key.as_str().into();
        let prev = match header.prev {
            None => None,
            Some(at) => {
                let stored = reader.get(&record::header_key(at))?;
                let prev = stored.and_then(|stored| Header::decode_at(at, &stored));
                let value = match &prev {
                    Some(prev) => record::read_value(reader, prev.wanted(at), self.chunk_len),
                    None => Err(StorageError::Corrupt(format!(
                        "the change at revision {} is damaged",
                        at.rev
                    ))),
                };
                let create = prev.map_or(header.create, |prev| prev.create);
                Some(self.pair(key.clone(), at, create, value)?)
            }
        };
        let value = record::read_value(reader, header.wanted(at), self.chunk_len);
        let create = if header.delete { 0 } else { header.create };
        Ok(Event {
            kind: if header.delete {
                EventKind::Delete
            } else {
                EventKind::Put
            },
            kv: self.pair(key, at, create, value)?,
            prev,
        })
    }

    /// A change that no watch can receive any more, because its key cannot be read. History is complete only from there on, so the
    /// watcher lists again.
    fn lost_header(&self, key: &[u8], stored: &[u8], after: u64) -> StorageError {
        let at = record::parse_header_key(key).unwrap_or(Location {
            rev: after + 1,
            seq: 0,
        });
        self.damaged.report(record::lost_header(at, stored));
        StorageError::Compacted {
            asked: Revision(after),
            oldest: Revision(at.rev),
        }
    }
}
