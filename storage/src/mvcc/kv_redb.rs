//! The ordered-key store in one redb file: copy-on-write B-tree, one fsync per batch.
//!
//! After a crash redb has to walk the file to learn which pages are free, unless its last commit carried that along
//! ("quick repair"), at the price of a second fsync. So batches of many changes do, which share the price, and one more
//! commit whenever writes pause; only a crash in the middle of lone writes leaves the walk to the next start.

mod disk;
mod file;
mod mend;
mod overlay;
mod pages;
mod reserve;
mod walk;

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use self::disk::DiskReader;
use self::file::{FilledFile, Frontier};
use self::mend::Mended;
use self::overlay::Overlay;
pub(crate) use self::reserve::Reserve;
use self::reserve::ReserveFile;
use super::kv::{Kv, Reader, Visit, Write, guarded};
use crate::{OpenOptions, StorageError};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("kv");
/// A batch of this many writes carries the free pages along.
const QUICK_REPAIR_FROM: usize = 16;
const SETTLED: &[u8] = b"m/settled";

/// Whether a file is mended before redb opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// When a page is damaged that is looked at, or redb gives the file up.
    AsIs,
    Mended,
}

/// Opens the file once more, given the revision that it has to have.
type Opener = Box<dyn Fn(u64, Opening) -> Result<Opened, StorageError> + Send + Sync>;

/// What is known of a file with a name.
struct Named {
    frontier: Frontier,
    /// The bytes on the disk.
    disk: File,
}

struct Opened {
    db: Database,
    named: Option<Named>,
    /// What was put right before.
    mended: Option<Mended>,
}

pub(crate) struct RedbKv {
    /// `None` after it could not be reopened.
    db: Option<Database>,
    named: Option<Named>,
    mended: Option<Mended>,
    open: Opener,
    reserve: Option<Box<dyn Reserve>>,
    /// Where the file is, if it has a name.
    path: Option<PathBuf>,
}

