//! Reads the records of a running store as they are on the disk, past redb's cache, and looks at the checksum of each page on the way.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use redb::{Database, ReadTransaction, ReadableDatabase};

use super::pages::{FileHeader, HEADER, Link, Node, PAGE, Widths};
use super::walk::{MOST_DEPTH, failed};
use crate::StorageError;
use crate::mvcc::kv::{Reader, Visit};

/// The header is written anew with each commit, and may be read while it is.
const TRIES: usize = 8;

/// A reader of one commit's records, whose pages are not used again while it lives.
pub(super) struct DiskReader<'f> {
    file: &'f File,
    header: FileHeader,
    len: u64,
    root: Link,
    widths: Widths,
    unsound: Cell<u64>,
    _pin: ReadTransaction,
}

impl<'f> DiskReader<'f> {
    /// Of the newest commit. `None` when the table cannot be found in the file as it is, or redb writes its header all the time.
    pub(super) fn of(file: &'f File, db: &Database) -> Result<Option<Self>, StorageError> {
        // The reader is opened before the header is read, so that pages which later commits free are not reused while it lives.
        let pin = db
            .begin_read()
            .map_err(|error| super::failed("beginning to read", error))?;
        let len = file.metadata().map_err(failed)?.len();
        for _ in 0..TRIES {
            let mut bytes = [0; HEADER];
            file.read_exact_at(&mut bytes, 0).map_err(failed)?;
            let Some(header) = FileHeader::parse(bytes) else {
                return Ok(None);
            };
            if !header.slots().iter().all(super::pages::Slot::is_sound) {
                continue;
            }
            let Some(tables) = header.newest().data() else {
                return Ok(None);
            };
            let mut reader = DiskReader {
                file,
                header,
                len,
                root: tables.link,
                widths: Widths::default(),
                unsound: Cell::default(),
                _pin: pin,
            };
            let (page, node) = reader.page(tables.link)?;
            // The store has one table.
            let table = match node {
                Node::Leaf(leaf) => leaf.table(&page, 0).flatten(),
                Node::Branch(_) => None,
            };
            let Some((_, root, widths)) = table else {
                return Ok(None);
            };
            (reader.root, reader.widths) = (root.link, widths);
            return Ok(Some(reader));
        }
        Ok(None)
    }

    /// A page, and what it is. A leaf that fails its checksum is read as it is, because its records have checksums of their own.
    fn page(&self, link: Link) -> Result<(Vec<u8>, Node), StorageError> {
        let unreadable = || StorageError::Corrupt(format!("page {:x} of the file cannot be read", link.page));
        let place = self.header.place(link.page, self.len).ok_or_else(unreadable)?;
        let mut page = vec![0; usize::try_from(place.end - place.start).unwrap_or(PAGE)];
        self.file.read_exact_at(&mut page, place.start).map_err(failed)?;
        let node = self.widths.node(&page).ok_or_else(unreadable)?;
        if self.widths.sum(&page) != Some(link.sum) {
            self.unsound.set(self.unsound.get() + 1);
            if let Node::Branch(_) = node {
                return Err(unreadable());
            }
        }
        Ok((page, node))
    }

    /// The pairs of a range below a page. False when `visit` has seen enough.
    fn below(
        &self,
        link: Link,
        (from, to): (&[u8], &[u8]),
        depth: usize,
        visit: Visit<'_>,
    ) -> Result<bool, StorageError> {
        if depth == MOST_DEPTH {
            return Err(StorageError::Corrupt("pages of the file lead in circles".into()));
        }
        let (page, node) = self.page(link)?;
        match node {
            Node::Branch(links) => {
                let last = links.len() - 1;
                for (n, (_, link)) in links.into_iter().enumerate() {
                    let key = |n| self.widths.branch_key(&page, n);
                    let is_before = n < last && key(n).is_some_and(|greatest| greatest < from);
                    let is_after = n > 0 && key(n - 1).is_some_and(|before| before >= to);
                    if !is_before && !is_after && !self.below(link, (from, to), depth + 1, visit)? {
                        return Ok(false);
                    }
                }
            }
            Node::Leaf(leaf) => {
                for n in 0..leaf.count() {
                    let value = leaf.value(&page, n).and_then(|value| page.get(value));
                    if let (Some(key), Some(value)) = (leaf.key(&page, n), value)
                        && (from..to).contains(&key)
                        && !visit(key, value)?
                    {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

impl Reader for DiskReader<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<bytes::Bytes>, StorageError> {
        let mut found = None;
        let next = [key, b"\0"].concat();
        self.scan(key, &next, &mut |_, value| {
            found = Some(bytes::Bytes::copy_from_slice(value));
            Ok(false)
        })?;
        Ok(found)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: Visit<'_>) -> Result<(), StorageError> {
        self.below(self.root, (from, to), 0, visit).map(drop)
    }

    fn unsound_pages(&self) -> u64 {
        self.unsound.get()
    }
}
