//! What of the metrics is shown: without those that are disabled or hidden, and with the values of labels that are allowed.
//!
//! All of it happens while the document is written: requests pay nothing for it. Mirrors `component-base/metrics`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;

use super::catalogue::{self, Metric};
use super::{family, push_label, sample};

/// The value of labels whose own is not allowed.
const UNEXPECTED: &str = "unexpected";
/// Counts those.
const UNEXPECTED_TOTAL: &str = "cardinality_enforcement_unexpected_categorizations_total";

/// Which metrics are shown, and what of the process is told beside them.
#[derive(Debug, Clone, Default)]
pub struct Exposition {
    /// Metrics that are not shown (`--disabled-metrics`).
    pub disabled: BTreeSet<String>,
    /// Whether metrics are shown that were deprecated long ago (`--show-hidden-metrics-for-version`).
    pub shows_hidden: bool,
    /// The values that labels may have, by metric and label (`--allow-metric-labels`).
    pub allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// The feature gates: name, stage (empty for those that are there to stay) and whether it is on.
    pub features: Vec<(&'static str, &'static str, bool)>,
}

impl Exposition {
    fn is_shown(&self, name: &str, known: Option<&Metric>) -> bool {
        let is_hidden = known.is_some_and(Metric::is_hidden) && !self.shows_hidden;
        !is_hidden && !self.disabled.contains(name)
    }

    /// The document as it is shown, and how many values of labels are not.
    pub(super) fn present(&self, document: &str) -> (String, f64) {
        let mut out = String::with_capacity(document.len() + document.len() / 16);
        let mut unexpected = 0.0;
        let mut families = document.split_inclusive('\n').peekable();
        while let Some(line) = families.next() {
            let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '))
            else {
                out.push_str(line);
                continue;
            };
            let known = catalogue::find(name);
            let mut shown = self.is_shown(name, known).then_some(&mut out);
            if let Some(out) = &mut shown {
                let level = known.and_then(|metric| Some((metric.stability.level()?, metric.deprecated)));
                // Writing to a string does not fail.
                let _ = match level {
                    Some((level, Some(since))) => {
                        write!(out, "# HELP {name} [{level}] (Deprecated since {since}) {help}")
                    }
                    Some((level, None)) => write!(out, "# HELP {name} [{level}] {help}"),
                    None => write!(out, "# HELP {name} {help}"),
                };
            }
            let mut constrained = self.allowed.get(name).map(Constrained::new);
            while let Some(line) = families.next_if(|line| !line.starts_with("# HELP ")) {
                match (&mut shown, &mut constrained) {
                    (None, _) => {}
                    (Some(_), Some(constrained)) if !line.starts_with('#') => constrained.add(line),
                    (Some(out), _) => out.push_str(line),
                }
            }
            if let (Some(out), Some(constrained)) = (shown, constrained) {
                unexpected += constrained.finish(name, out);
            }
        }
        (out, unexpected)
    }

    /// Appends how many values of labels are not shown.
    pub(super) fn count_unexpected(&self, count: f64, out: &mut String) {
        if self.is_shown(UNEXPECTED_TOTAL, catalogue::find(UNEXPECTED_TOTAL)) {
            let help = "[ALPHA] Observations with a value of a label that is not allowed.";
            family(out, UNEXPECTED_TOTAL, "counter", help);
            sample(out, UNEXPECTED_TOTAL, &[], count);
        }
    }

