//! Snapshots of an embedded store in one file, made while writes go on, and stores made from them.
//!
//! A snapshot holds every key that was live at one revision, without history. The file, numbers little-endian:
//!
//! | part | bytes |
//! |---|---|
//! | magic | `kube-storage-backup\n` |
//! | format, revision, time (ms since 1970) | 4, 8, 8 |
//! | per key: a 1, create revision, mod revision, place in its transaction, expiry, lengths, key, value | 1, 8, 8, 4, 8, 4, 4, ... |
//! | end: a 0, number of keys, CRC-32 of all before it | 1, 8, 4 |
//!
//! A store made from one begins at a revision far past the snapshot's: writes after the snapshot, which are lost, had
//! lower revisions, so no revision ever means two things, and watchers of the lost time get `Compacted` and list again.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, ErrorKind, Read, Write as _};
use std::path::Path;

use bytes::Bytes;

use super::index::{Index, Pin, Version};
use super::kv::Kv;
use super::migrate::FORMATS;
use super::record::{self, Header, Location};
use super::{MARGIN, Shared, close_kv, open_kv};
use crate::directory::{self, Directory};
use crate::format;
use crate::{BackupInfo, EngineKind, OpenOptions, Revision, StorageError};

const MAGIC: &[u8; 20] = b"kube-storage-backup\n";
const FORMAT: u32 = 1;
/// The suffix of a backup's name until it is complete.
const PARTIAL: &str = ".partial";
/// Keys per read transaction: a long one would keep redb from reusing pages.
const KEYS_PER_READER: usize = 512;
const BATCH_BYTES: usize = 8 << 20;
/// Larger keys or values than a store takes are damage.
const MAX_LEN: u32 = 1 << 30;

/// How to make a store from a snapshot.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The engine and directory of the new store. The directory has to be empty or absent.
    pub store: OpenOptions,
    /// How far revisions begin past the snapshot's, and past those of a store that was there before. It must be more than was written since.
    pub margin: u64,
}

impl RestoreOptions {
    /// With the default margin, a thousand million.
    pub fn new(store: OpenOptions) -> RestoreOptions {
        RestoreOptions {
            store,
            margin: MARGIN,
        }
    }
}

impl Shared {
    pub(super) fn backup(&self, path: &Path) -> Result<BackupInfo, StorageError> {
        let (index, pin) = self.snapshot(None)?;
        if path.exists() {
            let exists = std::io::Error::from(ErrorKind::AlreadyExists);
            return Err(directory::failed("cannot write the backup", path, exists));
        }
        // Whole or absent: leftovers of a crash have another name.
        let partial = directory::with_suffix(path, PARTIAL);
        let failed = |error| directory::failed("cannot write the backup", path, error);
        let file = directory::claim_file(&partial).map_err(failed)?;
        let written = self.write_backup(&index, &pin, &file, &partial).and_then(|info| {
            directory::rename(&partial, path).map_err(failed)?;
            Ok(info)
        });
        written.inspect_err(|_| {
            // The first error is the one to return.
            let _ = std::fs::remove_file(&partial);
        })
    }