impl fmt::Debug for RedbKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbKv")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl RedbKv {
    /// Opens the file, or makes it. Damage after a crash takes back no commit up to the revision that was `acknowledged`. Fails with
    /// `Locked` when the file has an owner, under any name.
    pub(crate) fn open(
        path: &Path,
        options: &OpenOptions,
        acknowledged: u64,
    ) -> Result<RedbKv, StorageError> {
        let kv = RedbKv::at(path, options, acknowledged, Ok)?;
        Ok(RedbKv {
            reserve: Some(Box::new(ReserveFile(crate::directory::with_suffix(
                path, ".reserve",
            )))),
            ..kv
        })
    }

    /// The same, but nothing is written to the file: what opening and mending it changes is kept in memory.
    pub(crate) fn rehearse(
        path: &Path,
        options: &OpenOptions,
        acknowledged: u64,
    ) -> Result<RedbKv, StorageError> {
        RedbKv::at(path, options, acknowledged, Overlay::new)
    }

    fn at<F: redb::StorageBackend>(
        path: &Path,
        options: &OpenOptions,
        acknowledged: u64,
        through: fn(FilledFile) -> std::io::Result<F>,
    ) -> Result<RedbKv, StorageError> {
        let (cache_bytes, fsync, verified) = (options.cache_bytes, options.fsync, options.verified_bytes);
        let owned = path.to_owned();
        let opener: Opener = Box::new(move |acknowledged, opening| {
            let path = &owned;
            let open = || {
                let opened = FilledFile::open(path, fsync).and_then(|file| {
                    crate::directory::sync_parent(path)?;
                    let named = Named {
                        frontier: file.frontier(),
                        disk: file.handle()?,
                    };
                    Ok((through(file)?, Some(named)))
                });
                opened.map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock => {
                        StorageError::Locked(format!("another process that uses `{}`", path.display()))
                    }
                    _ => crate::directory::failed("cannot open the store", path, error),
                })
            };
            opened_or_mended(open, cache_bytes, verified, acknowledged, opening).map_err(
                |error| match error {
                    StorageError::Corrupt(what) => {
                        StorageError::Corrupt(format!("`{}`: {what}", path.display()))
                    }
                    other => other,
                },
            )
        });
        let kv = RedbKv::opened(opener, acknowledged)?;
        Ok(RedbKv {
            path: Some(path.to_owned()),
            ..kv
        })
    }

    /// On any file, which copies of it share.
    #[cfg(test)]
    pub(crate) fn on(
        file: impl redb::StorageBackend + Clone,
        cache_bytes: u64,
    ) -> Result<RedbKv, StorageError> {
        RedbKv::on_with(file, cache_bytes, 0)
    }

    /// The same where a revision was `acknowledged`.
    #[cfg(test)]
    pub(crate) fn on_with(
        file: impl redb::StorageBackend + Clone,
        cache_bytes: u64,
        acknowledged: u64,
    ) -> Result<RedbKv, StorageError> {
        RedbKv::on_verified(
            file,
            cache_bytes,
            OpenOptions::default().verified_bytes,
            acknowledged,
        )
    }

    /// The same with all pages looked at of a file of up to so many bytes.
    #[cfg(test)]
    pub(crate) fn on_verified(
        file: impl redb::StorageBackend + Clone,
        cache_bytes: u64,
        verified_bytes: u64,
        acknowledged: u64,
    ) -> Result<RedbKv, StorageError> {
        let opener: Opener = Box::new(move |acknowledged, opening| {
            let open = || Ok((file.clone(), None));
            opened_or_mended(open, cache_bytes, verified_bytes, acknowledged, opening)
        });
        RedbKv::opened(opener, acknowledged)
    }

    #[cfg(test)]
    pub(crate) fn reserving(self, reserve: impl Reserve + 'static) -> RedbKv {
        RedbKv {
            reserve: Some(Box::new(reserve)),
            ..self
        }
    }

    fn opened(open: Opener, acknowledged: u64) -> Result<RedbKv, StorageError> {
        let Opened { db, named, mended } = open(acknowledged, Opening::AsIs)?;
        Ok(RedbKv {
            db: Some(db),
            named,
            mended,
            open,
            reserve: None,
            path: None,
        })
    }

    fn db(&self) -> Result<&Database, StorageError> {
        self.db.as_ref().ok_or_else(|| StorageError::Unavailable {
            message: "the store could not be reopened after there was no room; make room and start again"
                .into(),
            source: None,
        })
    }

    fn reopen_as(&mut self, acknowledged: u64, opening: Opening) -> Result<(), StorageError> {
        let old = self.db.take();
        guarded("redb", "closing", || {
            drop(old);
            Ok(())
        })?;
        let opened = (self.open)(acknowledged, opening)?;
        self.db = Some(opened.db);
        self.named = opened.named;
        self.mended = opened.mended.or(self.mended);
        Ok(())
    }

    fn write(&self, batch: &[Write], quick_repair: bool, doing: &str) -> Result<(), StorageError> {
        let db = self.db()?;
        guarded("redb", doing, || {
            write(db, batch, quick_repair).map_err(|error| failed(doing, error))
        })
    }
}

