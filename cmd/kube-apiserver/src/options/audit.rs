//! The flags about auditing.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use generic_server::audit::{Format, Mode};

use super::{AUDITING, duration};

/// When a request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditMode {
    /// At once.
    Batch,
    /// When its event has been delivered, or could not be.
    Blocking,
    /// When its event has been delivered.
    BlockingStrict,
}

impl From<AuditMode> for Mode {
    fn from(mode: AuditMode) -> Self {
        match mode {
            AuditMode::Batch => Mode::Batch,
            AuditMode::Blocking => Mode::Blocking,
            AuditMode::BlockingStrict => Mode::BlockingStrict,
        }
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditLogFormat {
    /// A line of text for an event.
    Legacy,
    /// A line of JSON for an event.
    Json,
}

impl From<AuditLogFormat> for Format {
    fn from(format: AuditLogFormat) -> Self {
        match format {
            AuditLogFormat::Legacy => Format::Legacy,
            AuditLogFormat::Json => Format::Json,
        }
    }
}

/// The form of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditVersion {
    /// `audit.k8s.io/v1`.
    #[value(name = "audit.k8s.io/v1")]
    V1,
}

/// The policy, the log and the webhook.
#[derive(Debug, Clone, Args)]
pub struct AuditFlags {
    /// An audit Policy (audit.k8s.io/v1): which requests are recorded, and how much of them. Read again when it changes.
    #[arg(long, help_heading = AUDITING, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// The log.
    #[command(flatten)]
    pub log: AuditLogFlags,
    /// The webhook.
    #[command(flatten)]
    pub webhook: AuditWebhookFlags,
}

/// The log.
#[derive(Debug, Clone, Args)]
pub struct AuditLogFlags {
    /// Where events are logged; - is the standard output.
    #[arg(long, allow_hyphen_values = true, help_heading = AUDITING, value_name = "FILE")]
    pub audit_log_path: Option<PathBuf>,
    /// Days after which a rotated log is removed; 0: never.
    #[arg(long, default_value_t = 366, help_heading = AUDITING, value_name = "DAYS")]
    pub audit_log_maxage: i64,
    /// Rotated logs that are kept; 0: all.
    #[arg(long, default_value_t = 100, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_log_maxbackup: i64,
    /// The size in MiB at which the log is rotated; 0: never.
    #[arg(long, default_value_t = 100, help_heading = AUDITING, value_name = "MIB")]
    pub audit_log_maxsize: i64,
    /// Rotated logs are compressed with gzip.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUDITING, value_name = "BOOL", hide_possible_values = true)]
    pub audit_log_compress: bool,
    /// The form of lines: json or legacy.
    #[arg(long, value_enum, default_value = "json", help_heading = AUDITING, value_name = "FORMAT", hide_possible_values = true)]
    pub audit_log_format: AuditLogFormat,
    /// The form of events.
    #[arg(long, value_enum, default_value = "audit.k8s.io/v1", help_heading = AUDITING, value_name = "VERSION", hide_possible_values = true)]
    pub audit_log_version: AuditVersion,
    /// Whether requests wait for their events: batch (not at all), blocking, or blocking-strict (a request whose event is lost is refused).
    #[arg(long, value_enum, default_value = "blocking", help_heading = AUDITING, value_name = "MODE", hide_possible_values = true)]
    pub audit_log_mode: AuditMode,
    /// In mode batch: the events in the queue; others are lost.
    #[arg(long, default_value_t = 10_000, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_log_batch_buffer_size: i64,
    /// In mode batch: the events that are delivered at once.
    #[arg(long, default_value_t = 1, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_log_batch_max_size: i64,
    /// In mode batch: how long an event waits for others.
    #[arg(long, default_value = "0s", value_parser = duration, help_heading = AUDITING, value_name = "DURATION")]
    pub audit_log_batch_max_wait: Duration,
    /// In mode batch: deliveries are throttled.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUDITING, value_name = "BOOL", hide_possible_values = true)]
    pub audit_log_batch_throttle_enable: bool,
    /// In mode batch: deliveries per second, where they are throttled.
    #[arg(long, default_value_t = 0.0, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_log_batch_throttle_qps: f32,
    /// In mode batch: deliveries at once, where they are throttled and there were none before.
    #[arg(long, default_value_t = 0, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_log_batch_throttle_burst: i64,
    /// Large events lose their objects, and larger ones are lost.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUDITING, value_name = "BOOL", hide_possible_values = true)]
    pub audit_log_truncate_enabled: bool,
    /// Bytes of what is delivered at once, where events are truncated.
    #[arg(long, default_value_t = 10 << 20, help_heading = AUDITING, value_name = "BYTES")]
    pub audit_log_truncate_max_batch_size: i64,
    /// Bytes of an event, where events are truncated.
    #[arg(long, default_value_t = 100 << 10, help_heading = AUDITING, value_name = "BYTES")]
    pub audit_log_truncate_max_event_size: i64,
}

/// The webhook.
#[derive(Debug, Clone, Args)]
pub struct AuditWebhookFlags {
    /// A kubeconfig of the webhook that events are sent to: https, with a certificate authority.
    #[arg(long, help_heading = AUDITING, value_name = "FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// The pause before a delivery that failed is tried again; each further one is longer by half.
    #[arg(long, default_value = "10s", value_parser = duration, help_heading = AUDITING, value_name = "DURATION")]
    pub audit_webhook_initial_backoff: Duration,
    /// Deprecated: --audit-webhook-initial-backoff.
    #[arg(long, value_parser = duration, help_heading = AUDITING, value_name = "DURATION", hide = true)]
    pub audit_webhook_batch_initial_backoff: Option<Duration>,
    /// The form of events.
    #[arg(long, value_enum, default_value = "audit.k8s.io/v1", help_heading = AUDITING, value_name = "VERSION", hide_possible_values = true)]
    pub audit_webhook_version: AuditVersion,
    /// Whether requests wait for their events: batch (not at all), blocking, or blocking-strict (a request whose event is lost is refused).
    #[arg(long, value_enum, default_value = "batch", help_heading = AUDITING, value_name = "MODE", hide_possible_values = true)]
    pub audit_webhook_mode: AuditMode,
    /// In mode batch: the events in the queue; others are lost.
    #[arg(long, default_value_t = 10_000, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_webhook_batch_buffer_size: i64,
    /// In mode batch: the events that are delivered at once.
    #[arg(long, default_value_t = 400, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_webhook_batch_max_size: i64,
    /// In mode batch: how long an event waits for others.
    #[arg(long, default_value = "30s", value_parser = duration, help_heading = AUDITING, value_name = "DURATION")]
    pub audit_webhook_batch_max_wait: Duration,
    /// In mode batch: deliveries are throttled.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUDITING, value_name = "BOOL", hide_possible_values = true)]
    pub audit_webhook_batch_throttle_enable: bool,
    /// In mode batch: deliveries per second, where they are throttled.
    #[arg(long, default_value_t = 10.0, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_webhook_batch_throttle_qps: f32,
    /// In mode batch: deliveries at once, where they are throttled and there were none before.
    #[arg(long, default_value_t = 15, help_heading = AUDITING, value_name = "NUMBER")]
    pub audit_webhook_batch_throttle_burst: i64,
    /// Large events lose their objects, and larger ones are lost.
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", help_heading = AUDITING, value_name = "BOOL", hide_possible_values = true)]
    pub audit_webhook_truncate_enabled: bool,
    /// Bytes of what is delivered at once, where events are truncated.
    #[arg(long, default_value_t = 10 << 20, help_heading = AUDITING, value_name = "BYTES")]
    pub audit_webhook_truncate_max_batch_size: i64,
    /// Bytes of an event, where events are truncated.
    #[arg(long, default_value_t = 100 << 10, help_heading = AUDITING, value_name = "BYTES")]
    pub audit_webhook_truncate_max_event_size: i64,
}
