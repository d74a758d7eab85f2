//! Batches that the engine did not take: for want of room, after which the store goes on, and for any other reason.

use std::time::{Duration, Instant};

use super::super::kv::Write;
use super::super::queue::shut_down;
use super::super::record;
use super::book::Garbage;
use super::{Answer, Writer};
use crate::{Outcome, StorageError};

/// How long what the writer does of its own accord waits after there was no room for it.
const AFTER_NO_SPACE: Duration = Duration::from_secs(1);

impl Writer {
    /// Tries a batch again that the engine had no space for; gives whether it is stored. One that only deletes may use the reserve.
    pub(super) fn retry_after_no_space(
        &mut self,
        batch: &[Write],
        makes_room: bool,
    ) -> Result<bool, StorageError> {
        if self.reopen(batch)? {
            return Ok(true);
        }
        let reserve = makes_room
            && self
                .shared
                .kv
                .read()
                .as_ref()
                .is_some_and(|kv| kv.release_reserve());
        if !reserve {
            return Ok(false);
        }
        match self.apply(batch) {
            Ok(()) => Ok(true),
            Err(StorageError::NoSpace(_)) => self.reopen(batch),
            Err(error) => Err(error),
        }
    }

    /// There was no room for a batch. An engine that is reopened has all of it or nothing: says which.
    pub(super) fn reopen(&self, batch: &[Write]) -> Result<bool, StorageError> {
        let acknowledged = self.shared.index.read().revision;
        let mut kv = self.shared.kv.write();
        let kv = kv.as_mut().ok_or_else(shut_down)?;
        kv.reopen(acknowledged)?;
        let reader = kv.reader()?;
        for write in batch {
            match write {
                // The log's keys are written once each, so any of them tells.
                Write::Put(key, _) if record::is_setting(key) => {}
                Write::Put(key, _) => return Ok(reader.get(key)?.is_some()),
                Write::Delete(key) => return Ok(reader.get(key)?.is_none()),
            }
        }
        // A setting alone, which may be written again.
        Ok(false)
    }

    /// Nothing of the batch was written: the pending sweep is retried later, and clients get `NoSpace`.
    pub(super) fn put_off(&mut self, swept: Vec<Garbage>, why: String, answers: &mut [Answer]) {
        tracing::warn!(
            why,
            "there is no room for a write to the store, nothing was written"
        );
        for garbage in swept.into_iter().rev() {
            self.book.garbage_bytes += u64::from(garbage.len);
            self.book.garbage.push_front(garbage);
        }
        self.rests_until = Some(Instant::now() + AFTER_NO_SPACE);
        self.space.ask_again();
        for answer in answers {
            if let Answer::Commit(_, result @ Ok(Outcome::Committed(_))) = answer {
                *result = Err(StorageError::NoSpace(why.clone()));
            }
        }
    }

    /// The state on disk is unknown, so nothing may be built on it until it is read again.
    pub(super) fn fail(&mut self, error: StorageError, answers: &mut [Answer]) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "storage write failed, the store takes no more writes"
        );
        let message = format!("a write to the store failed ({error}), it has to be reopened");
        for answer in answers {
            if let Answer::Commit(_, result) = answer {
                let wrote = matches!(result, Ok(Outcome::Committed(_)));
                *result = Err(if wrote {
                    StorageError::Uncertain(error.to_string())
                } else {
                    StorageError::Unavailable {
                        message: message.clone(),
                        source: None,
                    }
                });
            }
        }
        *self.shared.failed.lock() = Some(message);
    }
}
