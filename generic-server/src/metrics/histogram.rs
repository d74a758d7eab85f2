//! A histogram with fixed buckets.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::sample;

/// Prometheus' default buckets, in seconds.
pub const DEFAULT_BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Durations counted by buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound and one for everything above.
    counts: Box<[AtomicU64]>,
    sum_micros: AtomicU64,
}

impl Histogram {
    /// An empty histogram with these upper bounds in seconds, in ascending order.
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        self.counts[self.place(took)].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// All that was counted here and in others with the same bounds.
    pub(super) fn sum_with<'h>(&'h self, others: impl Iterator<Item = &'h Histogram>) -> Histogram {
        let sum = Histogram::new(self.bounds);
        for histogram in std::iter::once(self).chain(others) {
            for (into, count) in sum.counts.iter().zip(&histogram.counts) {
                into.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            let micros = histogram.sum_micros.load(Ordering::Relaxed);
            sum.sum_micros.fetch_add(micros, Ordering::Relaxed);
        }
        sum
    }

    /// Appends its series, after the [`super::family`].
    pub fn write(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        self.write_with(out, name, labels, (0, Duration::ZERO));
    }

    /// The same, with so many durations more of this length.
    pub(crate) fn write_with(
        &self,
        out: &mut String,
        name: &str,
        labels: &[(&str, &str)],
        (more, each): (u64, Duration),
    ) {
        let bucket = format!("{name}_bucket");
        let place = self.place(each);
        let mut running = 0;
        let mut bound_text = String::new();
        for (index, count) in self.counts.iter().enumerate() {
            running += count.load(Ordering::Relaxed) + if index == place { more } else { 0 };
            bound_text.clear();
            // Writing to a string does not fail.
            let _ = match self.bounds.get(index) {
                Some(bound) => write!(bound_text, "{}", machinery::go::general(*bound)),
                None => write!(bound_text, "+Inf"),
            };
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", &*bound_text)]).collect();
            sample(out, &bucket, &labels, running);
        }
        // Such numbers are far below the 2^53 up to which a float is exact.
        #[allow(clippy::cast_precision_loss)]
        let sum = self.sum() + more as f64 * each.as_secs_f64();
        totals(out, name, labels, sum, running);
    }

    /// Appends sum and count alone.
    pub(crate) fn write_totals(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        totals(out, name, labels, self.sum(), self.count());
    }

    fn sum(&self) -> f64 {
        Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)).as_secs_f64()
    }

    fn place(&self, took: Duration) -> usize {
        let seconds = took.as_secs_f64();
        let bucket = self.bounds.iter().position(|bound| seconds <= *bound);
        bucket.unwrap_or(self.bounds.len())
    }
}

fn totals(out: &mut String, name: &str, labels: &[(&str, &str)], sum: f64, count: u64) {
    sample(out, &format!("{name}_sum"), labels, sum);
    sample(out, &format!("{name}_count"), labels, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_buckets() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [1, 100, 500, 3000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut out = String::new();
        histogram.write(&mut out, "x", &[("a", "b")]);
        let expected = "x_bucket{a=\"b\",le=\"0.1\"} 2\nx_bucket{a=\"b\",le=\"1\"} 3\nx_bucket{a=\"b\",le=\"+Inf\"} 4\n\
                        x_sum{a=\"b\"} 3.601\nx_count{a=\"b\"} 4\n";
        assert_eq!(out, expected);
        let mut out = String::new();
        histogram.write_with(&mut out, "x", &[], (2, Duration::from_secs(1)));
        let expected =
            "x_bucket{le=\"0.1\"} 2\nx_bucket{le=\"1\"} 5\nx_bucket{le=\"+Inf\"} 6\nx_sum 5.601\nx_count 6\n";
        assert_eq!(out, expected);
    }
}
