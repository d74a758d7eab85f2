//! The ordered-key store in memory. Nothing is durable; a fork shares structure with its origin.

use std::fmt;

use bytes::Bytes;
use parking_lot::RwLock;

use super::kv::{Kv, Map, Reader, Visit, Write};
use crate::StorageError;

#[derive(Default)]
pub(crate) struct MemoryKv {
    map: RwLock<Map>,
}

impl fmt::Debug for MemoryKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryKv").finish_non_exhaustive()
    }
}

impl MemoryKv {
    /// A store with this content.
    pub(crate) fn of(map: Map) -> MemoryKv {
        MemoryKv {
            map: RwLock::new(map),
        }
    }

    /// Its content.
    pub(crate) fn content(&self) -> Map {
        self.map.read().clone()
    }
}

impl Kv for MemoryKv {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn on_disk(&self) -> bool {
        false
    }

    fn chunk_len(&self) -> usize {
        // Nothing is gained by cutting here, and whole values are handed out without a copy.
        u32::MAX as usize
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, StorageError> {
        Ok(Box::new(MemoryReader(&self.map)))
    }

    fn apply(&self, batch: &[Write]) -> Result<(), StorageError> {
        let mut map = self.map.write();
        for write in batch {
            match write {
                Write::Put(key, value) => {
                    map.insert(key.clone(), value.clone());
                }
                Write::Delete(key) => {
                    map.remove(key);
                }
            }
        }
        Ok(())
    }

    fn size_bytes(&self) -> Option<u64> {
        None
    }

    fn share(&self) -> Option<Map> {
        Some(self.content())
    }
}

/// Locks per call: a snapshot held for the length of a list would make every write meanwhile copy nodes.
struct MemoryReader<'a>(&'a RwLock<Map>);

impl Reader for MemoryReader<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.0.read().get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError> {
        let snapshot = self.0.read().clone();
        for (key, value) in
            snapshot.range::<_, [u8]>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)))
        {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}
