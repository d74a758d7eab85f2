//! The small trait between the API server and an engine. The crate's documentation holds the contract.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Damage, Revision, StorageError};

/// A key with its value at some revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The whole key, as it was written.
    pub key: Arc<str>,
    /// The value's bytes. Of a damaged one, bytes that no decoder takes ([`KeyValue::UNREADABLE`]).
    pub value: Bytes,
    /// The revision of the write that created this incarnation of the key.
    pub create_revision: Revision,
    /// The revision of the newest write to it.
    pub mod_revision: Revision,
    /// Why the value cannot be read, when it cannot. The key is there all the same: guards on it hold, and it can be overwritten
    /// and deleted. Whoever decodes values treats it as one that cannot be decoded.
    pub damage: Option<Arc<Damage>>,
}

impl KeyValue {
    /// In place of a damaged value: neither JSON nor YAML nor protobuf, so that a reader that ignores `damage` cannot take it for
    /// one.
    pub const UNREADABLE: &[u8] = b"\xff\xffdamaged";

    /// The value, or why it cannot be read.
    ///
    /// # Errors
    /// When the stored value fails its checksum or is missing.
    pub fn readable(&self) -> Result<&Bytes, &Damage> {
        match &self.damage {
            None => Ok(&self.value),
            Some(damage) => Err(damage),
        }
    }
}

/// Which keys to read, and when.
#[derive(Debug, Clone, Default)]
pub struct RangeRequest {
    /// Only keys that begin with this. Empty for all.
    pub prefix: String,
    /// Only keys that sort at or after this one (inclusive), within the prefix.
    pub start: Option<String>,
    /// At most this many pairs; zero is no limit.
    pub limit: usize,
    /// The state at this revision; the newest when `None`.
    pub at: Option<Revision>,
    /// Count only: no pairs are returned.
    pub count_only: bool,
}

/// The content of a range.
#[derive(Debug, Clone, Default)]
pub struct RangeResponse {
    /// Pairs in key order.
    pub kvs: Vec<KeyValue>,
    /// How many pairs match from `start` on, `kvs` included, regardless of the limit.
    pub count: u64,
    /// The revision that was read (the newest at that moment when none was asked for).
    pub revision: Revision,
}

/// A condition on a key's newest state: its mod revision, or absence (`Revision(0)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The key looked at.
    pub key: String,
    /// The mod revision it must have; zero: it must not exist.
    pub mod_revision: Revision,
}

/// A change to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes a value. With `ttl` the key is deleted by the store once that time has passed (seconds granularity, never early).
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Bytes,
        /// How long it lives; for ever when `None`.
        ttl: Option<Duration>,
    },
    /// Deletes the key; nothing happens when it is absent.
    Delete {
        /// The key.
        key: String,
    },
}

/// Guards and operations that happen together or not at all. A key may be written once in a transaction.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    /// All must hold.
    pub guards: Vec<Guard>,
    /// Applied in order.
    pub ops: Vec<Op>,
}

/// How a transaction ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is durable, at this revision (for one that changed nothing: the newest revision).
    Committed(Revision),
    /// A guard did not hold; nothing was changed.
    Conflict {
        /// The index of the first guard that failed.
        guard: usize,
        /// The newest state of that guard's key.
        current: Option<KeyValue>,
        /// The store's newest revision when the guard was checked.
        revision: Revision,
    },
}

/// The kind of change to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// It was created or overwritten (created when `kv.create_revision == kv.mod_revision`).
    Put,
    /// It was deleted; the event's `kv` holds the key, an empty value and the revision of the deletion as `mod_revision`.
    Delete,
}

/// One change, with the previous value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Put or delete.
    pub kind: EventKind,
    /// The state after.
    pub kv: KeyValue,
    /// The state before, when there was one and the engine still has it (engines in process always do).
    pub prev: Option<KeyValue>,
}

