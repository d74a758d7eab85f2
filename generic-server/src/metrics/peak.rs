//! A gauge that shows the highest value since it was read before, so that what came and went between two readings is seen.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What is shown is about as much time at least, whoever else reads the gauge.
const SHORTEST: Duration = Duration::from_secs(1);

/// Counts what is there now.
#[derive(Debug)]
pub(crate) struct Peak {
    now: AtomicI64,
    /// The highest since `read`.
    highest: AtomicI64,
    /// When it was last read, and the highest up to then.
    read: Mutex<(Instant, i64)>,
}

impl Default for Peak {
    fn default() -> Self {
        Peak {
            now: AtomicI64::new(0),
            highest: AtomicI64::new(0),
            read: Mutex::new((Instant::now(), 0)),
        }
    }
}

impl Peak {
    /// One more.
    pub(crate) fn enters(&self) {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.highest.fetch_max(now, Ordering::Relaxed);
    }

    /// One less.
    pub(crate) fn leaves(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// The highest since the reading before. Readings of the same second show the same.
    pub(crate) fn highest(&self) -> i64 {
        self.highest_at(Instant::now())
    }

    fn highest_at(&self, at: Instant) -> i64 {
        let mut read = self.read.lock();
        let (before, shown) = &mut *read;
        if at.saturating_duration_since(*before) < SHORTEST {
            return self.highest.load(Ordering::Relaxed).max(*shown);
        }
        *before = at;
        *shown = self
            .highest
            .swap(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
        *shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_went_is_seen_once() {
        let peak = Peak::default();
        let begin = Instant::now();
        let at = |tenths: u64| begin + Duration::from_millis(100 * tenths);
        peak.enters();
        peak.enters();
        peak.leaves();
        assert_eq!(peak.highest_at(at(5)), 2);
        assert_eq!(peak.highest_at(at(20)), 2);
        // Another reader of the same second.
        assert_eq!(peak.highest_at(at(21)), 2);
        assert_eq!(peak.highest_at(at(40)), 1);
        peak.leaves();
        assert_eq!(peak.highest_at(at(60)), 1);
        assert_eq!(peak.highest_at(at(80)), 0);
    }
}
