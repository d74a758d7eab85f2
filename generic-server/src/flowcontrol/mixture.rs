//! How many reads and writes run or wait in all levels: `read_vs_write_current_requests`.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::demand::seats_f64;
use super::utilization::Timed;
use crate::metrics::{Peak, family, sample};
use crate::request::RequestInfo;

const BOUNDS: &[f64] = &[
    0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
];
const PHASES: [&str; 2] = ["executing", "waiting"];
const KINDS: [&str; 2] = ["mutating", "readOnly"];

/// The stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Executing,
    Waiting,
}

/// Counted when a request begins to run or to wait, and when it ends to.
#[derive(Debug)]
pub(crate) struct Mixture {
    begin: Instant,
    /// By phase and kind.
    counts: Mutex<[[Count; 2]; 2]>,
    /// Those that wait, by kind.
    waiting: [Peak; 2],
}

#[derive(Debug)]
struct Count {
    requests: u64,
    /// The histogram is of fractions of this.
    limit: f64,
    time: Timed,
}

impl Mixture {
    /// From now on, of numbers of requests.
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        Self::of_limits(now, [1, 1])
    }

    /// From now on, of fractions of these limits of writes and of reads.
    pub(crate) fn of_limits(now: Instant, limits: [u64; 2]) -> Arc<Self> {
        let counts = || {
            limits.map(|limit| Count {
                requests: 0,
                limit: seats_f64(limit.max(1)),
                time: Timed::new(BOUNDS),
            })
        };
        Arc::new(Mixture {
            begin: now,
            counts: Mutex::new([counts(), counts()]),
            waiting: Default::default(),
        })
    }

    /// A request comes into a phase.
    pub(crate) fn enters(&self, phase: Phase, info: &RequestInfo, now: Instant) {
        if phase == Phase::Waiting {
            self.waiting[usize::from(reads(info))].enters();
        }
        self.change(phase, info, now, |requests| requests + 1);
    }

    /// A request leaves a phase.
    pub(crate) fn leaves(&self, phase: Phase, info: &RequestInfo, now: Instant) {
        if phase == Phase::Waiting {
            self.waiting[usize::from(reads(info))].leaves();
        }
        self.change(phase, info, now, |requests| requests.saturating_sub(1));
    }

    fn change(&self, phase: Phase, info: &RequestInfo, now: Instant, change: impl FnOnce(u64) -> u64) {
        self.change_of(phase, reads(info), now, change);
    }

    /// Appends how many requests waited at most since that was read before.
    pub(crate) fn write_waiting(&self, out: &mut String) {
        let name = "apiserver_current_inqueue_requests";
        let help = "Highest number of requests in queues since it was read before, by kind.";
        family(out, name, "gauge", help);
        for (kind, peak) in KINDS.into_iter().zip(&self.waiting) {
            sample(out, name, &[("request_kind", kind)], peak.highest());
        }
    }

    /// A request that reads, or one that does not, comes into execution.
    pub(crate) fn runs(&self, reads: bool, now: Instant) {
        self.change_of(Phase::Executing, reads, now, |requests| requests + 1);
    }

    /// The same, leaves it.
    pub(crate) fn ends(&self, reads: bool, now: Instant) {
        self.change_of(Phase::Executing, reads, now, |requests| {
            requests.saturating_sub(1)
        });
    }

    fn change_of(&self, phase: Phase, reads: bool, now: Instant, change: impl FnOnce(u64) -> u64) {
        let nanos = self.nanos(now);
        let count = &mut self.counts.lock()[phase as usize][usize::from(reads)];
        count.requests = change(count.requests);
        let value = seats_f64(count.requests) / count.limit;
        count.time.set(value, nanos);
    }

    fn nanos(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.begin);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Appends the family.
    pub(crate) fn write(&self, out: &mut String, now: Instant) {
        let name = "apiserver_flowcontrol_read_vs_write_current_requests";
        let help = "Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution";
        family(out, name, "histogram", help);
        let nanos = self.nanos(now);
        let mut counts = self.counts.lock();
        for (phase, kinds) in PHASES.into_iter().zip(counts.iter_mut()) {
            for (kind, count) in KINDS.into_iter().zip(kinds) {
                // Time goes on while nothing happens.
                count.time.pass(nanos);
                count
                    .time
                    .write(out, name, &[("phase", phase), ("request_kind", kind)]);
            }
        }
    }
}

/// Whether a request is one of those that `--max-requests-inflight` limits, rather than `--max-mutating-requests-inflight`.
pub(crate) fn reads(info: &RequestInfo) -> bool {
    matches!(&*info.verb, "get" | "list" | "watch")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reads_and_writes_are_counted_apart() {
        let begin = Instant::now();
        let mixture = Mixture::new(begin);
        let after = |seconds| begin + Duration::from_secs(seconds);
        let info = |verb: &'static str| RequestInfo {
            verb: verb.into(),
            ..RequestInfo::default()
        };
        mixture.enters(Phase::Executing, &info("list"), after(1));
        mixture.enters(Phase::Waiting, &info("create"), after(1));
        mixture.leaves(Phase::Waiting, &info("create"), after(3));
        mixture.enters(Phase::Executing, &info("create"), after(3));
        mixture.leaves(Phase::Executing, &info("list"), after(4));
        let mut out = String::new();
        mixture.write(&mut out, after(10));
        let check = |phase: &str, kind: &str, idle: u64| {
            let line = format!(
                "current_requests_bucket{{phase=\"{phase}\",request_kind=\"{kind}\",le=\"0\"}} {idle}000000000\n"
            );
            assert!(out.contains(&line), "{line}{out}");
        };
        check("executing", "readOnly", 7);
        check("executing", "mutating", 3);
        check("waiting", "mutating", 8);
        check("waiting", "readOnly", 10);
    }
}