/// Receives a watch. Called by the engine on its own thread or task, in revision order: implementations return quickly
/// and never block on the store.
pub trait WatchSink: Send + Sync {
    /// Events of one or more whole revisions, in order. `revision` is the newest revision that they (and everything
    /// before them) cover.
    fn events(&self, revision: Revision, events: &[Event]);
    /// Nothing else has happened under the prefix up to this revision.
    fn progress(&self, revision: Revision);
    /// The watch is over; nothing follows. The watcher has to start over.
    fn closed(&self, error: StorageError);
}

/// Ends its watch when dropped.
#[derive(Debug)]
pub struct WatchHandle {
    on_drop: Option<tokio::sync::oneshot::Sender<()>>,
    guard: Option<Arc<dyn fmt::Debug + Send + Sync>>,
}

impl WatchHandle {
    /// A handle whose drop fires `signal`.
    pub fn signalling(signal: tokio::sync::oneshot::Sender<()>) -> Self {
        WatchHandle {
            on_drop: Some(signal),
            guard: None,
        }
    }

    /// A handle that keeps `guard` alive; the engine holds it weakly and forgets the watch once it is gone.
    pub fn guarding(guard: Arc<dyn fmt::Debug + Send + Sync>) -> Self {
        WatchHandle {
            on_drop: None,
            guard: Some(guard),
        }
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        if let Some(signal) = self.on_drop.take() {
            // The receiver is gone only when the watch has ended already.
            let _ = signal.send(());
        }
        self.guard.take();
    }
}

/// The state after a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionInfo {
    /// The oldest revision that can still be read.
    pub oldest: Revision,
}

/// Figures for health checks and metrics.
#[derive(Debug, Clone, Default)]
pub struct StoreStatus {
    /// The engine's name: `memory`, `redb`, `sled` or `etcd`.
    pub engine: &'static str,
    /// The newest revision.
    pub revision: Revision,
    /// The oldest readable revision.
    pub oldest: Revision,
    /// Bytes on disk, where there is one.
    pub size_bytes: Option<u64>,
    /// Live keys, where known without a scan.
    pub keys: Option<u64>,
}

/// The content of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupInfo {
    /// The state is that of this revision.
    pub revision: Revision,
    /// When it was taken, in milliseconds since 1970.
    pub time_ms: u64,
    /// How many keys it holds.
    pub keys: u64,
    /// The length of its file.
    pub bytes: u64,
    /// How many keys were left out when it was taken since their values are damaged, and how many changes were [lost](Store::lost)
    /// before. Not recorded in the file.
    pub damaged: u64,
}

/// The result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// How many changes were looked at, and the bytes of their values.
    pub records: u64,
    /// See `records`.
    pub bytes: u64,
    /// Headers that can be read in one of their two copies only. Nothing is lost; the disk is not what it should be.
    pub half_headers: u64,
    /// The changes that cannot be read, in the order of their revisions.
    pub damaged: Vec<Arc<Damage>>,
    /// The engine's own report of its structures. Only a scrub of a directory asks for it.
    pub engine: Option<String>,
}

impl ScrubReport {
    /// Whether nothing at all is wrong.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.half_headers == 0 && self.engine.is_none()
    }

    /// Adds what is not among the damage yet.
    pub(crate) fn add_damage(&mut self, found: Vec<Arc<Damage>>) {
        let place = |damage: &Arc<Damage>| (damage.revision, damage.place);
        self.damaged.extend(found);
        self.damaged.sort_by_key(place);
        self.damaged.dedup_by_key(|damage| place(damage));
    }
}

/// A state of a store that stays as it is, however the store changes, for as long as it is held.
pub trait FrozenStore: Any + Send + Sync + fmt::Debug {
    /// The revision that it is of.
    fn revision(&self) -> Revision;

    /// An independent store in memory with this content and history, which goes on from this revision. Called on any thread.
    fn start(&self) -> Arc<dyn Store>;
}

