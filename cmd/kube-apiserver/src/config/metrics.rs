//! Options about metrics, checked as `component-base/metrics/api/v1` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use generic_server::metrics::{Exposition, catalogue};
use generic_server::version;
use machinery::codec;
use machinery::go::quote;

use super::Findings;
use crate::options::MetricsFlags;

const LABEL: &str = "[a-zA-Z_][a-zA-Z0-9_]*";
const METRIC: &str = "[a-zA-Z_:][a-zA-Z0-9_:]*";
/// A file of values is small.
const MANIFEST_BYTES: u64 = 1 << 20;

/// What is shown of metrics, and the file that has more about it.
#[derive(Debug, Default)]
pub(crate) struct MetricsConfig {
    pub(crate) exposition: Exposition,
    manifest: Option<PathBuf>,
}

/// Values of labels by metric and label, as they are given.
type Mapping = BTreeMap<String, String>;

/// Checks the flags. `features` are the feature gates, which are metrics, too.
pub(super) fn read(
    found: &mut Findings,
    flags: MetricsFlags,
    features: Vec<(&'static str, &'static str, bool)>,
) -> MetricsConfig {
    let previous = format!("{}.{}", version::MAJOR, version::MIN_COMPATIBILITY_MINOR);
    let shown = flags.show_hidden_metrics_for_version;
    if !shown.is_empty() && shown != previous {
        found.fault(format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {}: must be omitted or have the value '{previous}'; only the previous minor version is allowed",
            quote(&shown)
        ));
    }
    let mut disabled = flags.disabled_metrics;
    if matches!(disabled.as_slice(), [name] if name.is_empty()) {
        disabled.clear();
    }
    if let Some(wrong) = disabled.iter().find(|name| !is_metric(name)) {
        found.fault(format!(
            "metrics.disabledMetrics: Invalid value: {}: must be fully qualified metric names matching {}, got {}",
            serde_json::json!(disabled),
            quote(&format!("^{METRIC}$")),
            quote(wrong)
        ));
    }
    for name in disabled.iter().filter(|name| catalogue::find(name).is_none()) {
        found.warn(format!("--disabled-metrics: this server has no metric {name}"));
    }
    let mut mapping = Mapping::new();
    for given in &flags.allow_metric_labels {
        match pairs(given) {
            Ok(pairs) => mapping.extend(pairs),
            Err(wrong) => found.fault(format!(
                "invalid argument {} for \"--allow-metric-labels\" flag: {wrong} must be formatted as key=value",
                quote(given)
            )),
        }
    }
    let mut exposition = Exposition {
        disabled: disabled.into_iter().collect(),
        shows_hidden: !shown.is_empty(),
        features,
        ..Exposition::default()
    };
    match allowed(&mapping) {
        Ok(allowed) => exposition.allowed = allowed,
        Err(why) => found.fault(format!("metrics.allowListMapping: {why}")),
    }
    for warning in unknown(&exposition) {
        found.warn(format!("--allow-metric-labels: {warning}"));
    }
    let manifest = flags
        .allow_metric_labels_manifest
        .filter(|file| !file.as_os_str().is_empty());
    if manifest.is_some() && !flags.allow_metric_labels.is_empty() {
        found.fault(
            "metrics: Invalid value: cannot specify both allowListMapping and allowListMappingManifest",
        );
    }
    MetricsConfig { exposition, manifest }
}

impl MetricsConfig {
    /// With the values of the file, where there is one. Warnings are of metrics that are not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn with_manifest(mut self) -> Result<(Exposition, Vec<String>), String> {
        let Some(file) = &self.manifest else {
            return Ok((self.exposition, Vec::new()));
        };
        let shown = quote(&file.display().to_string());
        let mapping = mapping(file);
        let mapping = mapping
            .map_err(|why| format!("metrics.allowListMappingManifest: Invalid value: {shown}: {why}"))?;
        self.exposition.allowed = allowed(&mapping).map_err(|why| {
            format!(
                "metrics.allowListMappingManifest: Invalid value: {shown}: invalid allow list mapping in manifest: [metrics.allowListMappingManifest: {why}]"
            )
        })?;
        let warnings = unknown(&self.exposition);
        let warnings = warnings
            .into_iter()
            .map(|warning| format!("--allow-metric-labels-manifest: {warning}"));
        Ok((self.exposition, warnings.collect()))
    }
}

