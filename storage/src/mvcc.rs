//! Revisions, history, watches and group commit, written once over a tiny ordered-key store.
//!
//! - The **log** ([`record`]) in the ordered-key store ([`kv`]) holds every retained change under its revision. A value is
//!   stored there once.
//! - The **index** ([`index`]) in memory says where each key's versions are. It holds no values and is rebuilt on open.
//! - One **writer** thread ([`writer`]) owns the store: it takes all waiting transactions as a group, checks guards, assigns
//!   revisions, makes the group durable in one batch, then changes the index, notifies the watches and answers, in that order.
//! - **Readers** work beside it on the index and pin the revision they read, so that compaction never takes a value from
//!   under them.
//!
//! Lock order: hub, then index, then pins. `kv` is read-locked by users of the ordered-key store and taken at shutdown.

mod backup;
mod checked;
mod clock;
mod close;
mod frozen;
mod hub;
mod index;
mod kv;
mod kv_memory;
mod kv_redb;
mod kv_sled;
mod lost;
mod migrate;
mod queue;
mod read;
mod record;
mod scrub;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

pub use self::backup::{RestoreOptions, inspect_backup, remove_partial_backups, restore};
use self::close::close_kv;
pub use self::frozen::Frozen;
use self::frozen::Lineage;
use self::hub::Hub;
use self::index::{Index, Pins};
use self::kv::Kv;
pub use self::lost::drop_lost;
use self::migrate::{FORMATS, Formats, MapStep};
use self::queue::{Queue, shut_down};
use self::scrub::Scrub;
pub use self::scrub::{scrub, scrub_with};
use self::writer::{Bookkeeping, Request, Writer};
use crate::damage::Damaged;
use crate::directory::{self, Directory};
use crate::{
    BackupInfo, CompactionInfo, Damage, EngineKind, FrozenStore, KeyValue, Op, OpenOptions, Outcome,
    RangeRequest, RangeResponse, Revision, ScrubReport, StorageError, Store, StoreStatus, Txn, WatchHandle,
    WatchSink,
};

/// Keys longer than this are refused.
const MAX_KEY_BYTES: usize = 16 * 1024;
/// Transactions with more bytes of values than this are refused.
const MAX_TXN_BYTES: usize = 64 << 20;
/// The engine in memory keeps no more bytes of superseded values than this.
const MEMORY_HISTORY_BYTES: u64 = 64 << 20;

/// Opens an embedded store, making it when its directory is empty.
///
/// Blocks while the index is rebuilt. Fails with `Locked` when another process has the directory or the data in it, `NewerFormat`
/// when it was written by a newer program, `Gone` when there was a store and it is not there, or not all of it, `Corrupt` when what
/// is there cannot be understood, and `Engine` (with the failure as its source) when the directory cannot be used. A damaged
/// object does not keep the store from being opened: [`Store::damaged`] reports it.
pub fn open(options: OpenOptions) -> Result<Arc<dyn Store>, StorageError> {
    Ok(MvccStore::open(options)?)
}

/// A store in memory with default options.
pub fn memory() -> Arc<dyn Store> {
    MvccStore::memory()
}

/// The state that the writer, the readers and the handle share.
#[derive(Debug)]
struct Shared {
    /// `None` once shut down.
    kv: RwLock<Option<Box<dyn Kv>>>,
    engine: &'static str,
    on_disk: bool,
    chunk_len: u32,
    index: RwLock<Index>,
    pins: Arc<Pins>,
    hub: Hub,
    queue: Queue<Request>,
    published: AtomicU64,
    /// Why no more writes are taken: a batch failed, and the state on disk is unknown.
    failed: Mutex<Option<String>>,
    damaged: Damaged,
    lineage: Lineage,
}

/// A store in this process: memory, redb or sled behind the same revisions, history and watches.
pub struct MvccStore {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    options: OpenOptions,
}

impl fmt::Debug for MvccStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.options.dir.as_deref();
        f.debug_struct("MvccStore")
            .field("engine", &self.shared.engine)
            .field("dir", &dir)
            .finish_non_exhaustive()
    }
}