    /// Appends what is told of the process: its build, its features, and how many metrics there are.
    pub(super) fn describe(&self, out: &mut String) {
        use crate::version;
        let name = "kubernetes_build_info";
        let help = "A constant 1, with the build of this server and its platform as labels.";
        family(out, name, "gauge", help);
        let git_version = format!("v{}", version::KUBERNETES);
        let platform = format!("{}/{}", std::env::consts::OS, version::ARCHITECTURE);
        let labels = [
            ("build_date", ""),
            ("compiler", ""),
            ("git_commit", ""),
            ("git_tree_state", ""),
            ("git_version", &*git_version),
            ("go_version", ""),
            ("major", version::MAJOR),
            ("minor", version::MINOR),
            ("platform", &*platform),
        ];
        sample(out, name, &labels, 1);
        let name = "version_info";
        let help =
            "The version of the binary, the one that it emulates, and the oldest that it is compatible with.";
        family(out, name, "gauge", help);
        let oldest = format!("{}.{}", version::MAJOR, version::MIN_COMPATIBILITY_MINOR);
        let labels = [
            ("binary", version::KUBERNETES),
            ("component", "kube"),
            ("emulation", version::MAJOR_MINOR),
            ("min_compat", &*oldest),
        ];
        sample(out, name, &labels, 1);
        if !self.features.is_empty() {
            let name = "kubernetes_feature_enabled";
            family(
                out,
                name,
                "gauge",
                "Whether a feature gate is on, with its stage.",
            );
            for (feature, stage, is_on) in &self.features {
                let labels = [("name", *feature), ("stage", *stage)];
                sample(out, name, &labels, u8::from(*is_on));
            }
        }
        let mut registered: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut hidden = 0_u64;
        for metric in catalogue::all() {
            let Some(level) = metric.stability.level() else {
                continue;
            };
            hidden += u64::from(metric.is_hidden());
            if self.is_shown(metric.name, Some(metric)) {
                let key = (metric.deprecated.unwrap_or_default(), level);
                *registered.entry(key).or_default() += 1;
            }
        }
        let name = "registered_metrics_total";
        let help = "Metrics that are shown, by stability and the version that they are deprecated since.";
        family(out, name, "counter", help);
        for ((deprecated, level), count) in registered {
            let labels = [("deprecated_version", deprecated), ("stability_level", level)];
            sample(out, name, &labels, count);
        }
        let name = "disabled_metrics_total";
        family(out, name, "counter", "Metrics that are disabled.");
        sample(out, name, &[], self.disabled.len());
        let name = "hidden_metrics_total";
        family(
            out,
            name,
            "counter",
            "Metrics that are hidden unless they are asked for.",
        );
        sample(out, name, &[], hidden);
    }
}

/// The samples of a family some of whose labels may have few values alone: those that become equal are added up.
struct Constrained<'a> {
    allowed: &'a BTreeMap<String, BTreeSet<String>>,
    /// What a sample is of, and its value; in the order of the first of each.
    samples: Vec<(String, f64)>,
    places: HashMap<String, usize>,
    unexpected: f64,
}

impl<'a> Constrained<'a> {
    fn new(allowed: &'a BTreeMap<String, BTreeSet<String>>) -> Self {
        Constrained {
            allowed,
            samples: Vec::new(),
            places: HashMap::new(),
            unexpected: 0.0,
        }
    }

    fn add(&mut self, line: &str) {
        let Some(sample) = Sample::parse(line) else { return };
        let mut key = String::from(sample.name);
        let mut labels = String::new();
        let mut replaced = 0_u32;
        for (label, value) in &sample.labels {
            let allowed = self.allowed.get(*label);
            let value = match allowed.is_none_or(|allowed| allowed.contains(&**value)) {
                true => &**value,
                false => {
                    replaced += 1;
                    UNEXPECTED
                }
            };
            push_label(&mut labels, label, value);
        }
        // Each observation is counted once: the buckets of a histogram and its sum are of the same.
        if !sample.name.ends_with("_bucket") && !sample.name.ends_with("_sum") {
            self.unexpected += f64::from(replaced) * sample.value;
        }
        if !labels.is_empty() {
            let _ = write!(key, "{{{labels}}}");
        }
        match self.places.get(&key) {
            Some(place) => self.samples[*place].1 += sample.value,
            None => {
                self.places.insert(key.clone(), self.samples.len());
                self.samples.push((key, sample.value));
            }
        }
    }

    /// Appends the samples. Answers how many values were replaced.
    fn finish(self, name: &str, out: &mut String) -> f64 {
        for (key, value) in &self.samples {
            let _ = writeln!(out, "{key} {value}");
        }
        let counts = catalogue::find(name).is_none_or(|metric| metric.kind != "gauge");
        if counts { self.unexpected } else { 0.0 }
    }
}

