//! The quantiles of a Prometheus summary, over the last hours.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::sample;

/// Upstream's quantiles.
const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99")];
/// Durations are forgotten after five of these, as with client_golang's `MaxAge` of five hours in five age buckets.
const WINDOW: Duration = Duration::from_hours(1);
const WINDOWS: u64 = 5;
/// Each doubling of a microsecond has as many cells: a quantile is off by a tenth at most.
const CELLS_PER_DOUBLING: u32 = 4;
/// The last cell holds everything from about a minute on.
const CELLS: usize = 26 * CELLS_PER_DOUBLING as usize;

/// Counts durations by size for an estimate of their quantiles.
#[derive(Debug)]
pub(crate) struct Quantiles {
    since: Instant,
    windows: Mutex<[Window; WINDOWS as usize]>,
}

#[derive(Debug)]
struct Window {
    /// Which of the hours since the start it counts.
    hour: u64,
    cells: Box<[u32; CELLS]>,
}

impl Default for Quantiles {
    fn default() -> Self {
        Quantiles {
            since: Instant::now(),
            windows: Mutex::new(std::array::from_fn(|_| Window {
                hour: 0,
                cells: Box::new([0; CELLS]),
            })),
        }
    }
}

/// The cell of a duration: by its binary logarithm in microseconds.
fn cell(took: Duration) -> usize {
    let micros = took.as_secs_f64() * 1e6;
    let place = micros.max(1.0).log2() * f64::from(CELLS_PER_DOUBLING);
    // A float's cast saturates, and none here is negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let place = place as usize;
    place.min(CELLS - 1)
}

/// The middle of a cell, in seconds.
fn middle(cell: usize) -> f64 {
    let place = f64::from(u32::try_from(cell).unwrap_or(u32::MAX)) + 0.5;
    (place / f64::from(CELLS_PER_DOUBLING)).exp2() / 1e6
}

impl Quantiles {
    /// Counts a duration.
    pub(crate) fn observe(&self, took: Duration) {
        self.observe_at(self.since.elapsed(), took);
    }

    fn observe_at(&self, now: Duration, took: Duration) {
        let hour = now.as_secs() / WINDOW.as_secs();
        let mut windows = self.windows.lock();
        let index = usize::try_from(hour % WINDOWS).unwrap_or(0);
        let window = &mut windows[index];
        if window.hour != hour {
            window.hour = hour;
            window.cells.fill(0);
        }
        let count = &mut window.cells[cell(took)];
        *count = count.saturating_add(1);
    }

    /// The quantiles of what was counted in the last five hours; NaN where that is nothing.
    fn at(&self, now: Duration) -> [f64; QUANTILES.len()] {
        let hour = now.as_secs() / WINDOW.as_secs();
        let mut cells = [0u64; CELLS];
        for window in &*self.windows.lock() {
            if hour - window.hour.min(hour) < WINDOWS {
                for (sum, count) in cells.iter_mut().zip(&window.cells[..]) {
                    *sum += u64::from(*count);
                }
            }
        }
        let all: u64 = cells.iter().sum();
        QUANTILES.map(|(quantile, _)| {
            // Counts are far below the 2^53 up to which a float is exact.
            #[allow(clippy::cast_precision_loss)]
            let wanted = quantile * all as f64;
            let mut seen = 0;
            let found = cells.iter().position(|count| {
                seen += count;
                #[allow(clippy::cast_precision_loss)]
                let reached = seen > 0 && seen as f64 >= wanted;
                reached
            });
            found.map_or(f64::NAN, middle)
        })
    }

    /// Appends the quantiles, after the family and before its sum and count.
    pub(crate) fn write(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        for ((_, quantile), value) in QUANTILES.into_iter().zip(self.at(self.since.elapsed())) {
            let labels: Vec<_> = labels.iter().copied().chain([("quantile", quantile)]).collect();
            sample(out, name, &labels, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantiles are these milliseconds, within a tenth.
    #[track_caller]
    fn check(quantiles: &Quantiles, hour: u32, expected: [f64; 3]) {
        let seen = quantiles.at(WINDOW * hour);
        for (seen, expected) in seen.into_iter().zip(expected) {
            let seen = seen * 1e3;
            let equal = (seen / expected - 1.0).abs() < 0.1 || seen.is_nan() && expected.is_nan();
            assert!(equal, "{seen} for {expected}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_last_five_hours() {
        let quantiles = Quantiles::default();
        check(&quantiles, 0, [f64::NAN; 3]);
        for millis in 1..=1_000 {
            quantiles.observe_at(Duration::ZERO, Duration::from_millis(millis));
        }
        check(&quantiles, 0, [500.0, 900.0, 990.0]);
        quantiles.observe_at(WINDOW * 4, Duration::from_millis(5));
        check(&quantiles, 4, [500.0, 900.0, 990.0]);
        check(&quantiles, 5, [5.0; 3]);
        check(&quantiles, 9, [f64::NAN; 3]);
        quantiles.observe_at(WINDOW * 10, Duration::from_millis(7));
        check(&quantiles, 10, [7.0; 3]);
    }

    #[test]
    fn durations_of_any_size_have_a_cell() {
        assert_eq!(cell(Duration::ZERO), 0);
        assert_eq!(cell(Duration::MAX), CELLS - 1);
        for micros in [1, 10, 1_000, 1_000_000, 60_000_000] {
            let took = Duration::from_micros(micros);
            let ratio = middle(cell(took)) / took.as_secs_f64();
            assert!((0.9..1.1).contains(&ratio), "{micros}: {ratio}");
        }
    }
}
