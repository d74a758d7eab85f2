//! The data directory of an embedded store: who owns it, what is in it, how much room is left.
//!
//! `LOCK` is held for as long as the store is open and names the owner; `FORMAT` names the engine and the format
//! version, so that a directory is never opened by the wrong engine or by a program that is too old for it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::{EngineKind, StorageError};

/// The version of the directory's layout. Versions of the records within are in `mvcc::record`.
const FORMAT: u32 = 1;

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the directory if need be, locks it and checks that it is of this engine and of a known format.
    pub(crate) fn open(path: &Path, engine: EngineKind) -> Result<Directory, StorageError> {
        // What is in it is nobody else's: secrets are.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| failed("cannot make the data directory", path, error))?;
        let lock = lock(&path.join("LOCK"))?;
        let directory = Directory {
            path: path.to_owned(),
            lock,
        };
        directory.check_format(engine)?;
        Ok(directory)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that an unprivileged process may still write to the file system.
    pub(crate) fn free_bytes(&self) -> Result<u64, StorageError> {
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|error| failed("cannot ask for the free space of", &self.path, error.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn check_format(&self, engine: EngineKind) -> Result<(), StorageError> {
        let path = self.join("FORMAT");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let damaged = || StorageError::Corrupt(format!("`{}` is not a format file", path.display()));
                let (version, found) = text
                    .trim_end()
                    .strip_prefix("format ")
                    .and_then(|rest| rest.split_once(" engine "))
                    .ok_or_else(damaged)?;
                let version: u32 = version.parse().map_err(|_| damaged())?;
                if version > FORMAT {
                    return Err(StorageError::NewerFormat {
                        found: version,
                        supported: FORMAT,
                    });
                }
                if found != engine.name() {
                    return Err(StorageError::Engine {
                        message: format!(
                            "the data directory `{}` was written by the engine `{found}`, not `{}`",
                            self.path.display(),
                            engine.name()
                        ),
                        source: None,
                    });
                }
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                write_durably(&path, &format!("format {FORMAT} engine {}\n", engine.name()))
            }
            Err(error) => Err(failed("cannot read", &path, error)),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing alone would not do while a child process that is just being started still has a copy of the handle.
        let _ = self.lock.unlock();
    }
}

fn lock(path: &Path) -> Result<File, StorageError> {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| failed("cannot write to the data directory: opening", path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            // What it says is only for the message.
            let _ = file.read_to_string(&mut owner);
            let owner = owner.trim();
            return Err(StorageError::Locked(if owner.is_empty() {
                "another process".into()
            } else {
                owner.into()
            }));
        }
        Err(TryLockError::Error(error)) => return Err(failed("cannot lock", path, error)),
    }
    let named = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "process {}", std::process::id()))
        .and_then(|()| file.flush());
    named.map_err(|error| failed("cannot write to the data directory: writing", path, error))?;
    Ok(file)
}

/// Writes a small file so that after a crash it is whole or absent.
pub(crate) fn write_durably(path: &Path, text: &str) -> Result<(), StorageError> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        sync_parent(path)
    };
    write().map_err(|error| failed("cannot write to the data directory: writing", path, error))
}

/// Makes the names in a file's directory durable.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

pub(crate) fn failed(doing: &str, path: &Path, error: std::io::Error) -> StorageError {
    if error.kind() == std::io::ErrorKind::StorageFull {
        return StorageError::NoSpace(format!("{doing} `{}`: {error}", path.display()));
    }
    StorageError::Engine {
        message: format!("{doing} `{}`", path.display()),
        source: Some(Box::new(error)),
    }
}
