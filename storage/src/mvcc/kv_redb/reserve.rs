//! Blocks of the disk that are set aside: to delete means to write, too.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A deletion rewrites a path of the tree, some dozens of KiB; many of them share the pages that the earlier ones gave free.
const BYTES: u64 = 4 << 20;

/// Reserved space that can be released.
pub(crate) trait Reserve: Send + Sync {
    /// Sets it aside, if it is not yet.
    fn keep(&self);
    /// Gives it up. False when there is nothing.
    fn release(&self) -> bool;
}

/// A preallocated file, released when the disk is full.
pub(super) struct ReserveFile(pub(super) PathBuf);

impl Reserve for ReserveFile {
    fn keep(&self) {
        if self.0.exists() {
            return;
        }
        let made = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.0)
            .and_then(|file| {
                use rustix::fs::FallocateFlags;
                Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES)?)
            });
        if let Err(error) = made {
            // Not every file system can. Where there is none, deletions may have to wait for room. A later call tries again.
            let _ = std::fs::remove_file(&self.0);
            tracing::debug!(%error, "no space is reserved for deletions");
        }
    }

    fn release(&self) -> bool {
        std::fs::metadata(&self.0).is_ok_and(|meta| meta.len() > 0) && std::fs::remove_file(&self.0).is_ok()
    }
}
