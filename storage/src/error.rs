//! The one error type of this crate: one variant per kind of failure, with its source behind it.

use crate::Revision;

/// Why a storage operation did not succeed. Display states this layer only; `source()` has the rest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The asked revision is older than the oldest one still kept.
    #[error("revision {asked} has been compacted, the oldest kept is {oldest}")]
    Compacted {
        /// The revision that was asked for.
        asked: Revision,
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The asked revision has not been written yet.
    #[error("revision {asked} is newer than the newest, {newest}")]
    FutureRevision {
        /// The revision that was asked for.
        asked: Revision,
        /// The newest revision of the store.
        newest: Revision,
    },
    /// A value, key or transaction is larger than the engine takes.
    #[error("request too large: {0}")]
    TooLarge(String),
    /// The disk has too little free space for another write; reads go on.
    #[error("the store has too little free space: {0}")]
    NoSpace(String),
    /// The engine cannot be reached or has been shut down; the operation may be tried again.
    #[error("storage is unavailable: {message}")]
    Unavailable {
        /// A description of the failure.
        message: String,
        /// The failure below.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The outcome is unknown: the write may or may not have happened.
    #[error("the outcome of the write is unknown: {0}")]
    Uncertain(String),
    /// The data directory, or the data in it, is in use by another process.
    #[error("the data directory is locked by {0}")]
    Locked(String),
    /// There was a store, and it is not there any more.
    #[error("the store is gone: {0}")]
    Gone(String),
    /// The data directory was written by a newer version of this program.
    #[error("the data directory has format version {found}, this program reads up to {supported}")]
    NewerFormat {
        /// The version that the directory carries.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
    /// Stored bytes cannot be understood (damage, or a wrong key for decryption).
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// The engine below failed.
    #[error("{message}")]
    Engine {
        /// The operation that failed.
        message: String,
        /// The failure below.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}