/// Opens a file. When redb gives it up for damage, or would take its newest commit back, the file is mended first.
fn opened_or_mended<F: redb::StorageBackend>(
    open: impl Fn() -> Result<(F, Option<Named>), StorageError>,
    cache_bytes: u64,
    verified_bytes: u64,
    acknowledged: u64,
    opening: Opening,
) -> Result<Opened, StorageError> {
    let (mut file, mut named) = open()?;
    if opening == Opening::AsIs && mend::head_is_sound(&file)? && mend::is_sound(&file, verified_bytes)? {
        match database(file, cache_bytes, Repair::KeepNewest) {
            Ok(db) => {
                return Ok(Opened {
                    db,
                    named,
                    mended: None,
                });
            }
            Err(StorageError::Corrupt(why)) => {
                tracing::warn!(
                    why,
                    "the store's file is damaged, or a crash tore its last commit"
                );
            }
            Err(error) => return Err(error),
        }
        (file, named) = open()?;
    }
    let mended = mend::mend(&file, acknowledged)?;
    if let Some(mended) = mended {
        tracing::error!(
            healed = mended.healed,
            damaged = mended.kept,
            emptied = mended.emptied,
            head = mended.head,
            free_pages = mended.system,
            "pages of the store were damaged; those that cannot be put right are read as they are"
        );
    }
    Ok(Opened {
        db: database(file, cache_bytes, Repair::TakeBack)?,
        named,
        mended,
    })
}

/// What redb may do with the newest commit of a file that was not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// It is not opened without it.
    KeepNewest,
    /// One that fails its checksums is taken back.
    TakeBack,
}

/// A repair reports that it is so far when it has found that the newest commit fails its checksums.
const NEWEST_FAILS: std::ops::Range<f64> = 0.2..0.5;

fn database(
    file: impl redb::StorageBackend,
    cache_bytes: u64,
    repair: Repair,
) -> Result<Database, StorageError> {
    let cache = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
    guarded("redb", "opening", || {
        let opened = redb::Builder::new()
            .set_cache_size(cache)
            .set_repair_callback(move |session| {
                if repair == Repair::KeepNewest && NEWEST_FAILS.contains(&session.progress()) {
                    session.abort();
                }
            })
            .create_with_backend(file);
        let db = opened.map_err(|error| match error {
            redb::DatabaseError::Storage(redb::StorageError::Io(source))
                if matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
            {
                StorageError::Corrupt(format!("not a redb file: {source}"))
            }
            redb::DatabaseError::RepairAborted => {
                StorageError::Corrupt("its newest commit fails its checksums".into())
            }
            redb::DatabaseError::UpgradeRequired(found) => {
                StorageError::Corrupt(format!("the old redb file format {found}"))
            }
            other => failed("opening", other),
        })?;
        // Readers need the table to be there.
        let there = db
            .begin_read()
            .map_err(redb::Error::from)
            .and_then(|txn| txn.open_table(TABLE).map_err(redb::Error::from));
        match there {
            Ok(_) => {}
            Err(redb::Error::TableDoesNotExist(_)) => {
                write(&db, &[], false).map_err(|error| failed("opening", error))?;
            }
            Err(error) => return Err(failed("opening", error)),
        }
        Ok(db)
    })
}

fn write(db: &Database, batch: &[Write], quick_repair: bool) -> Result<(), redb::Error> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(quick_repair);
    {
        let mut table = txn.open_table(TABLE)?;
        for write in batch {
            match write {
                Write::Put(key, value) => {
                    table.insert(key.as_slice(), value.as_ref())?;
                }
                Write::Delete(key) => {
                    table.remove(key.as_slice())?;
                }
            }
        }
    }
    txn.commit()?;
    Ok(())
}

