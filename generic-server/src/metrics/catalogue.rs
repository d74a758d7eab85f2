//! What is known of each metric: its type, how stable it is, its labels and buckets. `docs/metrics.md` is made of it, and a test of the whole
//! server compares it with what is served.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The metrics, one a line.
const TABLE: &str = include_str!("catalogue.txt");
/// The minor version that a deprecation counts from.
const MINOR: &str = crate::version::MINOR;

/// How stable a metric is, in upstream's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// Its name, type, labels and buckets stay.
    Stable,
    /// Labels may be added.
    Beta,
    /// No promise.
    Alpha,
    /// Upstream makes no statement about it: it is a library's.
    Library,
    /// This server's own: upstream has no such metric.
    Own,
}

impl Stability {
    /// Upstream's word for it, where there is one.
    pub fn level(self) -> Option<&'static str> {
        match self {
            Stability::Stable => Some("STABLE"),
            Stability::Beta => Some("BETA"),
            Stability::Alpha => Some("ALPHA"),
            Stability::Library | Stability::Own => None,
        }
    }

    /// For how many minor versions a deprecated metric is shown.
    fn grace(self) -> u64 {
        match self {
            Stability::Stable => 3,
            Stability::Beta => 1,
            Stability::Alpha | Stability::Library | Stability::Own => 0,
        }
    }
}

/// One metric.
#[derive(Debug, Clone)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type in the text format.
    pub kind: &'static str,
    /// How stable it is.
    pub stability: Stability,
    /// The version that it is deprecated since.
    pub deprecated: Option<&'static str>,
    /// Its labels in alphabetical order, without those of its type.
    pub labels: Vec<&'static str>,
    /// The upper bounds of its buckets.
    pub buckets: Vec<&'static str>,
}

impl Metric {
    fn parse(line: &'static str) -> Option<Self> {
        let mut words = line.split(' ');
        let list = |word: &'static str| match word {
            "-" => Vec::new(),
            list => list.split(',').collect(),
        };
        Some(Metric {
            name: words.next()?,
            kind: words.next()?,
            stability: match words.next()? {
                "STABLE" => Stability::Stable,
                "BETA" => Stability::Beta,
                "ALPHA" => Stability::Alpha,
                "LIBRARY" => Stability::Library,
                "OWN" => Stability::Own,
                _ => return None,
            },
            deprecated: words.next().filter(|version| *version != "-"),
            labels: list(words.next()?),
            buckets: list(words.next()?),
        })
    }

    /// Whether its deprecation has lasted so long that it is only shown on request.
    pub fn is_hidden(&self) -> bool {
        let minor = |version: &str| version.split('.').nth(1)?.parse::<u64>().ok();
        let Some(since) = self.deprecated.and_then(minor) else {
            return false;
        };
        let now = MINOR.parse::<u64>().unwrap_or_default();
        since + self.stability.grace() <= now
    }
}

/// All metrics, by name.
pub fn all() -> &'static [Metric] {
    static ALL: LazyLock<Vec<Metric>> = LazyLock::new(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(Metric::parse).collect()
    });
    &ALL
}

/// The metric of a name.
pub fn find(name: &str) -> Option<&'static Metric> {
    static BY_NAME: LazyLock<HashMap<&str, &Metric>> =
        LazyLock::new(|| all().iter().map(|metric| (metric.name, metric)).collect());
    BY_NAME.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_odd_line() {
        let lines: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines.len(), all().len(), "a line cannot be read");
        assert!(lines.is_sorted(), "the lines are in order");
        for metric in all() {
            let name = metric.name;
            assert!(metric.labels.is_sorted(), "{name}: labels are in order");
            assert_eq!(
                metric.kind == "histogram",
                !metric.buckets.is_empty(),
                "{name}: histograms alone have buckets"
            );
            let bounds: Vec<f64> = metric
                .buckets
                .iter()
                .map(|bound| bound.parse().expect(name))
                .collect();
            assert!(bounds.is_sorted(), "{name}: buckets are in order");
        }
    }

    #[test]
    fn deprecated_metrics_are_hidden_in_time() {
        #[track_caller]
        fn check(line: &'static str, expected: bool) {
            assert_eq!(Metric::parse(line).expect(line).is_hidden(), expected, "{line}");
        }
        check("a gauge STABLE 1.34.0 - -", false);
        check("a gauge STABLE 1.33.0 - -", true);
        check("a gauge BETA 1.36.0 - -", false);
        check("a gauge BETA 1.35.0 - -", true);
        check("a gauge ALPHA 1.36.0 - -", true);
        check("a gauge ALPHA - - -", false);
    }
}
