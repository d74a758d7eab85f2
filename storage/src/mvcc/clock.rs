//! The store's own time, by which keys end and history is kept.
//!
//! The wall clock is looked at once, when the store is opened. From then on time passes by the monotonic clock, so a wall clock that is
//! set forward ends no key, and one that is set back keeps none longer. A log written in the future of the wall
//! clock was written by a clock that was ahead: time goes on from there.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by the wall clock.
pub(super) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    milliseconds(since)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Time that never goes back, not even across restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began_ms: u64,
    began: Instant,
}

impl Clock {
    /// A clock that begins at the later of the two: the wall clock's time, and the newest time in the log.
    pub(super) fn new(wall_ms: u64, newest_ms: u64) -> Clock {
        Clock {
            began_ms: wall_ms.max(newest_ms),
            began: Instant::now(),
        }
    }

    /// Milliseconds since 1970 by this clock.
    pub(super) fn now_ms(&self) -> u64 {
        self.began_ms.saturating_add(milliseconds(self.began.elapsed()))
    }
}