impl Kv for RedbKv {
    fn name(&self) -> &'static str {
        "redb"
    }

    fn on_disk(&self) -> bool {
        true
    }

    fn chunk_len(&self) -> usize {
        96 * 1024
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, StorageError> {
        let db = self.db()?;
        guarded("redb", "beginning to read", || {
            let table = || -> Result<_, redb::Error> { Ok(db.begin_read()?.open_table(TABLE)?) };
            let table = table().map_err(|error| failed("beginning to read", error))?;
            Ok(Box::new(RedbReader(table)) as Box<dyn Reader>)
        })
    }

    fn disk_reader(&self) -> Result<Option<Box<dyn Reader + '_>>, StorageError> {
        let (Some(named), db) = (&self.named, self.db()?) else {
            return Ok(None);
        };
        let reader = guarded("redb", "beginning to read", || DiskReader::of(&named.disk, db))?;
        Ok(reader.map(|reader| Box::new(reader) as Box<dyn Reader>))
    }

    fn apply(&self, batch: &[Write]) -> Result<(), StorageError> {
        self.write(batch, batch.len() >= QUICK_REPAIR_FROM, "committing")
    }

    fn size_bytes(&self) -> Option<u64> {
        std::fs::metadata(self.path.as_ref()?).ok().map(|meta| meta.len())
    }

    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.path.as_deref().map(crate::directory::free_bytes).transpose()
    }

    fn reusable_bytes(&self) -> Result<Option<u64>, StorageError> {
        let Some(named) = &self.named else {
            return Ok(None);
        };
        let db = self.db()?;
        guarded("redb", "counting its pages", || {
            let used = || -> Result<u64, redb::Error> {
                let txn = db.begin_write()?;
                let stats = txn.stats()?;
                txn.abort()?;
                Ok(stats.allocated_pages().saturating_mul(stats.page_size() as u64))
            };
            let used = used().map_err(|error| failed("counting its pages", error))?;
            // Blocks past the frontier are not allocated yet.
            let filled = *named.frontier.lock();
            Ok(Some(filled.saturating_sub(used)))
        })
    }

    fn reopen(&mut self, acknowledged: u64) -> Result<(), StorageError> {
        self.reopen_as(acknowledged, Opening::AsIs)
    }

    fn mend(&mut self, acknowledged: u64) -> Result<bool, StorageError> {
        self.reopen_as(acknowledged, Opening::Mended)?;
        Ok(true)
    }

    fn keep_reserve(&self) {
        if let Some(reserve) = &self.reserve {
            reserve.keep();
        }
    }

    fn release_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.release())
    }

    fn verify(&mut self) -> Result<(), StorageError> {
        let Some(db) = &mut self.db else {
            return self.db().map(drop);
        };
        let whole = guarded("redb", "checking its pages", || {
            db.check_integrity()
                .map_err(|error| failed("checking its pages", error))
        });
        match (whole, self.mended) {
            (Ok(true), None) => Ok(()),
            (Ok(true), Some(mended)) => Err(StorageError::Corrupt(mended.to_string())),
            (Ok(false), _) => Err(StorageError::Corrupt(
                "pages of the file fail their checksums".into(),
            )),
            (Err(StorageError::Corrupt(what)), _) => Err(StorageError::Corrupt(format!(
                "pages of the file fail their checksums: {what}"
            ))),
            (Err(error), _) => Err(error),
        }
    }

    fn mark_clean(&self) -> Result<(), StorageError> {
        let mark = [Write::Put(SETTLED.to_vec(), Bytes::new())];
        self.write(&mark, true, "settling")
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reader for RedbReader {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        guarded("redb", "reading", || {
            let found = self.0.get(key).map_err(|error| failed("reading", error))?;
            Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
        })
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError> {
        guarded("redb", "reading", || {
            for pair in self.0.range(from..to).map_err(|error| failed("reading", error))? {
                let (key, value) = pair.map_err(|error| failed("reading", error))?;
                if !visit(key.value(), value.value())? {
                    break;
                }
            }
            Ok(())
        })
    }
}

fn failed(doing: &str, error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Corrupted(what) => StorageError::Corrupt(what),
        // The file has one table, of one type: another is a damaged page that lists it.
        listed @ (redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)) => {
            StorageError::Corrupt(format!("its table is damaged: {listed}"))
        }
        // A damaged page leads past the end of the file.
        redb::Error::Io(source)
            if matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            StorageError::Corrupt(format!("{doing}: {source}"))
        }
        redb::Error::Io(source)
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            StorageError::NoSpace(format!("{doing}: {source}"))
        }
        source => StorageError::Engine {
            message: format!("redb failed {doing}"),
            source: Some(Box::new(source)),
        },
    }
}
