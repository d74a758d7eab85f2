//! Keys, bytes, revisions and events: the contract that a Kubernetes API server needs of a store, and nothing of Kubernetes itself.
//!
//! # The contract
//!
//! - **One revision counter for the whole store.** Every committed transaction that changes something takes the next
//!   [`Revision`]; all of its operations share it. Revisions never go back, not across restarts and not across a restore.
//! - **A commit is all or nothing** ([`Store::commit`]): its guards are checked against the newest state, in the same
//!   atomic step in which its operations are applied. When it answers [`Outcome::Committed`], the change survives
//!   `kill -9` and power loss (the memory engine excepted).
//! - **Reads are at a revision**: the newest when none is named, else exactly that one, until it is compacted
//!   ([`StorageError::Compacted`]); a revision of the future is [`StorageError::FutureRevision`].
//! - **A watch delivers every event once, in revision order**, into a [`WatchSink`]; all events of one revision are
//!   delivered together. Events that it cannot deliver are an error: `Compacted` at the start, or `closed` with the reason later.
//! - **Publish before acknowledge** (in-process engines): when `commit` returns, every sink has already been given its
//!   events, so a cache fed by a sink never answers older than an acknowledged write. Engines in another process cannot
//!   promise this; [`Store::fresh`] is how a reader learns which revision it has to wait for.
//!
//! Every engine passes the same suite, `conformance`; so does the API server's cache over one.
//!
//! # Engines
//!
//! [`open`] opens an embedded one ([`EngineKind`]: redb, sled, memory), [`memory`] makes one for tests, [`open_etcd`] reaches a
//! cluster. [`Store::freeze`] keeps a state that stores can be started from. [`DirectoryLock`] is for what else is in a data directory. [`restore`] makes an embedded store of what [`Store::backup`] wrote. docs/storage.md describes how they work.
//!
//! Stores keep values as they are given. Whoever writes them encrypts them first, with [`encryption`].
#![warn(missing_docs)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod crash;
mod damage;
mod directory;
pub mod encryption;
mod engine;
mod error;
mod etcd;
mod format;
pub mod grpc;
mod mvcc;
mod options;
mod revision;

pub use damage::Damage;
pub use directory::{DirectoryLock, free_bytes, had_store};
pub use engine::{
    BackupInfo, CompactionInfo, Event, EventKind, FrozenStore, Guard, KeyValue, Op, Outcome, RangeRequest,
    RangeResponse, ScrubReport, Store, StoreStatus, Txn, WatchHandle, WatchSink,
};
pub use error::StorageError;
pub use etcd::{Dialer, EtcdOptions, open_etcd};
pub use mvcc::{
    Frozen, MvccStore, RestoreOptions, drop_lost, inspect_backup, memory, open, remove_partial_backups,
    restore, scrub, scrub_with,
};
pub use options::{EngineKind, OpenOptions};
pub use revision::Revision;