impl MvccStore {
    /// A store in memory with default options.
    pub fn memory() -> Arc<MvccStore> {
        let options = OpenOptions {
            engine: EngineKind::Memory,
            ..OpenOptions::default()
        };
        let kv = Box::new(kv_memory::MemoryKv::default());
        Self::start(kv, None, in_memory(options), FORMATS.map).expect("an empty map can be read")
    }

    /// See [`open`].
    pub fn open(options: OpenOptions) -> Result<Arc<MvccStore>, StorageError> {
        Self::open_as(options, FORMATS)
    }

    fn open_as(options: OpenOptions, formats: Formats) -> Result<Arc<MvccStore>, StorageError> {
        if options.engine == EngineKind::Memory {
            let kv = Box::new(kv_memory::MemoryKv::default());
            return Self::start(kv, None, in_memory(options), formats.map);
        }
        let dir = options.dir.as_deref().ok_or_else(|| StorageError::Engine {
            message: format!(
                "the storage engine `{}` needs a data directory",
                options.engine.name()
            ),
            source: None,
        })?;
        let mut directory = Directory::open(dir, options.engine, formats.directory)?;
        if !directory.has_data() {
            let noted = directory.noted_by();
            if let Some(file) = noted.as_ref().filter(|_| !options.allow_empty) {
                return Err(StorageError::Gone(format!(
                    "`{}` is absent or empty, and `{}` says that there was one",
                    directory.data().display(),
                    file.display()
                )));
            }
            // Where there was a store, watchers have seen its revisions.
            let begin = noted.map_or(0, |_| successor(directory.reached().unwrap_or(0)));
            directory.create(|fresh| {
                let kv = open_kv(fresh, &options, 0)?;
                let made = writer::make_settings(&*kv, formats.map, begin);
                close_kv(kv, made.is_ok());
                made
            })?;
        }
        let kv = match open_kv(&directory.data(), &options, directory.reached().unwrap_or(0)) {
            Err(StorageError::Corrupt(why)) if options.allow_empty => {
                tracing::warn!(
                    why,
                    "the store does not open at what was acknowledged; an older state is allowed"
                );
                open_kv(&directory.data(), &options, 0)?
            }
            opened => opened?,
        };
        directory.note_format(formats.directory)?;
        Self::start(kv, Some(directory), options, formats.map)
    }

    fn start(
        kv: Box<dyn Kv>,
        directory: Option<Directory>,
        options: OpenOptions,
        steps: &[MapStep],
    ) -> Result<Arc<MvccStore>, StorageError> {
        Self::start_at(clock::wall_ms(), kv, directory, options, steps)
    }

