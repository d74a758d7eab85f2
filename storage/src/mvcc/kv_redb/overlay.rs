//! A file whose changes are kept in memory, so that what a start would make of a damaged store can be looked at without doing it.

use std::collections::HashMap;
use std::io;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::pages::PAGE;

/// Memory for changed pages, as a share of the file: what redb writes as it opens one is the map of its free pages, two bits or so for each.
const SHARE_OF_FILE: u64 = 64;
/// Memory for changed pages however small the file is.
const LEAST_BYTES: u64 = 64 << 20;

/// Reads a file, and keeps what is written to it in pages of its own.
#[derive(Debug)]
pub(super) struct Overlay<F> {
    file: F,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    pages: HashMap<u64, Box<[u8]>>,
    /// The length that it has now.
    len: u64,
    /// What of the file is still to be seen: it may have been cut shorter.
    seen: u64,
    most_pages: usize,
}

impl<F: StorageBackend> Overlay<F> {
    pub(super) fn new(file: F) -> io::Result<Overlay<F>> {
        let len = file.len()?;
        let most = (len / SHARE_OF_FILE).max(LEAST_BYTES) / PAGE as u64;
        Ok(Overlay {
            file,
            changes: Mutex::new(Changes {
                pages: HashMap::new(),
                len,
                seen: len,
                most_pages: usize::try_from(most).unwrap_or(usize::MAX),
            }),
        })
    }

    /// Reads the file itself, and zeros past what is to be seen of it, as [`FilledFile`](super::file::FilledFile) does past its end.
    fn read_below(&self, seen: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there =
            usize::try_from(seen.saturating_sub(offset)).map_or(out.len(), |there| there.min(out.len()));
        let (there, beyond) = out.split_at_mut(there);
        beyond.fill(0);
        match there.is_empty() {
            true => Ok(()),
            false => self.file.read(offset, there),
        }
    }
}

/// The parts of some bytes, by page: its number, where in it the part begins, and which of the bytes it is.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset.saturating_add(done as u64);
        let within = (at % PAGE as u64) as usize;
        let take = (PAGE - within).min(len - done);
        let part = (at / PAGE as u64, within, done..done + take);
        done += take;
        Some(part)
    })
}

impl<F: StorageBackend> StorageBackend for Overlay<F> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes.lock();
        self.read_below(changes.seen, offset, out)?;
        for (number, within, part) in parts(offset, out.len()) {
            if let Some(page) = changes.pages.get(&number) {
                let len = part.len();
                out[part].copy_from_slice(&page[within..within + len]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes.lock();
        changes.len = len;
        changes.seen = changes.seen.min(len);
        changes.pages.retain(|number, page| {
            let begin = number * PAGE as u64;
            if begin >= len {
                return false;
            }
            if let Ok(kept) = usize::try_from(len - begin)
                && kept < PAGE
            {
                page[kept..].fill(0);
            }
            true
        });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.lock();
        if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > changes.len)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, within, part) in parts(offset, data.len()) {
            if !changes.pages.contains_key(&number) {
                if changes.pages.len() >= changes.most_pages {
                    return Err(io::Error::other(
                        "a store that is only looked at would have too much of it written anew",
                    ));
                }
                let mut page = vec![0; PAGE].into_boxed_slice();
                self.read_below(changes.seen, number * PAGE as u64, &mut page)?;
                changes.pages.insert(number, page);
            }
            if let Some(page) = changes.pages.get_mut(&number) {
                page[within..within + part.len()].copy_from_slice(&data[part]);
            }
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

#[cfg(test)]
mod tests {
    use redb::StorageBackend;
    use redb::backends::InMemoryBackend;

    use super::*;

    /// A file of three pages and a bit, and the same bytes beside.
    fn file() -> (InMemoryBackend, Vec<u8>) {
        let bytes: Vec<u8> = (0..3 * PAGE + 100).map(|at| (at % 251) as u8 + 1).collect();
        let file = InMemoryBackend::new();
        file.set_len(bytes.len() as u64).unwrap();
        file.write(0, &bytes).unwrap();
        (file, bytes)
    }

    fn whole(file: &impl StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn it_reads_as_if_it_had_been_written() {
        let (file, mut bytes) = file();
        let overlay = Overlay::new(file).unwrap();
        for (offset, len) in [(10, 5), (PAGE - 3, 6), (PAGE + 7, 2 * PAGE), (3 * PAGE + 90, 10)] {
            overlay.write(offset as u64, &vec![0; len]).unwrap();
            bytes[offset..offset + len].fill(0);
            assert_eq!(whole(&overlay), bytes);
        }
        // What is cut off is gone, and what is added is empty.
        for len in [2 * PAGE + 50, PAGE, 5 * PAGE] {
            overlay.set_len(len as u64).unwrap();
            bytes.resize(len, 0);
            assert_eq!(whole(&overlay), bytes);
        }
        overlay.write(4 * PAGE as u64 - 1, b"ab").unwrap();
        bytes[4 * PAGE - 1..4 * PAGE + 1].copy_from_slice(b"ab");
        assert_eq!(whole(&overlay), bytes);
    }

    #[test]
    fn the_file_stays_as_it_was() {
        let (file, bytes) = file();
        let overlay = Overlay::new(file).unwrap();
        overlay.write(0, &[7; 5000]).unwrap();
        overlay.set_len(100).unwrap();
        overlay.sync_data().unwrap();
        assert_eq!(whole(&overlay.file), bytes);
    }

    #[test]
    fn zeros_lie_past_the_end() {
        let (file, bytes) = file();
        let overlay = Overlay::new(file).unwrap();
        let end = bytes.len() as u64;
        for (offset, expected) in [
            (end - 1, [bytes[bytes.len() - 1], 0]),
            (end, [0, 0]),
            (u64::MAX - 1, [0, 0]),
        ] {
            let mut found = [1; 2];
            overlay.read(offset, &mut found).unwrap();
            assert_eq!(found, expected, "{offset}");
            assert!(overlay.write(offset, &[0; 2]).is_err(), "{offset}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let (file, _) = file();
        let overlay = Overlay::new(file).unwrap();
        overlay.set_len(2 * LEAST_BYTES).unwrap();
        let room = overlay.changes.lock().most_pages;
        for number in 0..room {
            overlay.write((number * PAGE) as u64, &[1]).unwrap();
        }
        assert!(overlay.write((room * PAGE) as u64, &[1]).is_err());
        overlay.write(5, &[2]).unwrap();
    }
}
