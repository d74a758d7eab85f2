//! A histogram of sizes in bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::sample;

/// Sizes counted by buckets, of which there are `B` with a bound and one for everything above.
#[derive(Debug)]
pub struct Sizes<const B: usize> {
    bounds: &'static [u64; B],
    counts: [AtomicU64; B],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const B: usize> Sizes<B> {
    /// Nothing yet, with these upper bounds in ascending order.
    pub fn new(bounds: &'static [u64; B]) -> Self {
        Sizes {
            bounds,
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            above: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a size.
    pub fn observe(&self, size: u64) {
        self.cell(size).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(size, Ordering::Relaxed);
    }

    /// Counts what was gathered.
    pub fn add(&self, tally: &Tally<B>) {
        for (cell, more) in self
            .counts
            .iter()
            .chain([&self.above])
            .zip(tally.counts.iter().chain([&tally.above]))
        {
            if *more > 0 {
                cell.fetch_add(*more, Ordering::Relaxed);
            }
        }
        if tally.sum > 0 {
            self.sum.fetch_add(tally.sum, Ordering::Relaxed);
        }
    }

    /// An empty tally with the same bounds.
    pub fn tally(&self) -> Tally<B> {
        Tally {
            bounds: self.bounds,
            counts: [0; B],
            above: 0,
            sum: 0,
        }
    }

    fn cell(&self, size: u64) -> &AtomicU64 {
        let place = self.bounds.iter().position(|bound| size <= *bound);
        place
            .and_then(|place| self.counts.get(place))
            .unwrap_or(&self.above)
    }

    /// How many sizes were counted.
    pub fn count(&self) -> u64 {
        let counts = self.counts.iter().chain([&self.above]);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds the counts of another with the same bounds to a tally.
    pub(super) fn add_to(&self, tally: &mut Tally<B>) {
        for (more, cell) in tally.counts.iter_mut().zip(&self.counts) {
            *more += cell.load(Ordering::Relaxed);
        }
        tally.above += self.above.load(Ordering::Relaxed);
        tally.sum += self.sum.load(Ordering::Relaxed);
    }

    /// Appends its series, after the [`super::family`].
    pub fn write(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        let mut tally = self.tally();
        self.add_to(&mut tally);
        tally.write(out, name, labels);
    }
}

/// Sizes that one task has gathered, to be counted together.
#[derive(Debug)]
pub struct Tally<const B: usize> {
    bounds: &'static [u64; B],
    counts: [u64; B],
    above: u64,
    sum: u64,
}

impl<const B: usize> Tally<B> {
    /// Gathers a size.
    pub fn observe(&mut self, size: usize) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let place = self.bounds.iter().position(|bound| size <= *bound);
        match place.and_then(|place| self.counts.get_mut(place)) {
            Some(count) => *count += 1,
            None => self.above += 1,
        }
        self.sum += size;
    }

    /// Appends its series, after the [`super::family`].
    pub(super) fn write(&self, out: &mut String, name: &str, labels: &[(&str, &str)]) {
        let bucket = format!("{name}_bucket");
        let mut running = 0;
        let bounds = self
            .bounds
            .iter()
            .map(|bound| shown(*bound))
            .chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(self.counts.iter().chain([&self.above])) {
            running += count;
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", &*bound)]).collect();
            sample(out, &bucket, &labels, running);
        }
        sample(out, &format!("{name}_sum"), labels, self.sum);
        sample(out, &format!("{name}_count"), labels, running);
    }
}

/// A bound as Go prints it: from a million on with an exponent.
fn shown(bound: u64) -> String {
    // Bounds are far below the 2^53 up to which a float is exact.
    #[allow(clippy::cast_precision_loss)]
    let bound = bound as f64;
    machinery::go::general(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_buckets() {
        let sizes = Sizes::new(&[10, 1_000_000]);
        sizes.observe(10);
        let mut tally = sizes.tally();
        tally.observe(11);
        tally.observe(2_000_000);
        sizes.add(&tally);
        assert_eq!(sizes.count(), 3);
        let mut out = String::new();
        sizes.write(&mut out, "x", &[("a", "b")]);
        let expected = "x_bucket{a=\"b\",le=\"10\"} 1\nx_bucket{a=\"b\",le=\"1e+06\"} 2\nx_bucket{a=\"b\",le=\"+Inf\"} 3\n\
                        x_sum{a=\"b\"} 2000021\nx_count{a=\"b\"} 3\n";
        assert_eq!(out, expected);
    }
}