    /// The same with the time that the wall clock says now.
    fn start_at(
        wall_ms: u64,
        mut kv: Box<dyn Kv>,
        mut directory: Option<Directory>,
        options: OpenOptions,
        steps: &[MapStep],
    ) -> Result<Arc<MvccStore>, StorageError> {
        let may_be_new = directory.is_none() || options.allow_empty;
        let reached = directory.as_ref().and_then(Directory::reached);
        if let Some(directory) = directory.as_ref().filter(|directory| directory.has_damage()) {
            // It is opened without a look at its pages otherwise, and writes would spread what cannot be put right.
            kv.mend(reached.unwrap_or(0))?;
            directory.note_damage(false);
        }
        let mut loaded = writer::load(&*kv, steps, may_be_new, wall_ms)?;
        if let Some(reached) =
            reached.filter(|reached| options.allow_empty && loaded.index.revision < *reached)
        {
            // What is lost had these revisions; none means two things.
            kv.apply(&writer::begin_at(successor(reached)))?;
            loaded = writer::load(&*kv, steps, may_be_new, wall_ms)?;
        }
        if let Some(directory) = &mut directory {
            directory.opened(loaded.index.revision, loaded.book.records, options.allow_empty)?;
        }
        let damaged = Damaged::loaded(loaded.damaged);
        Ok(Self::run(
            kv,
            loaded.chunk_len,
            loaded.index,
            loaded.book,
            damaged,
            Lineage::first(),
            directory,
            options,
        ))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a store, which two callers have"
    )]
    fn run(
        kv: Box<dyn Kv>,
        chunk_len: u32,
        index: Index,
        book: Bookkeeping,
        damaged: Damaged,
        lineage: Lineage,
        directory: Option<Directory>,
        options: OpenOptions,
    ) -> Arc<MvccStore> {
        let shared = Arc::new(Shared {
            engine: kv.name(),
            on_disk: kv.on_disk(),
            kv: RwLock::new(Some(kv)),
            chunk_len,
            published: AtomicU64::new(index.revision),
            index: RwLock::new(index),
            pins: Arc::default(),
            hub: Hub::default(),
            queue: Queue::new(),
            failed: Mutex::new(None),
            damaged,
            lineage,
        });
        let writer = Writer::new(shared.clone(), book, directory, options.clone());
        let thread = std::thread::Builder::new()
            .name("storage-writer".into())
            .spawn(move || writer.run())
            .expect("the system can start a thread");
        Arc::new(MvccStore {
            shared,
            writer: Mutex::new(Some(thread)),
            options,
        })
    }

    /// Runs a read where it may wait for the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        if !self.shared.on_disk {
            return read(&self.shared);
        }
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || read(&shared))
            .await
            .map_err(aborted)?
    }

    /// Refuses a transaction that is too large before it is queued. Gives the bytes of the transaction's values.
    fn check_size(&self, txn: &Txn) -> Result<usize, StorageError> {
        let mut total = 0usize;
        for op in &txn.ops {
            let (key, value) = match op {
                Op::Put { key, value, .. } => (key, value.len()),
                Op::Delete { key } => (key, 0),
            };
            if key.len() > MAX_KEY_BYTES {
                return Err(StorageError::TooLarge(format!(
                    "a key of {} bytes, the limit is {MAX_KEY_BYTES}",
                    key.len()
                )));
            }
            if value > self.options.max_value_bytes {
                return Err(StorageError::TooLarge(format!(
                    "a value of {value} bytes, the limit is {}",
                    self.options.max_value_bytes
                )));
            }
            total += value;
        }
        if total > MAX_TXN_BYTES {
            return Err(StorageError::TooLarge(format!(
                "a transaction of {total} bytes, the limit is {MAX_TXN_BYTES}"
            )));
        }
        Ok(total)
    }
}

/// How far the revisions of a store that takes another's place begin past the other's, unless set otherwise: more than could have
/// been written since it was last looked at, and little of what a revision can hold.
const MARGIN: u64 = 1_000_000_000;

/// The revision that a store begins at which takes the place of one that was at `reached` when it was last looked at.
fn successor(reached: u64) -> u64 {
    reached.saturating_add(MARGIN)
}

/// Lowers the limits that suit a disk to ones that suit memory.
fn in_memory(options: OpenOptions) -> OpenOptions {
    OpenOptions {
        max_history_bytes: options.max_history_bytes.min(MEMORY_HISTORY_BYTES),
        ..options
    }
}

fn aborted(source: tokio::task::JoinError) -> StorageError {
    StorageError::Engine {
        message: "a storage operation was aborted".into(),
        source: Some(Box::new(source)),
    }
}

/// Opens the engine, which has to have everything up to the revision that was `acknowledged`, as far as it can choose.
fn open_kv(path: &Path, options: &OpenOptions, acknowledged: u64) -> Result<Box<dyn Kv>, StorageError> {
    Ok(match options.engine {
        EngineKind::Memory => Box::new(kv_memory::MemoryKv::default()),
        EngineKind::Redb => Box::new(kv_redb::RedbKv::open(path, options, acknowledged)?),
        EngineKind::Sled => Box::new(kv_sled::SledKv::open(path, options.cache_bytes)?),
    })
}

/// A store to look at: its files are not written to.
struct Rehearsal {
    kv: Box<dyn Kv>,
    /// Files that are looked at instead, removed in the end.
    copy: Option<PathBuf>,
}