/// A line of the document.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim_end();
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, mut rest)) = series.split_once('{') else {
            return Some(Sample {
                name: series,
                labels: Vec::new(),
                value,
            });
        };
        let mut labels = Vec::new();
        while let Some((label, quoted)) = rest.split_once("=\"") {
            let end = end_of_text(quoted)?;
            labels.push((label, unescaped(&quoted[..end])));
            rest = quoted[end + 1..].trim_start_matches(',');
        }
        Some(Sample { name, labels, value })
    }
}

/// Where the text ends: at the first quotation mark that no backslash escapes.
fn end_of_text(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => {}
            },
            c => out.push(c),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# HELP etcd_requests_total Help.\n# TYPE etcd_requests_total counter\n\
                            etcd_requests_total{operation=\"get\",group=\"a\",resource=\"b\"} 1\n\
                            etcd_requests_total{operation=\"list\",group=\"a\",resource=\"b\"} 2\n\
                            etcd_requests_total{operation=\"update\",group=\"a\",resource=\"b\"} 4\n\
                            # HELP etcd_bookmark_counts Help.\n# TYPE etcd_bookmark_counts gauge\n\
                            etcd_bookmark_counts{group=\"a\",resource=\"b\"} 8\n\
                            # HELP x_own Help.\n# TYPE x_own counter\nx_own 1\n";

    #[track_caller]
    fn check(exposition: &Exposition, present: &[&str], absent: &[&str]) {
        let (mut out, unexpected) = exposition.present(DOCUMENT);
        exposition.count_unexpected(unexpected, &mut out);
        for line in present {
            assert!(out.lines().any(|known| known == *line), "{line}\n{out}");
        }
        for text in absent {
            assert!(!out.contains(text), "{text}\n{out}");
        }
    }

    #[test]
    fn metrics_are_hidden_and_disabled() {
        let mut exposition = Exposition::default();
        let stable = "# HELP etcd_requests_total [ALPHA] Help.";
        check(
            &exposition,
            &[stable, "# HELP x_own Help.", "x_own 1"],
            &["etcd_bookmark_counts"],
        );
        exposition.shows_hidden = true;
        let deprecated = "# HELP etcd_bookmark_counts [ALPHA] (Deprecated since 1.36.0) Help.";
        check(&exposition, &[stable, deprecated], &[]);
        exposition.disabled = ["etcd_bookmark_counts", "etcd_requests_total"]
            .map(String::from)
            .into();
        check(
            &exposition,
            &["x_own 1"],
            &["etcd_bookmark_counts", "etcd_requests_total"],
        );
        let mut out = String::new();
        exposition.describe(&mut out);
        assert!(out.contains("\ndisabled_metrics_total 2\n"), "{out}");
    }

    #[test]
    fn labels_have_the_allowed_values_alone() {
        let labels = [("operation".to_owned(), ["get".to_owned()].into())];
        let exposition = Exposition {
            allowed: [("etcd_requests_total".to_owned(), labels.into())].into(),
            ..Exposition::default()
        };
        check(
            &exposition,
            &[
                "etcd_requests_total{operation=\"get\",group=\"a\",resource=\"b\"} 1",
                "etcd_requests_total{operation=\"unexpected\",group=\"a\",resource=\"b\"} 6",
                "cardinality_enforcement_unexpected_categorizations_total 6",
            ],
            &["list", "update"],
        );
    }

    #[test]
    fn samples_are_read_as_they_are_written() {
        let mut line = String::new();
        let labels = [("a", "x\"y\\z\n, b=\"c"), ("d", "")];
        sample(&mut line, "name", &labels, 2.5);
        let read = Sample::parse(&line).expect("a sample");
        let found: Vec<(&str, &str)> = read
            .labels
            .iter()
            .map(|(name, value)| (*name, &**value))
            .collect();
        assert_eq!(
            (read.name, found.as_slice(), read.value),
            ("name", labels.as_slice(), 2.5)
        );
    }
}
