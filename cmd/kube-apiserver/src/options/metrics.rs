//! The options about which metrics are served.

use std::path::PathBuf;

use clap::Args;

use super::METRICS;

/// Which metrics are served, and with which values of their labels.
#[derive(Debug, Clone, Args)]
pub struct MetricsFlags {
    /// Serves metrics that are hidden, too: the previous minor version, 1.35, or nothing.
    #[arg(long, default_value = "", hide_default_value = true, help_heading = METRICS, value_name = "VERSION")]
    pub show_hidden_metrics_for_version: String,
    /// Names of metrics that are not served.
    #[arg(long, value_delimiter = ',', help_heading = METRICS, value_name = "LIST")]
    pub disabled_metrics: Vec<String>,
    /// The values that labels may have, others are unexpected: METRIC,LABEL=VALUE,VALUE; several of them are quoted and separated by commas.
    #[arg(long, help_heading = METRICS, value_name = "MAP")]
    pub allow_metric_labels: Vec<String>,
    /// A file of the same: a YAML mapping of METRIC,LABEL to VALUE,VALUE.
    #[arg(long, help_heading = METRICS, value_name = "FILE")]
    pub allow_metric_labels_manifest: Option<PathBuf>,
}