impl Rehearsal {
    /// sled cuts off what follows a damaged place of its log as it opens it, so a copy is opened.
    fn open(path: &Path, options: &OpenOptions, acknowledged: u64) -> Result<Rehearsal, StorageError> {
        match options.engine {
            EngineKind::Redb => Ok(Rehearsal {
                kv: Box::new(kv_redb::RedbKv::rehearse(path, options, acknowledged)?),
                copy: None,
            }),
            EngineKind::Memory | EngineKind::Sled => {
                let copy = directory::copy_beside(path)?;
                let kv = open_kv(&copy, options, acknowledged).inspect_err(|_| directory::discard(&copy))?;
                Ok(Rehearsal { kv, copy: Some(copy) })
            }
        }
    }

    fn end(self) {
        close_kv(self.kv, true);
        if let Some(copy) = &self.copy {
            directory::discard(copy);
        }
    }
}

#[async_trait::async_trait]
impl Store for MvccStore {
    async fn get(
        &self,
        key: &str,
        at: Option<Revision>,
    ) -> Result<(Option<KeyValue>, Revision), StorageError> {
        // One value: not worth a trip to another thread.
        self.shared.get(key, at)
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StorageError> {
        if request.count_only {
            return self.shared.range(&request);
        }
        self.blocking(move |shared| shared.range(&request)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome, StorageError> {
        let bytes = self.check_size(&txn)?;
        let (reply, answer) = oneshot::channel();
        self.shared
            .queue
            .push(Request::Commit { txn, reply }, bytes)
            .await?;
        answer
            .await
            .unwrap_or_else(|_| Err(StorageError::Uncertain("the storage writer has stopped".into())))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: Revision,
        sink: Arc<dyn WatchSink>,
    ) -> Result<WatchHandle, StorageError> {
        let prefix = prefix.to_owned();
        self.blocking(move |shared| shared.watch(&prefix, after, sink))
            .await
    }

    async fn fresh(&self) -> Result<Revision, StorageError> {
        if self.shared.kv.read().is_none() {
            return Err(shut_down());
        }
        let hub = self.shared.hub.lock();
        let revision = Revision(self.shared.published.load(Ordering::Acquire));
        hub.notify_progress(revision);
        Ok(revision)
    }

    fn published(&self) -> Option<Revision> {
        Some(Revision(self.shared.published.load(Ordering::Acquire)))
    }

    async fn compact(&self, revision: Revision) -> Result<CompactionInfo, StorageError> {
        let (reply, answer) = oneshot::channel();
        self.shared
            .queue
            .push(
                Request::Compact {
                    revision: revision.0,
                    reply,
                },
                0,
            )
            .await?;
        answer.await.unwrap_or_else(|_| Err(shut_down()))
    }

    fn answers_at_once(&self) -> bool {
        !self.shared.on_disk
    }

    async fn status(&self) -> Result<StoreStatus, StorageError> {
        self.shared.status()
    }

    async fn backup(&self, file: &Path) -> Result<BackupInfo, StorageError> {
        let file = file.to_owned();
        let shared = self.shared.clone();
        let run = tokio::task::spawn_blocking(move || shared.backup(&file));
        run.await.map_err(aborted)?
    }

    fn damaged(&self) -> Vec<Arc<Damage>> {
        self.shared.damaged.list()
    }

    fn lost(&self) -> Vec<Arc<Damage>> {
        self.shared.damaged.lost().to_vec()
    }

    async fn freeze(&self) -> Result<Arc<dyn FrozenStore>, StorageError> {
        Ok(MvccStore::freeze(self).await?)
    }

    async fn reset(&self, to: &Arc<dyn FrozenStore>) -> Result<Revision, StorageError> {
        self.reset_to(to).await
    }

    async fn scrub(&self, bytes_per_second: u64) -> Result<ScrubReport, StorageError> {
        let mut scrub = Scrub::new(self.shared.chunk_len);
        loop {
            let (stepped, pause) = self
                .blocking(move |shared| {
                    let pause = shared.scrub_step(&mut scrub, bytes_per_second)?;
                    Ok((scrub, pause))
                })
                .await?;
            scrub = stepped;
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(scrub.report),
            }
        }
    }

    async fn shutdown(&self) {
        self.shared.queue.close();
        let thread = self.writer.lock().take();
        if let Some(thread) = thread {
            // The join fails only when the writer panicked; it has then answered its callers.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for MvccStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        if let Some(thread) = self.writer.get_mut().take() {
            // A sink may hold the last handle; the writer must not wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
