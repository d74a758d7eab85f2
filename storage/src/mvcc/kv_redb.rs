//! The ordered-key store in one redb file: copy-on-write B-tree, one fsync per batch.
//!
//! After a crash redb has to walk the file to learn which pages are free, unless its last commit carried that along
//! ("quick repair"), at the price of a second fsync. So batches of many changes do, which share the price, and one more
//! commit whenever writes pause; only a crash in the middle of lone writes leaves the walk to the next start.

mod file;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::kv::{Kv, Reader, Visit, Write};
use crate::StorageError;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("kv");
/// A batch of this many writes carries the free pages along.
const QUICK_REPAIR_FROM: usize = 16;
const SETTLED: &[u8] = b"m/settled";

#[derive(Debug)]
pub(crate) struct RedbKv {
    db: Database,
    /// Where the file is, if it has a name.
    path: Option<PathBuf>,
}

impl RedbKv {
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<RedbKv, StorageError> {
        let file = file::FilledFile::open(path)
            .and_then(|file| crate::directory::sync_parent(path).map(|()| file))
            .map_err(|error| crate::directory::failed("cannot open the store", path, error))?;
        let kv = RedbKv::on(file, cache_bytes).map_err(|error| match error {
            StorageError::Corrupt(what) => StorageError::Corrupt(format!("`{}`: {what}", path.display())),
            other => other,
        })?;
        Ok(RedbKv {
            path: Some(path.to_owned()),
            ..kv
        })
    }

    /// On any file.
    pub(crate) fn on(file: impl redb::StorageBackend, cache_bytes: u64) -> Result<RedbKv, StorageError> {
        let cache = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
        let opened = redb::Builder::new()
            .set_cache_size(cache)
            .create_with_backend(file);
        let db = opened.map_err(|error| match error {
            redb::DatabaseError::Storage(redb::StorageError::Io(source))
                if matches!(source.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
            {
                StorageError::Corrupt(format!("not a redb file: {source}"))
            }
            redb::DatabaseError::UpgradeRequired(found) => {
                StorageError::Corrupt(format!("the old redb file format {found}"))
            }
            other => failed("opening", other),
        })?;
        let kv = RedbKv { db, path: None };
        // Readers need the table to be there.
        kv.apply(&[])?;
        Ok(kv)
    }

    fn write(&self, batch: &[Write], quick_repair: bool) -> Result<(), redb::Error> {
        let mut txn = self.db.begin_write()?;
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
        let table = || -> Result<_, redb::Error> { Ok(self.db.begin_read()?.open_table(TABLE)?) };
        Ok(Box::new(RedbReader(
            table().map_err(|error| failed("beginning to read", error))?,
        )))
    }

    fn apply(&self, batch: &[Write]) -> Result<(), StorageError> {
        self.write(batch, batch.len() >= QUICK_REPAIR_FROM)
            .map_err(|error| failed("committing", error))
    }

    fn size_bytes(&self) -> Option<u64> {
        std::fs::metadata(self.path.as_ref()?).ok().map(|meta| meta.len())
    }

    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        self.path.as_deref().map(crate::directory::free_bytes).transpose()
    }

    fn settle(&self) -> Result<(), StorageError> {
        let mark = [Write::Put(SETTLED.to_vec(), Bytes::new())];
        self.write(&mark, true).map_err(|error| failed("settling", error))
    }
}

struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Reader for RedbReader {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let found = self.0.get(key).map_err(|error| failed("reading", error))?;
        Ok(found.map(|value| Bytes::copy_from_slice(value.value())))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError> {
        for pair in self.0.range(from..to).map_err(|error| failed("reading", error))? {
            let (key, value) = pair.map_err(|error| failed("reading", error))?;
            if !visit(key.value(), value.value())? {
                break;
            }
        }
        Ok(())
    }
}

fn failed(doing: &str, error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Corrupted(what) => StorageError::Corrupt(what),
        redb::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => {
            StorageError::NoSpace(format!("{doing}: {source}"))
        }
        source => StorageError::Engine {
            message: format!("redb failed {doing}"),
            source: Some(Box::new(source)),
        },
    }
}
