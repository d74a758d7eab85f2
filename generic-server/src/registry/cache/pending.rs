//! Writes of this process under way: announced, so that what they stored does not have to be read back.

use std::sync::{Arc, OnceLock};

use storage::{Revision, StorageError};

use super::prepare::Expected;
use super::{Entry, ObjectCache, Prepared};

impl ObjectCache {
    /// Announces a write, so that its event does not have to be read back. The announcement ends when dropped.
    pub fn expect(self: &Arc<Self>, prepared: Prepared) -> Pending {
        let expected = Arc::new(Expected {
            prepared,
            entry: OnceLock::new(),
        });
        self.expected
            .lock()
            .entry(expected.prepared.key().clone())
            .or_default()
            .push(expected.clone());
        Pending {
            cache: self.clone(),
            expected,
        }
    }

    /// Whether storing the object again, unchanged, would make a difference. Asked of writes that change nothing.
    pub(crate) async fn is_stale(&self, entry: &Entry) -> Result<bool, StorageError> {
        if !self.codec.may_be_stale() {
            return Ok(false);
        }
        let (found, _) = self.engine.get(&entry.key, None).await?;
        let current = found.filter(|kv| kv.mod_revision == entry.revision);
        Ok(current.is_some_and(|kv| self.codec.is_stale(&kv.key, &kv.value)))
    }
}

/// A write announced to the cache.
#[derive(Debug)]
pub struct Pending {
    cache: Arc<ObjectCache>,
    expected: Arc<Expected>,
}

impl Pending {
    /// The entry of the write, once it is committed at `revision`: the cache's own, when its event has arrived.
    pub fn finish(self, revision: Revision) -> Arc<Entry> {
        match self.expected.entry.get() {
            Some(entry) if entry.revision == revision => entry.clone(),
            // A write that changed nothing, or an engine whose event is still to come.
            _ => {
                let cached = self
                    .cache
                    .snapshot()
                    .objects
                    .get(self.expected.prepared.key())
                    .cloned();
                match cached {
                    Some(entry) if entry.revision == revision => entry,
                    _ => Arc::new(self.expected.prepared.finish(revision)),
                }
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut expected = self.cache.expected.lock();
        let key = self.expected.prepared.key();
        if let Some(list) = expected.get_mut(key) {
            list.retain(|e| !Arc::ptr_eq(e, &self.expected));
            if list.is_empty() {
                expected.remove(key);
            }
        }
    }
}
