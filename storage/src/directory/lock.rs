//! The lock of a directory: one process at a time reads and writes what is in it.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::failed;
use crate::StorageError;

/// The file that names the owner.
const NAME: &str = "LOCK";

/// Holds a directory until dropped. Both the directory and its file `LOCK` are locked (`flock`): the file names the owner in the
/// message to another process, and the lock of the directory is there although the file is removed.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
    /// `None` on file systems that lock files only.
    directory: Option<File>,
}

impl DirectoryLock {
    /// Makes the directory if need be, with mode 0700 because it holds secrets, and locks it. A directory that another owner holds
    /// is left as it is.
    ///
    /// # Errors
    /// `Locked` with the owner when another process, or another part of this one, holds it; `NoSpace` and `Engine` when the
    /// directory cannot be made or written to.
    pub fn acquire(path: &Path) -> Result<DirectoryLock, StorageError> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| failed("cannot make the data directory", path, error))?;
        let name = path.join(NAME);
        let directory =
            File::open(path).map_err(|error| failed("cannot read the data directory", path, error))?;
        let directory = match directory.try_lock() {
            Ok(()) => Some(directory),
            Err(TryLockError::WouldBlock) => return Err(locked(File::open(&name).ok())),
            Err(TryLockError::Error(_)) => None,
        };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&name)
            .map_err(|error| failed("cannot write to the data directory: opening", &name, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(Some(file))),
            Err(TryLockError::Error(error)) => return Err(failed("cannot lock", &name, error)),
        }
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "process {}", std::process::id()))
            .and_then(|()| file.flush());
        match named {
            // The name is for a message only; a full disk does not keep a server from starting.
            Err(error) if error.kind() != ErrorKind::StorageFull => Err(failed(
                "cannot write to the data directory: writing",
                &name,
                error,
            )),
            _ => Ok(DirectoryLock { file, directory }),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing alone would not do while a child process that is just being started still has a copy of the handles.
        let _ = self.file.unlock();
        if let Some(directory) = &self.directory {
            let _ = directory.unlock();
        }
    }
}

/// The refusal, with the owner that the file names.
fn locked(file: Option<File>) -> StorageError {
    let mut owner = String::new();
    if let Some(mut file) = file {
        // The content is only used in the message.
        let _ = file.read_to_string(&mut owner);
    }
    let owner = owner.trim();
    StorageError::Locked(if owner.is_empty() {
        "another process".into()
    } else {
        owner.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(path: &Path, owner: &str) {
        let second = DirectoryLock::acquire(path);
        assert!(
            matches!(&second, Err(StorageError::Locked(by)) if by == owner),
            "{second:?}"
        );
    }

    #[test]
    fn a_directory_has_one_owner_and_nothing_changes_for_another() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let owner = format!("process {}", std::process::id());
        let lock = DirectoryLock::acquire(&path).unwrap();
        assert_eq!(
            std::fs::read_to_string(path.join(NAME)).unwrap(),
            format!("{owner}\n")
        );
        refused(&path, &owner);
        // By another name of the directory.
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        refused(&link, &owner);
        std::fs::remove_file(path.join(NAME)).unwrap();
        refused(&path, "another process");
        assert!(!path.join(NAME).exists());
        drop(lock);
        drop(DirectoryLock::acquire(&path).unwrap());
    }
}