/// The mapping of a file.
fn mapping(file: &Path) -> Result<Mapping, String> {
    let unreadable = |error: std::io::Error| format!("failed to read allow list manifest: {error}");
    if std::fs::metadata(file).map_err(unreadable)?.len() > MANIFEST_BYTES {
        return Err(format!(
            "failed to read allow list manifest: it has more than {MANIFEST_BYTES} bytes"
        ));
    }
    let content = std::fs::read(file).map_err(unreadable)?;
    let unparsable = |why: String| format!("failed to parse allow list manifest: {why}");
    let decoded = codec::yaml::decode(&content).map_err(|error| unparsable(error.to_string()))?;
    let mapping = match decoded.value {
        serde_json::Value::Null => return Ok(Mapping::new()),
        serde_json::Value::Object(mapping) => mapping,
        _ => return Err(unparsable("it is no mapping".into())),
    };
    let texts = mapping.into_iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => Ok((key, text)),
        serde_json::Value::Null => Ok((key, String::new())),
        scalar @ (serde_json::Value::Bool(_) | serde_json::Value::Number(_)) => Ok((key, scalar.to_string())),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            Err(unparsable(format!("the value of {} is no text", quote(&key))))
        }
    });
    texts.collect()
}

/// The pairs of one flag as upstream's parser takes them apart; the part that is none is the error.
fn pairs(given: &str) -> Result<Vec<(String, String)>, String> {
    let parts = match given.matches('=').count() {
        0 => return Err(given.to_owned()),
        1 => vec![given.trim_matches('"').to_owned()],
        _ => fields(given),
    };
    let pair = |part: String| match part.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(part),
    };
    parts.into_iter().map(pair).collect()
}

/// The fields of a line of comma-separated values, which may be quoted.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// The values by metric and label.
fn allowed(mapping: &Mapping) -> Result<BTreeMap<String, BTreeMap<String, BTreeSet<String>>>, String> {
    let mut allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (key, values) in mapping {
        let parts = key
            .split_once(',')
            .filter(|(metric, label)| is_metric(metric) && is_label(label));
        let Some((metric, label)) = parts else {
            return Err(format!(
                "Invalid value: {}: must have keys with format `metricName,labelName` where metricName matches {} and labelName matches {}",
                serde_json::json!(mapping),
                quote(METRIC),
                quote(LABEL)
            ));
        };
        let values = values.split(',').map(str::to_owned).collect();
        allowed
            .entry(metric.to_owned())
            .or_default()
            .insert(label.to_owned(), values);
    }
    Ok(allowed)
}

/// What is named and is not there.
fn unknown(exposition: &Exposition) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, labels) in &exposition.allowed {
        match catalogue::find(name) {
            None => warnings.push(format!("this server has no metric {name}")),
            Some(metric) => {
                let unknown = labels
                    .keys()
                    .filter(|label| !metric.labels.contains(&label.as_str()));
                warnings.extend(unknown.map(|label| format!("the metric {name} has no label {label}")));
            }
        }
    }
    warnings
}

fn is_metric(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty() && name.chars().all(rest)
}

