//! The newest revision that a store is known to have reached, so that an engine that lost data is noticed.
//!
//! An engine that finds the end of its log damaged takes it for the torn end of a crash, and goes on from what was before: changes
//! that were acknowledged are gone. A crash cannot tear what was synced. So the directory notes the newest revision when the store
//! is opened and closed, and at the close the number of records, too.
//!
//! Where the directory is one of several in a data directory, a file outside says the same ([`beside`]).
//!
//! The file is a line, `revision 12 records 34 sum 1a2b3c4d`, without the records while the store is open.

use super::beside::Known;
use super::{Directory, beside, remove, write_durably};
use crate::StorageError;

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
        let mut line = format!("revision {}", self.revision);
        if let Some(records) = self.records {
            line.push_str(&format!(" records {records}"));
        }
        let sum = crc32fast::hash(line.as_bytes());
        format!("{line} sum {sum:08x}\n")
    }

    fn parse(text: &str) -> Option<Mark> {
        let (line, sum) = text.strip_suffix('\n')?.split_once(" sum ")?;
        if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(line.as_bytes()) {
            return None;
        }
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

    /// Whether a store that was here may be at `revision` with `records` now. Fails with `Gone`.
    fn check(self, revision: u64, records: u64) -> Result<(), StorageError> {
        if revision < self.revision {
            return Err(StorageError::Gone(format!(
                "it was at revision {}, its data ends at {revision}; restore a backup",
                self.revision
            )));
        }
        if let Some(closed) = self.records.filter(|closed| *closed != records) {
            return Err(StorageError::Gone(format!(
                "it was closed with {closed} changes in its log, its data has {records}; restore a backup"
            )));
        }
        Ok(())
    }
}

impl Directory {
    fn mark(&self) -> Option<Mark> {
        Mark::parse(&std::fs::read_to_string(self.join(NAME)).ok()?)
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
    pub(crate) fn opened(&self, revision: u64, records: u64, allow_empty: bool) -> Result<(), StorageError> {
        let path = self.join(NAME);
        let noted = std::fs::read_to_string(&path).ok();
        let before = noted.as_deref().and_then(Mark::parse);
        match before {
            Some(before) if !allow_empty => before.check(revision, records)?,
            None if noted.is_some() => {
                tracing::warn!(path = %path.display(), "the REVISION file of the store is damaged");
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
        if before == Some(now) {
            return Ok(());
        }
        // On a full disk there may be no room for it. Without it the next start takes the store as it is.
        write_durably(&path, &now.line()).or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the store's revision cannot be noted"
            );
            remove(&path)
        })
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
        if let Err(error) = write_durably(&self.join(NAME), &mark.line()) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the store's revision cannot be noted"
            );
        }
        beside::note(&self.path, self.engine, revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_line_is_none() {
        for mark in [(7, None), (7, Some(12)), (0, Some(0)), (u64::MAX, None)] {
            let mark = Mark {
                revision: mark.0,
                records: mark.1,
            };
            let line = mark.line();
            assert_eq!(Mark::parse(&line), Some(mark));
            for at in 0..line.len() {
                let mut damaged = line.clone().into_bytes();
                damaged[at] ^= 1;
                let damaged = String::from_utf8(damaged).unwrap();
                assert_eq!(Mark::parse(&damaged), None, "{damaged}");
            }
        }
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
