//! The tiny ordered-key store that the MVCC layer stands on: get, scan, and an atomic, durable batch.
//!
//! It knows nothing of revisions. One thread writes, any number read. Adapters: [`memory`](super::kv_memory),
//! [`redb`](super::kv_redb), [`sled`](super::kv_sled), and in tests one that injects faults.

use std::fmt;

use bytes::Bytes;
use imbl::OrdMap;

use crate::StorageError;

/// One change of a batch.
#[derive(Debug, Clone)]
pub(crate) enum Write {
    Put(Vec<u8>, Bytes),
    Delete(Vec<u8>),
}

/// What a store in memory consists of. Copies share what they have in common.
pub(crate) type Map = OrdMap<Vec<u8>, Bytes>;

/// Called for each pair of a scan, in key order; `false` ends it.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool, StorageError>;

/// Reads. A reader may or may not see batches applied after it was created.
pub(crate) trait Reader {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError>;
    /// Pairs with `from <= key < to`.
    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError>;

    /// The pages so far that failed their checksums and were read as they are, where the reader looks at these.
    fn unsound_pages(&self) -> u64 {
        0
    }
}

/// Runs a call into an engine. Damaged data makes engines panic where they rely on it; here that is an error as any other damage.
pub(crate) fn guarded<T>(
    engine: &str,
    doing: &str,
    call: impl FnOnce() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    // A call that panics may leave the engine half changed: a batch that ends here is the store's last one.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let why = (panic.downcast_ref::<&str>().copied())
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Err(StorageError::Corrupt(format!("{engine} panicked {doing}: {why}")))
    })
}

/// An ordered-key store.
pub(crate) trait Kv: Send + Sync + fmt::Debug {
    fn name(&self) -> &'static str;

    /// Whether reads may wait for a disk.
    fn on_disk(&self) -> bool;

    /// Values longer than this are cut into chunks by the layer above.
    fn chunk_len(&self) -> usize;

    fn reader(&self) -> Result<Box<dyn Reader + '_>, StorageError>;

    /// A reader of what is on the disk, past the engine's cache. `None` where there is none.
    fn disk_reader(&self) -> Result<Option<Box<dyn Reader + '_>>, StorageError> {
        Ok(None)
    }

    /// Applies all of the batch or nothing. When it returns, the batch survives power loss. After an error nobody
    /// knows which of the two happened.
    fn apply(&self, batch: &[Write]) -> Result<(), StorageError>;

    fn size_bytes(&self) -> Option<u64>;

    /// Bytes by which it may still grow, where a file system limits it.
    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Bytes that can be written without the store growing, where it keeps room of its own. May read the whole store.
    fn reusable_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(None)
    }

    /// Closes the store and reopens it after a batch for which there was no room. Then the batch is there whole or not at all, and
    /// everything up to the revision that was acknowledged is.
    fn reopen(&mut self, _acknowledged: u64) -> Result<(), StorageError> {
        Err(StorageError::Engine {
            message: format!("a store of the engine `{}` has to be reopened", self.name()),
            source: None,
        })
    }

    /// Puts damaged pages right after what was read made no sense, as after a crash. False when the engine cannot.
    fn mend(&mut self, _acknowledged: u64) -> Result<bool, StorageError> {
        Ok(false)
    }

    /// Sets some of the disk aside, while there is room, for the deletions that are to make room once there is none.
    fn keep_reserve(&self) {}

    /// Releases the reserved space. False when there is nothing.
    fn release_reserve(&self) -> bool {
        false
    }

    /// Checks the engine's own structures, which may take reading all of it. Fails with `Corrupt`.
    fn verify(&mut self) -> Result<(), StorageError> {
        Ok(())
    }

    /// Called once when writes have paused, to prepare for a quick reopen should the process die now.
    fn mark_clean(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// All of it, where it is in memory: a copy that costs nothing.
    fn share(&self) -> Option<Map> {
        None
    }
}