    fn write_backup(
        &self,
        index: &Index,
        pin: &Pin,
        file: &File,
        path: &Path,
    ) -> Result<BackupInfo, StorageError> {
        let failed = |error| directory::failed("cannot write the backup", path, error);
        let mut out = Summed {
            inner: BufWriter::with_capacity(1 << 20, file),
            sum: Default::default(),
            bytes: 0,
        };
        let time_ms = super::clock::wall_ms();
        let mut put = |bytes: &[u8]| out.write(bytes).map_err(failed);
        put(MAGIC)?;
        put(&FORMAT.to_le_bytes())?;
        put(&pin.rev.to_le_bytes())?;
        put(&time_ms.to_le_bytes())?;
        let mut live = index.range("", None, pin.rev);
        // Of a lost change there is no key to leave out.
        let (mut keys, mut damaged) = (0u64, self.damaged.lost().len() as u64);
        loop {
            let some: Vec<(_, Version)> = live.by_ref().take(KEYS_PER_READER).collect();
            if some.is_empty() {
                break;
            }
            self.with_reader(|reader| {
                for (key, version) in &some {
                    let pair = self.load(reader, key, *version)?;
                    let stored = reader.get(&record::header_key(version.at()))?;
                    let header = stored.and_then(|stored| Header::decode_at(version.at(), &stored));
                    let Some(header) = header.filter(|_| pair.damage.is_none()) else {
                        // A backup without it is better than none.
                        tracing::error!(key = key.as_ref(), "a damaged object is left out of the backup");
                        damaged += 1;
                        continue;
                    };
                    put(&[1])?;
                    put(&version.create.to_le_bytes())?;
                    put(&version.rev.to_le_bytes())?;
                    put(&version.seq.to_le_bytes())?;
                    put(&header.expires_ms.to_le_bytes())?;
                    put(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes())?;
                    put(&version.len.to_le_bytes())?;
                    put(key.as_bytes())?;
                    put(&pair.value)?;
                    keys += 1;
                }
                Ok(())
            })?;
        }
        put(&[0])?;
        put(&keys.to_le_bytes())?;
        let sum = out.sum.clone().finalize();
        out.write(&sum.to_le_bytes()).map_err(failed)?;
        let bytes = out.bytes;
        out.inner
            .into_inner()
            .map_err(|error| failed(error.into_error()))?
            .sync_all()
            .map_err(failed)?;
        Ok(BackupInfo {
            revision: Revision(pin.rev),
            time_ms,
            keys,
            bytes,
            damaged,
        })
    }
}

/// Reads a snapshot through and checks it. Fails with `Corrupt` when it is not whole, `NewerFormat` when it was made by a newer
/// program.
pub fn inspect_backup(path: &Path) -> Result<BackupInfo, StorageError> {
    Backup::open(path)?.read(&mut |_| Ok(()))
}

/// Makes a store from a snapshot, which is checked first. The store is closed again; [`open`](crate::open) it as any other.
///
/// Its revisions begin past the snapshot's by the margin (past those of a store that was there before, when these were higher), and everything before is compacted. Fails with `Engine` when the
/// directory is not empty, and as [`inspect_backup`] and [`open`](crate::open) do.
pub fn restore(path: &Path, options: &RestoreOptions) -> Result<BackupInfo, StorageError> {
    let info = inspect_backup(path)?;
    let dir = options
        .store
        .dir
        .as_deref()
        .filter(|_| options.store.engine != EngineKind::Memory);
    let dir = dir.ok_or_else(|| StorageError::Engine {
        message: "a backup is restored into the data directory of an engine on disk".into(),
        source: None,
    })?;
    let mut directory = Directory::open_for_restore(dir, options.store.engine)?;
    // A store that was here may have been restored from the same snapshot before.
    let reached = directory.reached().unwrap_or(0).max(info.revision.0);
    let begin = reached.saturating_add(options.margin);
    directory.create(|fresh| {
        let kv = open_kv(fresh, &options.store, 0)?;
        let filled = fill(&*kv, path, begin);
        close_kv(kv, filled.is_ok());
        filled
    })?;
    directory.note_format(FORMATS.directory)?;
    directory.closed(begin, info.keys);
    directory.restored()?;
    Ok(info)
}

/// Removes what interrupted backups left in a directory: files whose names begin with `prefix`, and those that were not yet whole
/// (`.partial`), unless they are being written. Gives how many. For callers that make backups under names of their own, when they
/// start.
///
/// # Errors
/// When the directory cannot be read, or a file not be removed.
pub fn remove_partial_backups(dir: &Path, prefix: &str) -> Result<usize, StorageError> {
    let read = |error| directory::failed("cannot read the directory", dir, error);
    let mut removed = 0;
    for entry in std::fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let path = entry.path();
        let failed = |error| directory::failed("cannot remove an interrupted backup", &path, error);
        match File::open(&path).and_then(|file| Ok(file.try_lock()?)) {
            Ok(()) => {
                std::fs::remove_file(&path).map_err(failed)?;
                removed += 1;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotFound) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(removed)
}

fn fill(kv: &dyn Kv, path: &Path, begin: u64) -> Result<(), StorageError> {
    let chunk_len = u32::try_from(kv.chunk_len()).unwrap_or(u32::MAX);
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let info = Backup::open(path)?.read(&mut |entry| {
        let header = Header {
            delete: false,
            time_ms: entry.time_ms,
            create: entry.create,
            prev: None,
            expires_ms: entry.expires_ms,
            len: u32::try_from(entry.value.len()).unwrap_or(u32::MAX),
            crc: crc32fast::hash(&entry.value),
            key: entry.key,
        };
        bytes += entry.value.len();
        record::put_record(&mut batch, entry.at, &header, &entry.value, chunk_len);
        if bytes >= BATCH_BYTES {
            kv.apply(&batch)?;
            batch.clear();
            bytes = 0;
        }
        Ok(())
    })?;
    tracing::info!(keys = info.keys, revision = begin, "restored");
    batch.extend([
        record::put_u64(record::META_OLDEST, begin),
        record::put_u64(record::META_REVISION, begin),
        record::put_u32(record::META_CHUNK, chunk_len),
        record::put_u32(record::META_FORMAT, format::newest(FORMATS.map)),
    ]);
    kv.apply(&batch)
}

/// Writes and sums up.
struct Summed<'a> {
    inner: BufWriter<&'a File>,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        crate::crash::point()?;
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        self.inner.write_all(bytes)
    }
}

