//! How much of a level is used, as histograms over time: `*_utilization` and `demand_seats`.
//!
//! Such a histogram counts nanoseconds rather than events, as upstream's timing histograms do.

use std::fmt::Write;
use std::time::Instant;

use super::demand::seats_f64;
use super::queue_set::Totals;
use crate::metrics::sample;

const SEATS: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];
const REQUESTS: &[f64] = &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0];
const DEMAND: &[f64] = &[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0];

/// The histograms of a level.
#[derive(Debug)]
pub(crate) struct Utilization {
    begin: Instant,
    /// The most requests that its queues hold.
    pub(crate) queue_capacity: u64,
    pub(crate) seats: Timed,
    pub(crate) executing: Timed,
    pub(crate) waiting: Timed,
    pub(crate) demand: Timed,
}

/// Nanoseconds by the value that something had during them.
#[derive(Debug)]
pub(crate) struct Timed {
    /// Nanoseconds after the begin of all: what came before is counted.
    since: u64,
    bounds: &'static [f64],
    /// One for each bound and one for everything above.
    nanos: Box<[u64]>,
    sum: f64,
    value: f64,
    bucket: usize,
}

impl Timed {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Timed {
            since: 0,
            bounds,
            nanos: vec![0; bounds.len() + 1].into(),
            sum: 0.0,
            value: 0.0,
            bucket: 0,
        }
    }

    /// From now on it has this value.
    #[allow(
        clippy::float_cmp,
        reason = "equal quotients of equal numbers are the same bits"
    )]
    pub(crate) fn set(&mut self, value: f64, now: u64) {
        if value == self.value {
            return;
        }
        self.pass(now);
        self.value = value;
        self.bucket = self.bounds.partition_point(|bound| *bound < value);
    }

    /// Counts the time up to now.
    pub(crate) fn pass(&mut self, now: u64) {
        let passed = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        self.nanos[self.bucket] += passed;
        let [high, low] = [passed >> 32, passed & u64::from(u32::MAX)].map(seats_f64);
        self.sum += self.value * (high * 4_294_967_296.0 + low);
    }

    /// Appends its series, after the family.
    pub(crate) fn write(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        let bucket = format!("{name}_bucket");
        let mut running = 0;
        let mut text = String::new();
        for (index, nanos) in self.nanos.iter().enumerate() {
            running += nanos;
            text.clear();
            // Writing to a string does not fail.
            let _ = match self.bounds.get(index) {
                Some(bound) => write!(text, "{bound}"),
                None => write!(text, "+Inf"),
            };
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", &*text)]).collect();
            sample(out, &bucket, &labels, running);
        }
        sample(out, &format!("{name}_sum"), labels, self.sum);
        sample(out, &format!("{name}_count"), labels, running);
    }
}

impl Utilization {
    pub(crate) fn new(now: Instant) -> Self {
        Utilization {
            begin: now,
            queue_capacity: 1,
            seats: Timed::new(SEATS),
            executing: Timed::new(REQUESTS),
            waiting: Timed::new(REQUESTS),
            demand: Timed::new(DEMAND),
        }
    }

    fn nanos(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.begin);
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// From now on it is like this.
    pub(crate) fn note(&mut self, totals: &Totals, limit: u64, now: Instant) {
        let now = self.nanos(now);
        let limit = seats_f64(limit.max(1));
        let number = |n: usize| seats_f64(u64::try_from(n).unwrap_or(u64::MAX));
        let waiting = match totals.waiting {
            0 => 0.0,
            waiting => number(waiting) / seats_f64(self.queue_capacity.max(1)),
        };
        self.seats.set(seats_f64(totals.seats_in_use) / limit, now);
        self.executing.set(number(totals.executing) / limit, now);
        self.waiting.set(waiting, now);
        self.demand
            .set(seats_f64(totals.seats_in_use + totals.seats_waiting) / limit, now);
    }

    /// Counts the time up to now.
    pub(crate) fn pass(&mut self, now: Instant) {
        let now = self.nanos(now);
        for timed in [
            &mut self.seats,
            &mut self.executing,
            &mut self.waiting,
            &mut self.demand,
        ] {
            timed.pass(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_is_counted_by_value() {
        let begin = Instant::now();
        let mut utilization = Utilization::new(begin);
        let totals = |seats_in_use| Totals {
            seats_in_use,
            ..Totals::default()
        };
        utilization.note(&totals(5), 10, begin + Duration::from_secs(1));
        utilization.note(&totals(20), 10, begin + Duration::from_secs(3));
        utilization.pass(begin + Duration::from_secs(4));
        let seats = &utilization.seats;
        assert_eq!((seats.nanos[0], seats.nanos[5]), (1_000_000_000, 2_000_000_000));
        assert_eq!(seats.nanos[SEATS.len()], 1_000_000_000);
        assert!((seats.sum - 3e9).abs() < 1.0, "{}", seats.sum);
        let mut out = String::new();
        seats.write(&mut out, "x", &[("a", "b")]);
        assert!(out.contains("x_bucket{a=\"b\",le=\"0.5\"} 3000000000\n"), "{out}");
        assert!(out.contains("x_count{a=\"b\"} 4000000000\n"), "{out}");
    }
}
