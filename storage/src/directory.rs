//! The data directory of an embedded store: who owns it, what is in it, how much room is left.
//!
//! `LOCK` is held for as long as the store is open and names the owner; `FORMAT` names the engine and the format
//! version, so that a directory is never opened by the wrong engine or by a program that is too old for it.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::format::{self, Noted};
use crate::{EngineKind, StorageError};

/// Leads from one version of the directory's layout to the next. It makes durable what it does; a crash makes it begin again on
/// what it has done so far.
pub(crate) type DirectoryStep = fn(&Path) -> Result<(), StorageError>;

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the directory if need be, locks it, checks that it is of this engine and of a known format, and takes the steps to
    /// the newest.
    pub(crate) fn open(
        path: &Path,
        engine: EngineKind,
        steps: &[DirectoryStep],
    ) -> Result<Directory, StorageError> {
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
        directory.check_format(engine, steps)?;
        Ok(directory)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn check_format(&self, engine: EngineKind, steps: &[DirectoryStep]) -> Result<(), StorageError> {
        let path = self.join("FORMAT");
        let note = |noted| write_durably(&path, &format_line(noted, engine));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return note(Noted {
                    version: format::newest(steps),
                    becoming: None,
                });
            }
            Err(error) => return Err(failed("cannot read", &path, error)),
        };
        let (noted, found) = parse_format_line(&text)
            .ok_or_else(|| StorageError::Corrupt(format!("`{}` is not a format file", path.display())))?;
        let pending = format::pending(noted, steps)?;
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
        for (to, step) in pending {
            tracing::info!(directory = %self.path.display(), to, "migrating the data directory");
            note(Noted {
                version: to - 1,
                becoming: Some(to),
            })?;
            step(&self.path)?;
            note(Noted {
                version: to,
                becoming: None,
            })?;
        }
        Ok(())
    }
}

/// Bytes that an unprivileged process may still write to the file system of this.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, StorageError> {
    let stat = rustix::fs::statvfs(path)
        .map_err(|error| failed("cannot ask for the free space of", path, error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What `FORMAT` holds: `format 1 engine redb`, or `format 1 becoming 2 engine redb` amid a step.
fn format_line(noted: Noted, engine: EngineKind) -> String {
    let becoming = noted
        .becoming
        .map_or(String::new(), |to| format!(" becoming {to}"));
    format!("format {}{becoming} engine {}\n", noted.version, engine.name())
}

fn parse_format_line(line: &str) -> Option<(Noted, &str)> {
    let (versions, engine) = line.trim_end().strip_prefix("format ")?.split_once(" engine ")?;
    let noted = match versions.split_once(" becoming ") {
        Some((version, to)) => Noted {
            version: version.parse().ok()?,
            becoming: Some(to.parse().ok()?),
        },
        None => Noted {
            version: versions.parse().ok()?,
            becoming: None,
        },
    };
    Some((noted, engine))
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
