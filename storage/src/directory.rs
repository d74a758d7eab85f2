//! The data directory of an embedded store: its lock, its contents and its free space.
//!
//! | file | what it says |
//! |---|---|
//! | `LOCK` | held for as long as the store is open; names the owner. The data has a lock of its own, so that removing this file opens no door |
//! | `FORMAT`, `FORMAT.copy` | the engine and the format version: there has been a store here ([`Note`]) |
//! | `REVISION` | how far the store is known to have been ([`OpenMark`]) |
//! | `RESTORING` | a restore has begun and has not ended |
//! | `../STORE` | there has been a store, and how far it was: outside, so that it stays when this directory goes ([`Known`]) |
//!
//! New data is made under a name that ends in `.new`, synced, and renamed: at any moment of a crash, the data is absent or
//! whole, and leftovers are removed by the next start. `FORMAT` follows the data.

mod beside;
mod copies;
mod lock;
mod mark;
mod note;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use self::beside::Known;
pub use self::lock::DirectoryLock;
use self::mark::OpenMark;
use self::note::Note;
use crate::crash;
use crate::format::{self, Noted};
use crate::{EngineKind, StorageError};

/// Leads from one version of the directory's layout to the next. It makes durable what it does; a crash makes it begin again on
/// what it has done so far.
pub(crate) type DirectoryStep = fn(&Path) -> Result<(), StorageError>;

/// The suffix of a name until the file or directory is complete.
const NEW: &str = ".new";
const RESTORING: &str = "RESTORING";
/// There while a store that knows of damage is closed.
const DAMAGED: &str = "DAMAGED";

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    engine: EngineKind,
    _lock: DirectoryLock,
    /// There has been a store here.
    noted: bool,
    /// What the file outside says of before this start.
    known: Known,
    /// While the store is open, unless it cannot be written.
    mark: Option<OpenMark>,
}

impl Directory {
    /// Makes the directory if need be, locks it, checks that it is of this engine and of a known format, takes the steps to
    /// the newest, and removes what a crash has left.
    pub(crate) fn open(
        path: &Path,
        engine: EngineKind,
        steps: &[DirectoryStep],
    ) -> Result<Directory, StorageError> {
        refuse_neighbour(path, engine)?;
        let mut directory = Directory::claim(path, engine)?;
        if directory.is_restoring() {
            return Err(StorageError::Corrupt(
                "the restore of a backup into this directory was not finished; restore again".into(),
            ));
        }
        directory.check_format(steps)?;
        for other in [EngineKind::Redb, EngineKind::Sled] {
            if other != engine && directory.data_of(other).exists() {
                return Err(other_engine(path, other, engine));
            }
        }
        directory.remove_leftovers()?;
        Ok(directory)
    }

