//! The newest revision that a store is known to have reached, so that an engine that lost data is noticed.
//!
//! An engine that finds the end of its log damaged takes it for the torn end of a crash, and goes on from what was before: changes
//! that were acknowledged are gone. A crash cannot tear what was synced. So the directory notes each revision after the engine has
//! synced it and before it is acknowledged, and at the close the number of records, too.
//!
//! The file has two copies ([`copies`]) of a line, `revision 12 records 34`, without the records while the store is open. Opening and
//! closing make both durable. Between, the copies are written in turn and not synced, which costs no more than a copy to the system's
//! cache: a killed process leaves the newest one. Loss of power may leave an older one, never one ahead of the data, since what is noted
//! was synced before; a torn copy leaves the other. The newer copy that is whole counts.
//!
//! Where the directory is one of several in a data directory, a file outside says the same ([`beside`]).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::beside::Known;
use super::copies::{self, COPY};
use super::{Directory, beside, remove, write_durably};
use crate::{StorageError, crash};

const NAME: &str = "REVISION";

/// The content of a store's mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// It was at least here.
    pub revision: u64,
    /// It was closed with this many log records, and not opened since.
    pub records: Option<u64>,
}

impl Mark {
    fn line(self) -> String {
        match self.records {
            Some(records) => format!("revision {} records {records}", self.revision),
            None => format!("revision {}", self.revision),
        }
    }

    fn parse(line: &str) -> Option<Mark> {
        let line = line.strip_prefix("revision ")?;
        let (revision, records) = match line.split_once(" records ") {
            Some((revision, records)) => (revision, Some(records.parse().ok()?)),
            None => (line, None),
        };
        Some(Mark {
            revision: revision.parse().ok()?,
            records,
        })
    }

    /// The newer of the copies that are whole. Of two at one revision the one of an open store is newer: the other one is what it was
    /// before it was opened, or what it was about to be when it was closed.
    fn read(file: &[u8]) -> Option<Mark> {
        let marks = copies::lines(file).filter_map(Mark::parse);
        marks.max_by_key(|mark| (mark.revision, mark.records.is_none()))
    }

    /// Whether a store that was here may be at `revision` with `records` now. Fails with `Gone`.
    fn check(self, revision: u64, records: u64) -> Result<(), StorageError> {
        if revision < self.revision {
            return Err(StorageError::Gone(format!(
                "it was at revision {}, its data ends at {revision}",
                self.revision
            )));
        }
        if let Some(closed) = self.records.filter(|closed| *closed != records) {
            return Err(StorageError::Gone(format!(
                "it was closed with {closed} changes in its log, its data has {records}"
            )));
        }
        Ok(())
    }
}

/// The file while the store is open.
#[derive(Debug)]
pub(super) struct OpenMark {
    file: File,
    /// The copy that is written next.
    second: bool,
}

impl OpenMark {
    /// Writes both copies, and makes each durable before the next. In place where the file is of that form, since a full disk has room
    /// for that.
    fn write(path: &Path, mark: Mark) -> Result<OpenMark, StorageError> {
        let copy = copies::copy(&mark.line());
        let in_place = || -> std::io::Result<Option<File>> {
            let file = File::options().read(true).write(true).open(path)?;
            if file.metadata()?.len() != 2 * COPY as u64 {
                return Ok(None);
            }
            for at in [0, COPY as u64] {
                crash::point()?;
                file.write_all_at(copy.as_bytes(), at)?;
                file.sync_data()?;
            }
            Ok(Some(file))
        };
        let failed = |error| super::failed("cannot note the store's revision in", path, error);
        let file = match in_place() {
            Ok(Some(file)) => file,
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {
                write_durably(path, &copy.repeat(2))?;
                File::options().write(true).open(path).map_err(failed)?
            }
        };
        Ok(OpenMark { file, second: false })
    }

    fn note(&mut self, revision: u64) -> std::io::Result<()> {
        let mark = Mark {
            revision,
            records: None,
        };
        let at = if self.second { COPY as u64 } else { 0 };
        self.second = !self.second;
        self.file.write_all_at(copies::copy(&mark.line()).as_bytes(), at)
    }
}

impl Directory {
    fn mark(&self) -> Option<Mark> {
        Mark::read(&std::fs::read(self.join(NAME)).ok()?)
    }

    /// The newest revision that a store here is known to have reached, whether or not it is still there.
    pub(crate) fn reached(&self) -> Option<u64> {
        self.mark().map(|mark| mark.revision).max(self.known.revision())
    }

    /// Fails with `Gone` when a store ends before what is known of it from outside of its directory.
    fn check_known(&self, now: u64) -> Result<(), StorageError> {
        match self.known {
            Known::Store { engine, revision } if engine == self.engine => Mark {
                revision,
                records: None,
            }
            .check(now, 0),
            _ => Ok(()),
        }
    }

