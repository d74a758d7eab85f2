//! The `Retry-After` of refused requests: longer, the longer a level is overloaded.
//!
//! As upstream: it doubles when there were at least three refusals for each of its seconds during as many seconds, no more often than
//! that, and falls by one second when there were fewer refusals than seconds. Only refusals move it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Upstream's `maxRetryAfter`, in seconds.
const MOST: u64 = 32;

/// The refusals of a level.
#[derive(Debug)]
pub(crate) struct RetryAfter {
    begin: Instant,
    /// Refusals by second, oldest first: no more seconds than count.
    seconds: VecDeque<(u64, u64)>,
    retry_after: u64,
    raised: Option<u64>,
}

impl RetryAfter {
    pub(crate) fn new(now: Instant) -> Self {
        RetryAfter {
            begin: now,
            seconds: VecDeque::new(),
            retry_after: 1,
            raised: None,
        }
    }

    /// Counts a refusal and gives what its answer says.
    pub(crate) fn refuse(&mut self, now: Instant) -> Duration {
        let second = now.saturating_duration_since(self.begin).as_secs();
        match self.seconds.back_mut() {
            Some((last, refusals)) if *last == second => *refusals += 1,
            _ => {
                self.adjust(second);
                self.seconds.push_back((second, 1));
            }
        }
        Duration::from_secs(self.retry_after)
    }

    /// A second begins.
    fn adjust(&mut self, second: u64) {
        while let Some((oldest, _)) = self.seconds.front()
            && second - oldest > MOST
        {
            self.seconds.pop_front();
        }
        let retry_after = self.retry_after;
        let recent = self.seconds.iter().filter(|(at, _)| second - at <= retry_after);
        let refusals: u64 = recent.map(|(_, refusals)| refusals).sum();
        let may_rise = self.raised.is_none_or(|raised| second - raised >= retry_after);
        if may_rise && refusals >= 3 * retry_after {
            self.retry_after = (retry_after * 2).min(MOST);
            self.raised = Some(second);
        } else if refusals < retry_after && retry_after > 1 {
            self.retry_after -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_refusals() {
        let begin = Instant::now();
        let mut tracker = RetryAfter::new(begin);
        let mut refuse = |second, times| {
            let now = begin + Duration::from_secs(second);
            (0..times).map(|_| tracker.refuse(now).as_secs()).last()
        };
        assert_eq!(refuse(0, 1), Some(1));
        // The seconds before count, not the present one.
        assert_eq!(refuse(1, 3), Some(1));
        assert_eq!(refuse(2, 10), Some(2));
        // Not more often than its own length.
        assert_eq!(refuse(3, 10), Some(2));
        assert_eq!(refuse(4, 100), Some(4));
        assert_eq!(refuse(8, 200), Some(8));
        assert_eq!(refuse(16, 200), Some(16));
        assert_eq!(refuse(32, 200), Some(32));
        assert_eq!(refuse(64, 200), Some(32));
        // It falls as slowly as refusals come.
        assert_eq!(refuse(100, 1), Some(31));
        assert_eq!(refuse(101, 1), Some(30));
        assert_eq!(refuse(1_000, 1), Some(29));
    }
}
