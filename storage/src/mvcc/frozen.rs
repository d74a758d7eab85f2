//! A state of a store that stays as it is: forks start from it, and the store, or a fork of it, can be put back to it.
//!
//! Of the engine in memory it is a few pointers: the map of the log, the index and the bookkeeping are persistent structures, of which
//! either side copies the nodes that it changes. Of an engine on disk the retained log is copied into memory once.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::index::{Index, Pin, Version};
use super::kv::{Kv, Map, Write};
use super::kv_memory::MemoryKv;
use super::queue::shut_down;
use super::writer::{Bookkeeping, Past, Request};
use super::{MvccStore, Shared, in_memory, record};
use crate::damage::Damaged;
use crate::{EngineKind, FrozenStore, OpenOptions, Outcome, Revision, StorageError, Store};

/// Forks of forks whose states a store can still be put back to. Older ones are refused.
const GENERATIONS: usize = 64;
/// Records of an engine on disk that are copied at once.
const COPY: usize = 4096;

/// Which states are of a store's own past: its own, and those of the stores that it was forked from, up to where it was. A revision
/// means the same change in all of these.
#[derive(Debug, Clone)]
pub(super) struct Lineage {
    id: u64,
    /// The stores above, the nearest last, and the newest revision in common with each.
    above: Arc<[(u64, u64)]>,
}

impl Lineage {
    /// Of a store that was not forked from another.
    pub(super) fn first() -> Lineage {
        Lineage::below(Arc::default())
    }

    fn below(above: Arc<[(u64, u64)]>) -> Lineage {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Lineage {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            above,
        }
    }

    /// Of a store that begins as this one is at a revision.
    fn fork(&self, revision: u64) -> Lineage {
        let skipped = (self.above.len() + 1).saturating_sub(GENERATIONS);
        let above = self.above.iter().skip(skipped).copied();
        Lineage::below(above.chain([(self.id, revision)]).collect())
    }

    fn has_been(&self, other: &Lineage, revision: u64) -> bool {
        let above = || (self.above.iter()).any(|(id, shared)| *id == other.id && revision <= *shared);
        self.id == other.id || above()
    }
}

/// See the module.
pub struct Frozen {
    kv: Map,
    index: Index,
    book: Bookkeeping,
    chunk_len: u32,
    damaged: Damaged,
    lineage: Lineage,
    options: OpenOptions,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

impl FrozenStore for Frozen {
    fn revision(&self) -> Revision {
        Revision(self.index.revision)
    }

    fn start(&self) -> Arc<dyn Store> {
        Frozen::start(self)
    }
}

impl Frozen {
    /// An independent store in memory with this content and history.
    pub fn start(&self) -> Arc<MvccStore> {
        MvccStore::run(
            Box::new(MemoryKv::of(self.kv.clone())),
            self.chunk_len,
            self.index.clone(),
            self.book.clone(),
            self.damaged.share(),
            self.lineage.fork(self.index.revision),
            None,
            self.options.clone(),
        )
    }

    /// The value of a version of it.
    fn value(&self, version: Version) -> Result<Bytes, StorageError> {
        let kv = MemoryKv::of(self.kv.clone());
        record::read_value(&*kv.reader()?, version.wanted(), self.chunk_len)
    }
}

impl Past for Frozen {
    fn at(&self, key: &str) -> Result<Option<(Bytes, Option<u64>)>, StorageError> {
        let Some(version) = self.index.get(key) else {
            return Ok(None);
        };
        Ok(Some((self.value(version)?, self.book.end_of(key))))
    }

    fn changed(&self, now: &Index) -> Vec<Arc<str>> {
        self.index.changed(now)
    }
}

impl MvccStore {
    /// The newest state with its history, kept as it is. Of the memory engine it costs nothing that grows with the store; of an engine
    /// on disk the retained log is copied into memory, while writes go on.
    ///
    /// # Errors
    /// When the store has been shut down, its last batch has failed, or it cannot be read.
    pub async fn freeze(&self) -> Result<Arc<Frozen>, StorageError> {
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(Request::Freeze { reply }, 0).await?;
        let taken = answer.await.map_err(|_| shut_down())??;
        let (mut index, pin) = (taken.index, taken.pin);
        let kv = match taken.kv {
            Some(kv) => kv,
            None => {
                let (kv, oldest) = self.blocking(move |shared| shared.copy_log(&pin)).await?;
                // History that was compacted meanwhile may not have been copied.
                index.oldest = index.oldest.max(oldest);
                kv
            }
        };
        Ok(Arc::new(Frozen {
            kv,
            index,
            book: taken.book,
            chunk_len: self.shared.chunk_len,
            damaged: self.shared.damaged.share(),
            lineage: self.shared.lineage.clone(),
            options: in_memory(OpenOptions {
                engine: EngineKind::Memory,
                dir: None,
                ..self.options.clone()
            }),
        }))
    }

    /// An independent store in memory with the same content and history. Watches stay with the original.
    ///
    /// # Errors
    /// As [`MvccStore::freeze`].
    pub async fn fork(&self) -> Result<Arc<MvccStore>, StorageError> {
        Ok(self.freeze().await?.start())
    }

    /// See [`Store::reset`].
    pub(super) async fn reset_to(&self, to: &Arc<dyn FrozenStore>) -> Result<Revision, StorageError> {
        let any: Arc<dyn Any + Send + Sync> = to.clone();
        let to = any.downcast::<Frozen>().ok();
        let to = to.filter(|to| self.shared.lineage.has_been(&to.lineage, to.index.revision));
        let Some(to) = to else {
            return Err(StorageError::Engine {
                message: "a store can only be put back to a state of its own past".into(),
                source: None,
            });
        };
        let (reply, answer) = oneshot::channel();
        self.shared.queue.push(Request::Reset { to, reply }, 0).await?;
        let stopped = || StorageError::Uncertain("the storage writer has stopped".into());
        match answer.await.map_err(|_| stopped())?? {
            Outcome::Committed(revision) | Outcome::Conflict { revision, .. } => Ok(revision),
        }
    }
}

impl Shared {
    /// The settings and all records up to the revision of the pin, and the oldest revision that can be read in them.
    fn copy_log(&self, pin: &Pin) -> Result<(Map, u64), StorageError> {
        let copy = MemoryKv::default();
        self.with_reader(|reader| {
            let mut batch = Vec::new();
            reader.scan(b"", &[0xff; 32], &mut |key, value| {
                // Keys that are not those of a record are settings, or damaged, of which the index tells already.
                if record::location(key).is_none_or(|at| at.rev <= pin.rev) {
                    batch.push(Write::Put(key.to_vec(), Bytes::copy_from_slice(value)));
                }
                if batch.len() >= COPY {
                    copy.apply(&std::mem::take(&mut batch))?;
                }
                Ok(true)
            })?;
            copy.apply(&batch)
        })?;
        Ok((copy.content(), self.index.read().oldest))
    }
}