fn is_label(name: &str) -> bool {
    is_metric(name) && !name.contains(':')
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::Options;

    #[track_caller]
    fn check(flags: &[&str], faults: &[&str], warnings: &[&str]) -> Exposition {
        let line = ["kube-apiserver"].iter().chain(flags);
        let options = Options::try_parse_from(line).expect("it parses");
        let mut found = Findings::default();
        let config = read(&mut found, options.metrics, Vec::new());
        assert_eq!(found.faults, faults, "{flags:?}");
        assert_eq!(found.warnings, warnings, "{flags:?}");
        config.exposition
    }

    #[test]
    fn hidden_metrics_are_shown_for_the_previous_version() {
        assert!(!check(&[], &[], &[]).shows_hidden);
        assert!(check(&["--show-hidden-metrics-for-version=1.35"], &[], &[]).shows_hidden);
        check(
            &["--show-hidden-metrics-for-version=1.34"],
            &[
                "metrics.showHiddenMetricsForVersion: Invalid value: \"1.34\": must be omitted or have the value '1.35'; only the previous minor version is allowed",
            ],
            &[],
        );
    }

    #[test]
    fn disabled_metrics_have_names() {
        let name = "apiserver_request_total";
        assert!(
            check(&[&format!("--disabled-metrics={name}")], &[], &[])
                .disabled
                .contains(name)
        );
        check(&["--disabled-metrics="], &[], &[]);
        check(
            &["--disabled-metrics=not_there"],
            &[],
            &["--disabled-metrics: this server has no metric not_there"],
        );
        check(
            &["--disabled-metrics=a,b-c"],
            &[
                "metrics.disabledMetrics: Invalid value: [\"a\",\"b-c\"]: must be fully qualified metric names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got \"b-c\"",
            ],
            &[
                "--disabled-metrics: this server has no metric a",
                "--disabled-metrics: this server has no metric b-c",
            ],
        );
    }

    #[test]
    fn labels_have_values() {
        let one = check(
            &["--allow-metric-labels=apiserver_request_total,verb=GET,LIST"],
            &[],
            &[],
        );
        let verbs = &one.allowed["apiserver_request_total"]["verb"];
        assert_eq!(verbs.iter().collect::<Vec<_>>(), ["GET", "LIST"]);
        let two = "--allow-metric-labels=\"apiserver_request_total,verb=GET,LIST\",\"apiserver_request_total,code=200\"";
        assert_eq!(
            check(&[two], &[], &[]).allowed["apiserver_request_total"].len(),
            2
        );
        check(
            &["--allow-metric-labels=a"],
            &["invalid argument \"a\" for \"--allow-metric-labels\" flag: a must be formatted as key=value"],
            &[],
        );
        check(
            &["--allow-metric-labels=a=b"],
            &[
                "metrics.allowListMapping: Invalid value: {\"a\":\"b\"}: must have keys with format `metricName,labelName` where metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"",
            ],
            &[],
        );
        check(
            &[
                "--allow-metric-labels=apiserver_request_total,nothing=b",
                "--allow-metric-labels-manifest=f",
            ],
            &["metrics: Invalid value: cannot specify both allowListMapping and allowListMappingManifest"],
            &["--allow-metric-labels: the metric apiserver_request_total has no label nothing"],
        );
    }

    #[test]
    fn manifests_are_mappings_of_texts() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("allowed.yaml");
        let read = |content: &str| {
            std::fs::write(&file, content).expect("a file");
            let config = MetricsConfig {
                manifest: Some(file.clone()),
                ..MetricsConfig::default()
            };
            config.with_manifest()
        };
        let (exposition, warnings) =
            read("apiserver_request_total,code: 200\na,b: \"x,y\"\n").expect("it is read");
        assert!(exposition.allowed["apiserver_request_total"]["code"].contains("200"));
        assert_eq!(
            warnings,
            ["--allow-metric-labels-manifest: this server has no metric a"]
        );
        for (content, why) in [
            (
                "allowListMapping:\n  a,b: c\n",
                "failed to parse allow list manifest: the value of \"allowListMapping\" is no text",
            ),
            ("a: b\n", "invalid allow list mapping in manifest: "),
            ("- a\n", "failed to parse allow list manifest: it is no mapping"),
        ] {
            let error = read(content).expect_err(content);
            assert!(error.contains(why), "{error}");
        }
    }
}
