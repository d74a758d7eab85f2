//! Retries with backoff.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::object::Uid;

const FIRST: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The objects to retry, and when.
#[derive(Debug, Default)]
pub(super) struct Retries {
    due: BTreeSet<(Instant, Uid)>,
    failed: HashMap<Uid, (u32, Instant)>,
}

impl Retries {
    /// It did not work out; it is tried again after twice the time of before.
    pub(super) fn failed(&mut self, uid: Uid, now: Instant) {
        let (times, at) = self.failed.entry(uid.clone()).or_insert((0, now));
        self.due.remove(&(*at, uid.clone()));
        *at = now + FIRST.saturating_mul(1 << (*times).min(16)).min(MAX_DELAY);
        *times += 1;
        self.due.insert((*at, uid));
    }

    /// It worked out.
    pub(super) fn done(&mut self, uid: &Uid) {
        if let Some((_, at)) = self.failed.remove(uid) {
            self.due.remove(&(at, uid.clone()));
        }
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Those that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Uid> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, uid)) = self.due.pop_first()
        {
            due.push(uid);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_later() {
        let mut retries = Retries::default();
        let (start, uid): (Instant, Uid) = (Instant::now(), "u".into());
        retries.failed(uid.clone(), start);
        assert_eq!(retries.next(), Some(start + FIRST));
        assert_eq!(retries.take_due(start + FIRST), std::slice::from_ref(&uid));
        retries.failed(uid.clone(), start);
        assert_eq!(retries.next(), Some(start + FIRST * 2));
        for _ in 0..40 {
            retries.failed(uid.clone(), start);
        }
        assert_eq!(retries.next(), Some(start + MAX_DELAY));
        retries.done(&uid);
        assert_eq!(retries.next(), None);
        assert!(retries.failed.is_empty() && retries.due.is_empty());
    }
}