    /// For a restore: as `open`, but what an interrupted restore has left is no obstacle. Fails with `Engine` when anything else is
    /// there, or a store of another engine beside it. Until [`Directory::restored`] the directory is not opened as a store.
    pub(crate) fn open_for_restore(path: &Path, engine: EngineKind) -> Result<Directory, StorageError> {
        let occupied = || -> std::io::Result<bool> {
            if path.join(RESTORING).exists() {
                return Ok(false);
            }
            for entry in std::fs::read_dir(path)? {
                let name = entry?.file_name();
                let name = name.to_string_lossy();
                if name != "LOCK" && !name.ends_with(NEW) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match occupied() {
            Ok(false) => {}
            Ok(true) => {
                let message = format!(
                    "the data directory `{}` is not empty, a backup is restored into an empty one",
                    path.display()
                );
                return Err(StorageError::Engine {
                    message,
                    source: None,
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("cannot read the data directory", path, error)),
        }
        refuse_neighbour(path, engine)?;
        let directory = Directory::claim(path, engine)?;
        write_durably(&directory.join(RESTORING), "a backup is being restored\n")?;
        directory.remove_leftovers()?;
        remove(&directory.data())?;
        remove(&directory.join("REVISION"))?;
        Ok(directory)
    }

    /// The restore is complete.
    pub(crate) fn restored(&self) -> Result<(), StorageError> {
        let path = self.join(RESTORING);
        crash::point()
            .and_then(|()| std::fs::remove_file(&path))
            .and_then(|()| sync_parent(&path))
            .map_err(|error| failed("cannot end the restore", &path, error))
    }

    fn claim(path: &Path, engine: EngineKind) -> Result<Directory, StorageError> {
        let lock = DirectoryLock::acquire(path)?;
        Ok(Directory {
            path: path.to_owned(),
            engine,
            _lock: lock,
            noted: false,
            known: Known::read(path, engine),
            mark: None,
        })
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where the engine's data is.
    pub(crate) fn data(&self) -> PathBuf {
        self.data_of(self.engine)
    }

    fn data_of(&self, engine: EngineKind) -> PathBuf {
        data_in(&self.path, engine)
    }

    /// Whether there is any data. A file of no length is none.
    pub(crate) fn has_data(&self) -> bool {
        holds_data(&self.path, self.engine)
    }

    /// The file that says that there has been a store before this start.
    pub(crate) fn noted_by(&self) -> Option<PathBuf> {
        match self.known {
            _ if self.noted => Some(self.join("FORMAT")),
            Known::Nothing => None,
            Known::Something | Known::Store { .. } => beside::place(&self.path, self.engine),
        }
    }

    /// Also where the restore was killed before the file that says so had its name.
    fn is_restoring(&self) -> bool {
        let note = self.join(RESTORING);
        note.exists() || with_suffix(&note, NEW).exists()
    }

    /// Makes the data: `make` is given the path to make it at, and has closed it when it returns. It is there whole or not at all,
    /// in place of what was there without content.
    pub(crate) fn create(
        &self,
        make: impl FnOnce(&Path) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let path = self.data();
        let fresh = with_suffix(&path, NEW);
        remove(&fresh)?;
        make(&fresh)?;
        remove(&path)?;
        sync_tree(&fresh)
            .and_then(|()| rename(&fresh, &path))
            .map_err(|error| failed("cannot make the store", &path, error))
    }

    /// Whether the store was closed while it knew of damage.
    pub(crate) fn has_damage(&self) -> bool {
        self.join(DAMAGED).exists()
    }

    /// Notes whether the store knows of damage, for the next start.
    pub(crate) fn note_damage(&self, is_damaged: bool) {
        let noted = match is_damaged {
            true => write_durably(&self.join(DAMAGED), "the next start looks at every page\n"),
            false => remove(&self.join(DAMAGED)),
        };
        if let Err(error) = noted {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "whether the store is damaged cannot be noted"
            );
        }
    }

    /// Notes that there is a store here, of the newest format.
    pub(crate) fn note_format(&mut self, steps: &[DirectoryStep]) -> Result<(), StorageError> {
        if !self.noted {
            self.note(Noted {
                version: format::newest(steps),
                becoming: None,
            })?;
            self.noted = true;
        }
        Ok(())
    }

    fn note(&self, noted: Noted) -> Result<(), StorageError> {
        let note = Note {
            noted,
            engine: self.engine.name().to_owned(),
        };
        note.write(&self.path)
    }

    fn remove_leftovers(&self) -> Result<(), StorageError> {
        let read = |error| failed("cannot read the data directory", &self.path, error);
        for entry in std::fs::read_dir(&self.path).map_err(read)? {
            let path = entry.map_err(read)?.path();
            if path.to_string_lossy().ends_with(NEW) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn check_format(&mut self, steps: &[DirectoryStep]) -> Result<(), StorageError> {
        let Some(note) = Note::read(&self.path)? else {
            return Ok(());
        };
        let pending = format::pending(note.noted, steps)?;
        let found = &note.engine;
        if found != self.engine.name() {
            let known = found.parse::<EngineKind>().map_err(|_| {
                let path = self.path.display();
                StorageError::Corrupt(format!("`{path}` is of the unknown engine `{found}`"))
            })?;
            return Err(other_engine(&self.path, known, self.engine));
        }
        note.repair(&self.path);
        self.noted = true;
        for (to, step) in pending {
            tracing::info!(directory = %self.path.display(), to, "migrating the data directory");
            self.note(Noted {
                version: to - 1,
                becoming: Some(to),
            })?;
            step(&self.path)?;
            self.note(Noted {
                version: to,
                becoming: None,
            })?;
        }
        Ok(())
    }
}

/// Whether a store has been in a directory that may not be there any more.
pub fn had_store(dir: &Path, engine: EngineKind) -> bool {
    Note::exists(dir) || Known::read(dir, engine) != Known::Nothing
}

/// The data of an engine in its directory.
fn data_in(directory: &Path, engine: EngineKind) -> PathBuf {
    directory.join(match engine {
        EngineKind::Sled => "sled",
        EngineKind::Redb | EngineKind::Memory => "store.redb",
    })
}

fn holds_data(directory: &Path, engine: EngineKind) -> bool {
    let data = data_in(directory, engine);
    let file = match engine {
        EngineKind::Sled => data.join("db"),
        EngineKind::Redb | EngineKind::Memory => data,
    };
    file.metadata().is_ok_and(|meta| meta.len() > 0)
}

/// Where directories are named by their engines, one beside another: a store is not begun with a second engine in the belief that it
/// is the first. One that exists already may be opened.
fn refuse_neighbour(path: &Path, engine: EngineKind) -> Result<(), StorageError> {
    if path.file_name().is_none_or(|name| name != engine.name()) || Note::exists(path) {
        return Ok(());
    }
    for other in [EngineKind::Redb, EngineKind::Sled] {
        let neighbour = path.with_file_name(other.name());
        if other != engine && (Note::exists(&neighbour) || holds_data(&neighbour, other)) {
            return Err(other_engine(&neighbour, other, engine));
        }
    }
    Ok(())
}

fn other_engine(path: &Path, found: EngineKind, wanted: EngineKind) -> StorageError {
    StorageError::Engine {
        message: format!(
            "the data directory `{}` was written by the engine `{}`, not `{}`",
            path.display(),
            found.name(),
            wanted.name()
        ),
        source: None,
    }
}

/// Bytes that an unprivileged process may still write to the file system of this.
///
/// # Errors
/// When the file system does not say.
pub fn free_bytes(path: &Path) -> Result<u64, StorageError> {
    let stat = rustix::fs::statvfs(path)
        .map_err(|error| failed("cannot ask for the free space of", path, error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Writes a small file so that after a crash it is whole or as it was.
pub(crate) fn write_durably(path: &Path, text: &str) -> Result<(), StorageError> {
    let fresh = with_suffix(path, NEW);
    let write = || -> std::io::Result<()> {
        crash::point()?;
        let mut file = File::create(&fresh)?;
        crash::point()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        rename(&fresh, path)
    };
    write().map_err(|error| failed("cannot write to the data directory: writing", path, error))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a file or a directory with its content, if it exists.
fn remove(path: &Path) -> Result<(), StorageError> {
    let removed = match path
        .symlink_metadata()
        .and_then(|meta| crash::point().map(|()| meta))
    {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("cannot remove the remains of", path, error))
        }
        _ => Ok(()),
    }
}

/// Copies a directory to a name beside it. A copy that is left behind is removed by the next start.
pub(crate) fn copy_beside(path: &Path) -> Result<PathBuf, StorageError> {
    let copy = with_suffix(path, &format!(".looked-at{NEW}"));
    remove(&copy)?;
    copy_tree(path, &copy).map_err(|error| {
        discard(&copy);
        failed("cannot copy, to look at it,", path, error)
    })?;
    Ok(copy)
}

/// Removes what is not needed any more, a failure is logged.
pub(crate) fn discard(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!(error = &error as &dyn std::error::Error, "a copy is left behind");
    }
}

fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return std::fs::copy(from, to).map(drop);
    }
    std::fs::DirBuilder::new().mode(0o700).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Makes a file, or a directory with its content, durable.
fn sync_tree(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            sync_tree(&entry?.path())?;
        }
    }
    File::open(path)?.sync_all()
}

/// Opens a file to be written from its beginning that no other process is writing. Leftovers of an interrupted writer are
/// overwritten.
pub(crate) fn claim_file(path: &Path) -> std::io::Result<File> {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        // It holds secrets.
        .mode(0o600)
        .open(path)?;
    file.try_lock()?;
    crash::point()?;
    file.set_len(0)?;
    Ok(file)
}

/// Gives a file that is synced its name, durably.
pub(crate) fn rename(from: &Path, to: &Path) -> std::io::Result<()> {
    crash::point()?;
    std::fs::rename(from, to)?;
    crash::point()?;
    sync_parent(to)
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