/// A key of a snapshot.
struct Entry {
    at: Location,
    create: u64,
    expires_ms: u64,
    time_ms: u64,
    key: String,
    value: Bytes,
}

/// A snapshot being read.
struct Backup<'a> {
    path: &'a Path,
    file: BufReader<File>,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl Backup<'_> {
    fn open(path: &Path) -> Result<Backup<'_>, StorageError> {
        let file =
            File::open(path).map_err(|error| directory::failed("cannot open the backup", path, error))?;
        Ok(Backup {
            path,
            file: BufReader::with_capacity(1 << 20, file),
            sum: Default::default(),
            bytes: 0,
        })
    }

    fn corrupt(&self, what: &str) -> StorageError {
        StorageError::Corrupt(format!("the backup `{}` {what}", self.path.display()))
    }

    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, StorageError> {
        // The length may be damaged: nothing is allocated for it before the bytes are read.
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(len as u64).read_to_end(&mut bytes);
        read.map_err(|error| directory::failed("cannot read the backup", self.path, error))?;
        if bytes.len() < len {
            return Err(self.corrupt("ends too early"));
        }
        self.sum.update(&bytes);
        self.bytes += len as u64;
        Ok(bytes)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], StorageError> {
        let bytes = self.bytes(N)?;
        <[u8; N]>::try_from(bytes).map_err(|_| self.corrupt("ends too early"))
    }

    fn u64(&mut self) -> Result<u64, StorageError> {
        self.number().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, StorageError> {
        self.number().map(u32::from_le_bytes)
    }

    fn len(&mut self) -> Result<usize, StorageError> {
        let len = self.u32()?;
        if len > MAX_LEN {
            return Err(self.corrupt("is damaged"));
        }
        Ok(len as usize)
    }

    fn read(
        mut self,
        visit: &mut dyn FnMut(Entry) -> Result<(), StorageError>,
    ) -> Result<BackupInfo, StorageError> {
        if self.bytes(MAGIC.len())? != MAGIC {
            return Err(self.corrupt("is not a backup"));
        }
        let format = self.u32()?;
        if format > FORMAT {
            return Err(StorageError::NewerFormat {
                found: format,
                supported: FORMAT,
            });
        }
        let revision = self.u64()?;
        let time_ms = self.u64()?;
        let mut keys = 0u64;
        while self.number()? == [1] {
            let create = self.u64()?;
            let at = Location {
                rev: self.u64()?,
                seq: self.u32()?,
            };
            let expires_ms = self.u64()?;
            let (key_len, value_len) = (self.len()?, self.len()?);
            let key = String::from_utf8(self.bytes(key_len)?).map_err(|_| self.corrupt("is damaged"))?;
            let value = self.bytes(value_len)?.into();
            visit(Entry {
                at,
                create,
                expires_ms,
                time_ms,
                key,
                value,
            })?;
            keys += 1;
        }
        let counted = self.u64()?;
        let sum = self.sum.clone().finalize();
        if self.u32()? != sum || counted != keys {
            return Err(self.corrupt("fails its checksum"));
        }
        let behind = self.file.fill_buf();
        if !behind
            .map_err(|error| directory::failed("cannot read the backup", self.path, error))?
            .is_empty()
        {
            return Err(self.corrupt("is followed by something else"));
        }
        Ok(BackupInfo {
            revision: Revision(revision),
            time_ms,
            keys,
            bytes: self.bytes,
            damaged: 0,
        })
    }
}
