//! The ordered-key store in a sled 0.34 directory.
//!
//! sled's own `flush` issues `sync_file_range`, which reaches neither the device's cache nor the file's metadata: an
//! acknowledged write could go with the power. So after each flush this adapter calls `fdatasync` on sled's log file
//! itself. A value past sled's blob threshold goes to a file of its own that is never synced at all, and that is a whole node of
//! its tree when it is rewritten; [`CHUNK_LEN`] keeps nodes below it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::kv::{Kv, Reader, Visit, Write, guarded};
use crate::StorageError;

/// sled writes nodes of up to 17 entries in one piece, and pieces past a quarter of its segments of 512 KiB as blobs. So many entries
/// of this length, and headers of any name that Kubernetes allows, are well below it.
const CHUNK_LEN: usize = 4 * 1024;

const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct SledKv {
    /// A handle of our own on sled's log file.
    log: File,
    dir: PathBuf,
    db: sled::Db,
}

impl SledKv {
    /// Opens the directory, or makes it. Fails with `Locked` when the log file in it has an owner, under any name.
    pub(crate) fn open(dir: &Path, cache_bytes: u64) -> Result<SledKv, StorageError> {
        guarded("sled", &format!("opening `{}`", dir.display()), || {
            SledKv::open_unguarded(dir, cache_bytes)
        })
    }

    fn open_unguarded(dir: &Path, cache_bytes: u64) -> Result<SledKv, StorageError> {
        let config = sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes)
            // Commits flush; a timer would only compete with them.
            .flush_every_ms(None);
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let mut is_clean = false;
        let db = loop {
            match config.open() {
                // The directory is ours already. sled's own lock lingers while its threads end, or while a child process
                // that is just being started has a copy of the handle.
                Err(sled::Error::Io(error)) if is_lock(&error) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(sled::Error::Io(error)) if is_lock(&error) => {
                    return Err(StorageError::Locked(format!(
                        "another process that uses `{}`",
                        dir.display()
                    )));
                }
                // sled has had its lock, so no other instance is writing one.
                Err(error) if !is_clean && remove_unfinished_snapshots(dir) => {
                    tracing::warn!(%error, path = %dir.display(), "sled had not finished a snapshot of its page table; opening again without it");
                    is_clean = true;
                }
                opened => {
                    break opened.map_err(|error| failed(&format!("opening `{}`", dir.display()), error))?;
                }
            }
        };
        let path = dir.join("db");
        let log = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|source| StorageError::Engine {
                message: format!("opening sled's log `{}`", path.display()),
                source: Some(Box::new(source)),
            })?;
        Ok(SledKv {
            log,
            dir: dir.to_owned(),
            db,
        })
    }
}

/// Removes snapshots of the page table that sled did not finish writing, on a full disk for example: it refuses to open beside an empty
/// one, though it needs none of them. Returns whether there were any.
fn remove_unfinished_snapshots(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    let unfinished = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("snap.") && name.ends_with(".generating")
    });
    let removed = unfinished.filter(|entry| std::fs::remove_file(entry.path()).is_ok());
    removed.count() > 0
}

impl Kv for SledKv {
    fn name(&self) -> &'static str {
        "sled"
    }

    fn on_disk(&self) -> bool {
        true
    }

    fn chunk_len(&self) -> usize {
        CHUNK_LEN
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, StorageError> {
        Ok(Box::new(SledReader(&self.db)))
    }

    fn apply(&self, batch: &[Write]) -> Result<(), StorageError> {
        let mut changes = sled::Batch::default();
        for write in batch {
            match write {
                Write::Put(key, value) => changes.insert(key.as_slice(), value.as_ref()),
                Write::Delete(key) => changes.remove(key.as_slice()),
            }
        }
        guarded("sled", "committing", || {
            self.db
                .apply_batch(changes)
                .map_err(|error| failed("committing", error))?;
            self.db.flush().map_err(|error| failed("flushing", error))?;
            self.log
                .sync_data()
                .map_err(|error| failed("syncing", sled::Error::Io(error)))
        })
    }

    fn size_bytes(&self) -> Option<u64> {
        self.db.size_on_disk().ok()
    }

    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        crate::directory::free_bytes(&self.dir).map(Some)
    }
}

struct SledReader<'a>(&'a sled::Db);

impl Reader for SledReader<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        guarded("sled", "reading", || {
            let found = self.0.get(key).map_err(|error| failed("reading", error))?;
            Ok(found.map(|value| Bytes::copy_from_slice(&value)))
        })
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError> {
        guarded("sled", "reading", || {
            for pair in self.0.range(from..to) {
                let (key, value) = pair.map_err(|error| failed("reading", error))?;
                if !visit(&key, &value)? {
                    break;
                }
            }
            Ok(())
        })
    }
}

fn is_lock(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::Other && error.to_string().starts_with("could not acquire lock")
}

fn failed(doing: &str, error: sled::Error) -> StorageError {
    match error {
        // No version of sled but this one has ever been used here: a file that claims another is damaged.
        sled::Error::Corruption { .. } | sled::Error::Unsupported(_) => {
            StorageError::Corrupt(format!("{doing}: {error}"))
        }
        sled::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => {
            StorageError::NoSpace(format!("{doing}: {source}"))
        }
        source => StorageError::Engine {
            message: format!("sled failed {doing}"),
            source: Some(Box::new(source)),
        },
    }
}
