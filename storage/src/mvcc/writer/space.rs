//! The free space of the file system, asked for now and then.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::kv::Kv;
use crate::OpenOptions;

/// How often the free space is asked for, at most, and after how many bytes written regardless.
const SPACE_EVERY: Duration = Duration::from_millis(500);
const SPACE_BYTES: u64 = 16 << 20;

/// Room within the engine from which on writes are taken although the disk is full.
const REUSABLE: u64 = 8 << 20;

/// Watches the free space of the file system.
#[derive(Debug, Default)]
pub(super) struct Space {
    checked: Option<Instant>,
    /// Bytes since then.
    pub(super) written: u64,
    refusal: Option<String>,
    /// Counting the engine's own room may mean to read all of it: not before this moment again.
    recount: Option<Instant>,
    /// The reusable bytes at that count, less those written since.
    reusable: Option<u64>,
}

impl Space {
    /// Why nothing may be written now, if so.
    pub(super) fn refusal(&mut self, kv: Option<&dyn Kv>, options: &OpenOptions) -> Option<String> {
        let min_free = options.min_free_bytes;
        let kv = kv.filter(|_| min_free > 0)?;
        let fresh = self.checked.is_some_and(|at| at.elapsed() < SPACE_EVERY) && self.written < SPACE_BYTES;
        if !fresh {
            self.checked = Some(Instant::now());
            self.reusable = self.reusable.map(|room| room.saturating_sub(self.written));
            self.written = 0;
            self.refusal = match kv.free_bytes() {
                Ok(Some(free)) if free < min_free => {
                    let room = self.reusable(kv);
                    (room < min_free.min(REUSABLE)).then(|| {
                        format!(
                            "{free} bytes are free at `{}` and {room} in the store, {min_free} are kept in reserve",
                            options.dir.as_deref().unwrap_or(Path::new("")).display()
                        )
                    })
                }
                Ok(Some(_)) => {
                    kv.keep_reserve();
                    None
                }
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot watch the free space"
                    );
                    None
                }
            };
        }
        self.refusal.clone()
    }

    /// Values of so many bytes were removed. In an engine that reuses their pages they are room at once: the next count may be far off
    /// where counting takes long.
    pub(super) fn freed(&mut self, bytes: u64) {
        self.reusable = self.reusable.map(|room| room.saturating_add(bytes));
    }

    /// There was no room after all: looks again before the next write.
    pub(super) fn ask_again(&mut self) {
        self.checked = None;
        self.recount = None;
    }

    /// The free room within the engine, which deletions create and the file system does not see.
    fn reusable(&mut self, kv: &dyn Kv) -> u64 {
        let now = Instant::now();
        if self.recount.is_none_or(|at| at <= now) {
            self.reusable = match kv.reusable_bytes() {
                Ok(room) => room,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot count the room in the store"
                    );
                    None
                }
            };
            // Counting takes a small share of the time, whatever the size of the store.
            self.recount = Some(now + 20 * now.elapsed());
        }
        self.reusable.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kv_memory::MemoryKv;
    use super::*;

    #[track_caller]
    fn check(counted: Option<u64>, freed: u64, room: u64) {
        let mut space = Space {
            // The next count is far off, as where the last one took long.
            recount: Some(Instant::now() + Duration::from_secs(3600)),
            reusable: counted,
            ..Space::default()
        };
        space.freed(freed);
        assert_eq!(space.reusable(&MemoryKv::default()), room);
    }

    #[test]
    fn removed_values_are_room_before_the_next_count() {
        check(Some(0), 0, 0);
        check(Some(0), REUSABLE, REUSABLE);
        check(Some(7), 5, 12);
        check(Some(u64::MAX), 5, u64::MAX);
        // An engine that does not reuse pages in place.
        check(None, REUSABLE, 0);
    }
}