/// An engine. All methods may be called from any task, concurrently; dropping a returned future never leaves the store
/// in a half-written state (a commit whose future is dropped may still happen).
#[async_trait::async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// One key, at `at` or newest; with the revision that was read.
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError>;

    /// Keys in order, at one revision. A key with a damaged value is among them, marked as damaged.
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError>;

    /// Applies a transaction durably, or says which guard failed.
    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError>;

    /// Delivers every event under `prefix` with a revision **greater than** `after` into `sink`, first those of the past, then
    /// live ones, until the handle is dropped. `Compacted` when the past from `after` on is no longer complete. Returns once
    /// the past has been delivered (in-process engines) or the watch is established (etcd).
    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError>;

    /// A revision at or after every write acknowledged before this call, such that every sink is soon notified (`events` or
    /// `progress`) that it has been reached. In-process engines answer at once and their sinks are already there.
    async fn fresh(&self) -> Result<Revision, StorageError>;

    /// As [`fresh`](Store::fresh), but only sinks that watch under `prefix`, or above it, need to be notified. Cheaper where
    /// notification costs something, as with an etcd whose progress messages cannot be trusted.
    async fn fresh_for(&self, prefix: &str) -> Result<Revision, StorageError> {
        let _ = prefix;
        self.fresh().await
    }

    /// `fresh` without waiting, where the engine can say (in-process engines): the newest published revision.
    fn published(&self) -> Option<Revision>;

    /// Drops history older than `revision`; reads and watches before it are `Compacted` from now on.
    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError>;

    /// Whether reads and [`status`](Store::status) wait for nothing: neither a disk nor another process. Their futures are ready at once.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Figures for health checks and metrics; fails when the engine is not able to serve.
    async fn status(&self) -> Result<StoreStatus, StorageError>;

    /// Writes a snapshot of the newest state into a new file, while writes go on. Embedded engines can; a cluster has its own
    /// tools, and its engine answers `Engine`. [`restore`](crate::restore) makes a store of it.
    async fn backup(&self, file: &Path) -> Result<BackupInfo, StorageError> {
        let _ = file;
        Err(StorageError::Engine {
            message: "this storage engine is backed up with its own tools".into(),
            source: None,
        })
    }

    /// The newest state with its history: at least what was acknowledged before, and no half of a transaction. Embedded engines can;
    /// others answer `Engine`.
    async fn freeze(&self) -> Result<Arc<dyn FrozenStore>, StorageError> {
        Err(StorageError::Engine {
            message: "a store outside this process cannot be forked".into(),
            source: None,
        })
    }

    /// Makes all keys what they were in a state of this store's own past, or of the past of the store that it was forked from, in one
    /// transaction with a new revision: watches get what changes as events, and history stays as it was. Gives that revision.
    async fn reset(&self, to: &Arc<dyn FrozenStore>) -> Result<Revision, StorageError> {
        let _ = to;
        Err(StorageError::Engine {
            message: "a store outside this process cannot be put back to a state of before".into(),
            source: None,
        })
    }

    /// The damage that reads, the start and scrubs have found and that is still kept, in the order of revisions. Costs no read.
    fn damaged(&self) -> Vec<Arc<Damage>> {
        Vec::new()
    }

    /// The changes that the store was opened without, since their keys cannot be read, in the order of revisions: any key may be missing,
    /// or be what it was before. A change that a later one replaced is not among them. [`drop_lost`](crate::drop_lost) is the way out
    /// without a backup. Costs no read.
    fn lost(&self) -> Vec<Arc<Damage>> {
        Vec::new()
    }

    /// Reads every record of the log once while the store is in use, at most about `bytes_per_second`, and says which are damaged;
    /// [`damaged`](Store::damaged) has them from then on. Embedded engines can; others answer `Engine`. May be dropped at any time.
    async fn scrub(&self, bytes_per_second: u64) -> Result<ScrubReport, StorageError> {
        let _ = bytes_per_second;
        Err(StorageError::Engine {
            message: "this storage engine is checked with its own tools".into(),
            source: None,
        })
    }

    /// Ends background work and releases the data directory. Idempotent; later calls answer `Unavailable`.
    async fn shutdown(&self);
}