    /// Compares the store with its mark, and marks it as open. Fails with `Gone` when it has lost data.
    pub(crate) fn opened(
        &mut self,
        revision: u64,
        records: u64,
        allow_empty: bool,
    ) -> Result<(), StorageError> {
        let path = self.join(NAME);
        match self.mark() {
            Some(before) if !allow_empty => before.check(revision, records)?,
            None if path.exists() => {
                tracing::warn!(path = %path.display(), "the REVISION file of the store is damaged");
            }
            None if revision > 0 => {
                tracing::warn!(path = %path.display(), "the REVISION file of the store is missing; whether it has all that was acknowledged is not known");
            }
            _ => {}
        }
        if !allow_empty {
            self.check_known(revision)?;
        }
        beside::note(&self.path, self.engine, revision);
        let now = Mark {
            revision,
            records: None,
        };
        // On a full disk there may be no room for it. Without it the next start takes the store as it is.
        match OpenMark::write(&path, now) {
            Ok(mark) => self.mark = Some(mark),
            Err(error) => {
                cannot_note(&error);
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Notes a revision that is on the disk and about to be acknowledged. Does not wait for a disk.
    pub(crate) fn advanced(&mut self, revision: u64) {
        let Some(mark) = &mut self.mark else {
            return;
        };
        if let Err(error) = mark.note(revision) {
            cannot_note(&error);
            // What is noted stays as true as it is.
            self.mark = None;
        }
    }

    /// Compares the data with the store's mark, which it leaves as it is. Fails with `Gone` when data has been lost.
    pub(crate) fn compare(&self, revision: u64, records: u64) -> Result<(), StorageError> {
        if let Some(mark) = self.mark() {
            mark.check(revision, records)?;
        }
        self.check_known(revision)
    }

    /// Notes how the store was closed.
    pub(crate) fn closed(&self, revision: u64, records: u64) {
        let mark = Mark {
            revision,
            records: Some(records),
        };
        if let Err(error) = OpenMark::write(&self.join(NAME), mark) {
            cannot_note(&error);
        }
        beside::note(&self.path, self.engine, revision);
    }
}

fn cannot_note(error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "the store's revision cannot be noted");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        for mark in [(7, None), (7, Some(12)), (0, Some(0)), (u64::MAX, None)] {
            let mark = Mark {
                revision: mark.0,
                records: mark.1,
            };
            let copy = copies::copy(&mark.line());
            assert_eq!(Mark::read(copy.repeat(2).as_bytes()), Some(mark));
            // As earlier versions wrote it.
            let line = mark.line();
            let sum = crc32fast::hash(line.as_bytes());
            assert_eq!(
                Mark::read(format!("{line} sum {sum:08x}\n").as_bytes()),
                Some(mark)
            );
        }
        assert_eq!(Mark::read(b"nonsense"), None);
    }

    #[test]
    fn the_newer_copy_counts() {
        #[track_caller]
        fn check(copies: [(u64, Option<u64>); 2], counts: (u64, Option<u64>)) {
            let marks = copies.map(|(revision, records)| Mark { revision, records });
            let [first, second] = marks.map(|mark| copies::copy(&mark.line()));
            let (revision, records) = counts;
            for file in [format!("{first}{second}"), format!("{second}{first}")] {
                assert_eq!(Mark::read(file.as_bytes()), Some(Mark { revision, records }));
            }
        }
        check([(7, None), (8, None)], (8, None));
        // Killed amid opening it, and amid closing it.
        check([(7, Some(3)), (7, None)], (7, None));
        check([(7, Some(3)), (6, None)], (7, Some(3)));
    }

    #[test]
    fn a_mark_advances_in_place_and_survives_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        std::fs::write(&path, "revision 3 sum 00000000\n").unwrap();
        let open = |revision| Mark {
            revision,
            records: None,
        };
        let mut mark = OpenMark::write(&path, open(5)).unwrap();
        let read = || Mark::read(&std::fs::read(&path).unwrap());
        assert_eq!(read(), Some(open(5)));
        for revision in 6..=9 {
            mark.note(revision).unwrap();
            assert_eq!(read(), Some(open(revision)));
            let whole = std::fs::read(&path).unwrap();
            assert_eq!(whole.len(), 2 * COPY);
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 4;
                let left = Mark::read(&damaged).unwrap().revision;
                assert!(left == revision || left == revision - 1, "byte {at}: {left}");
            }
        }
        let closed = Mark {
            revision: 9,
            records: Some(4),
        };
        OpenMark::write(&path, closed).unwrap();
        assert_eq!(read(), Some(closed));
    }

    #[test]
    fn a_store_does_not_fall_behind() {
        #[track_caller]
        fn check(records: Option<u64>, now: (u64, u64), fine: bool) {
            let mark = Mark {
                revision: 10,
                records,
            };
            assert_eq!(mark.check(now.0, now.1).is_ok(), fine);
        }
        check(None, (10, 3), true);
        check(None, (11, 3), true);
        check(None, (9, 3), false);
        check(Some(3), (10, 3), true);
        check(Some(3), (10, 2), false);
        check(Some(3), (0, 0), false);
    }
}
