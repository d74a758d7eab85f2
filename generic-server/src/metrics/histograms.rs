//! A family of histograms whose labels have few, known values.

use std::sync::OnceLock;
use std::time::Duration;

use super::{Histogram, family, sample};

/// Histograms of one name, told apart by `L` labels. A series is there from its first duration on.
#[derive(Debug)]
pub struct Histograms<const L: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; L],
    buckets: &'static [f64],
    series: Box<[([&'static str; L], OnceLock<Histogram>)]>,
}

impl<const L: usize> Histograms<L> {
    /// A family without durations. `values` are all the values that its labels have; `buckets` are upper bounds in seconds.
    pub fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; L],
        buckets: &'static [f64],
        values: impl IntoIterator<Item = [&'static str; L]>,
    ) -> Self {
        Histograms {
            name,
            help,
            labels,
            buckets,
            series: values.into_iter().map(|one| (one, OnceLock::new())).collect(),
        }
    }

    /// Counts a duration. Values that the family was not made with are not counted.
    pub fn observe(&self, values: [&str; L], took: Duration) {
        if let Some((_, histogram)) = self.series.iter().find(|(own, _)| *own == values) {
            histogram
                .get_or_init(|| Histogram::new(self.buckets))
                .observe(took);
        }
    }

    fn each(&self, mut write: impl FnMut(&Histogram, &[(&str, &str)])) {
        for (values, histogram) in &self.series {
            if let Some(histogram) = histogram.get() {
                let labels: Vec<_> = self.labels.into_iter().zip(values.iter().copied()).collect();
                write(histogram, &labels);
            }
        }
    }

    /// Appends the family, unless nothing was counted.
    pub fn write(&self, out: &mut String) {
        if self.is_empty() {
            return;
        }
        family(out, self.name, "histogram", self.help);
        self.each(|histogram, labels| histogram.write(out, self.name, labels));
    }

    /// Appends how many durations were counted, as a family of counters.
    pub fn write_counts(&self, out: &mut String, name: &str, help: &str) {
        if self.is_empty() {
            return;
        }
        family(out, name, "counter", help);
        self.each(|histogram, labels| sample(out, name, labels, histogram.count()));
    }

    fn is_empty(&self) -> bool {
        self.series.iter().all(|(_, histogram)| histogram.get().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_appear_with_their_first_duration() {
        let histograms = Histograms::new("x_seconds", "Help.", ["a"], &[1.0], [["b"], ["c"]]);
        let written = || {
            let mut out = String::new();
            histograms.write(&mut out);
            histograms.write_counts(&mut out, "x_total", "Help.");
            out
        };
        assert_eq!(written(), "");
        histograms.observe(["c"], Duration::from_millis(500));
        histograms.observe(["unknown"], Duration::from_millis(500));
        let expected = "# HELP x_seconds Help.\n# TYPE x_seconds histogram\nx_seconds_bucket{a=\"c\",le=\"1\"} 1\n\
                        x_seconds_bucket{a=\"c\",le=\"+Inf\"} 1\nx_seconds_sum{a=\"c\"} 0.5\nx_seconds_count{a=\"c\"} 1\n\
                        # HELP x_total Help.\n# TYPE x_total counter\nx_total{a=\"c\"} 1\n";
        assert_eq!(written(), expected);
    }
}
