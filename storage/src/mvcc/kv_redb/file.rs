//! The file below redb, written ahead with zeros.
//!
//! redb grows its file in great steps that occupy no blocks. The first write to each block then makes `fdatasync` commit the
//! file system's journal, too, at worst several times as slow as syncing blocks that are there, and a young store pays that
//! for nearly every commit. So blocks are filled a few megabytes ahead, in one go.
//!
//! Invariant: nothing was ever written at or past `frontier`, so filling from there on destroys nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::crash;

const AHEAD: u64 = 8 << 20;
/// A write this far past the frontier leaves a gap rather than fill it.
const GAP: u64 = 16 << 20;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

#[derive(Debug)]
pub(super) struct FilledFile {
    file: File,
    frontier: Frontier,
    /// Without it nothing is synced, and nothing is gained by filling blocks before.
    fsync: bool,
}

/// The end of the written part. Everything before it has its place on the disk.
pub(super) type Frontier = Arc<Mutex<u64>>;

impl FilledFile {
    /// Opens the file, making it if need be, and locks it: one owner for all names of the file. Fails with `WouldBlock` when it
    /// has one already.
    pub(super) fn open(path: &Path, fsync: bool) -> io::Result<FilledFile> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        file.try_lock()?;
        let frontier = end_of_data(&file)?;
        Ok(FilledFile {
            file,
            frontier: Arc::new(Mutex::new(frontier)),
            fsync,
        })
    }

    /// Another handle of the file, which keeps nothing locked.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(super) fn frontier(&self) -> Frontier {
        self.frontier.clone()
    }

    fn fill(&self, from: u64, to: u64) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let take = (to - at).min(ZEROS.len() as u64);
            self.file
                .write_all_at(&ZEROS[..usize::try_from(take).unwrap_or(ZEROS.len())], at)?;
            at += take;
        }
        Ok(())
    }

    fn prepare(&self, offset: u64, end: u64) -> io::Result<()> {
        let mut frontier = self.frontier.lock();
        if end <= *frontier {
            return Ok(());
        }
        if !self.fsync {
            *frontier = end;
            return Ok(());
        }
        // The last room is not for zeros.
        let free = rustix::fs::fstatvfs(&self.file)
            .map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if free < 4 * AHEAD {
            *frontier = end;
            return Ok(());
        }
        let from = if offset > *frontier + GAP { end } else { *frontier };
        let to = (end + AHEAD).min(self.file.metadata()?.len()).max(end);
        *frontier = to;
        // When the disk is too full for zeros, it may still have room for what is to be written.
        self.fill(from, to).or_else(|error| match error.kind() {
            io::ErrorKind::StorageFull => Ok(()),
            _ => Err(error),
        })
    }
}

impl Drop for FilledFile {
    /// As when it is closed: redb drops a file that it cannot open.
    fn drop(&mut self) {
        // It is unlocked with its last handle in any case.
        let _ = self.file.unlock();
    }
}

/// The end of the last block that is occupied. Where the file system cannot say, the end of the file.
fn end_of_data(file: &File) -> io::Result<u64> {
    use rustix::fs::SeekFrom;
    let mut end = 0;
    loop {
        match rustix::fs::seek(file, SeekFrom::Data(end)) {
            Ok(data) => end = rustix::fs::seek(file, SeekFrom::Hole(data))?,
            Err(rustix::io::Errno::NXIO) => return Ok(end),
            Err(rustix::io::Errno::INVAL) => return Ok(file.metadata()?.len()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl redb::StorageBackend for FilledFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Bytes past the end of the file read as zeros, which no page begins with. A damaged page may point there, and redb refuses all further
    /// work after a read that fails.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self
                .file
                .read_at(&mut out[done..], offset.saturating_add(done as u64))
            {
                Ok(0) => {
                    out[done..].fill(0);
                    return Ok(());
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        crash::point()?;
        let mut frontier = self.frontier.lock();
        self.file.set_len(len)?;
        *frontier = (*frontier).min(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        crash::point()?;
        match self.fsync {
            true => self.file.sync_data(),
            false => Ok(()),
        }
    }

    fn close(&self) -> io::Result<()> {
        // Closing alone would not do while a child process that is just being started still has a copy of the handle.
        self.file.unlock()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        crash::point()?;
        self.prepare(offset, offset + data.len() as u64)?;
        self.file.write_all_at(data, offset)
    }
}

#[cfg(test)]
mod tests {
    use redb::StorageBackend;

    use super::*;

    #[test]
    fn filling_never_touches_written_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let writes = [
            (0, 100),
            (5_000, 10),
            (80 << 20, 4096),
            ((200 << 20) - 7, 7),
            (9 << 20, 4096),
            (150 << 20, 1),
        ];
        FilledFile::open(&path, true).unwrap().set_len(200 << 20).unwrap();
        let check = |file: &FilledFile, count: usize| {
            for (index, (offset, len)) in writes[..count].iter().enumerate() {
                let mut found = vec![0; *len];
                file.read(*offset, &mut found).unwrap();
                assert!(
                    found.iter().all(|byte| usize::from(*byte) == index + 1),
                    "write {index} of {count}"
                );
            }
        };
        for (index, (offset, len)) in writes.iter().enumerate() {
            // Reopened each time, as after a crash.
            let file = FilledFile::open(&path, true).unwrap();
            file.write(*offset, &vec![index as u8 + 1; *len]).unwrap();
            check(&file, index + 1);
            let second = FilledFile::open(&path, true).unwrap_err();
            assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        }
        let file = FilledFile::open(&path, true).unwrap();
        check(&file, writes.len());
        assert_eq!(file.len().unwrap(), 200 << 20);
        file.set_len(1 << 20).unwrap();
        file.set_len(2 << 20).unwrap();
        let mut found = [1; 4];
        file.read(1 << 20, &mut found).unwrap();
        assert_eq!(found, [0; 4]);
    }

    #[test]
    fn zeros_lie_past_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = FilledFile::open(&dir.path().join("f"), false).unwrap();
        file.set_len(6).unwrap();
        file.write(0, b"abcdef").unwrap();
        for (offset, expected) in [
            (2, b"cdef"),
            (4, b"ef\0\0"),
            (6, &[0; 4]),
            (i64::MAX as u64 - 4, &[0; 4]),
        ] {
            let mut found = [1; 4];
            file.read(offset, &mut found).unwrap();
            assert_eq!(&found, expected, "{offset}");
        }
    }

    #[test]
    fn nothing_is_filled_where_nothing_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = FilledFile::open(&path, false).unwrap();
        file.set_len(200 << 20).unwrap();
        for at in [0, 64 << 20] {
            file.write(at, b"data").unwrap();
            file.sync_data().unwrap();
            assert_eq!(*file.frontier().lock(), at + 4);
        }
        drop(file);
        let mut found = [0; 4];
        let file = FilledFile::open(&path, true).unwrap();
        file.read(64 << 20, &mut found).unwrap();
        assert_eq!(&found, b"data");
    }
}
