//! Options about auditing.

use std::path::Path;
use std::time::Duration;

use generic_server::audit::{AuditOptions, Batching, LogOptions, Mode, Truncation, WebhookOptions};

use super::Findings;
use crate::options::{AuditFlags, AuditLogFlags, AuditVersion, AuditWebhookFlags};

/// Events in a queue, whose bytes are bounded besides.
const LARGEST_BUFFER: i64 = 1_000_000;

/// The flags that the log and the webhook share.
struct Shared {
    plugin: &'static str,
    mode: Mode,
    buffer_size: i64,
    max_size: i64,
    max_wait: Duration,
    throttle: bool,
    qps: f32,
    burst: i64,
    truncate: bool,
    max_batch: i64,
    max_event: i64,
}

impl AuditFlags {
    /// Checks the flags, in upstream's words.
    pub(super) fn read(self, found: &mut Findings) -> AuditOptions {
        let AuditFlags {
            audit_policy_file: policy_file,
            log,
            webhook,
        } = self;
        let (log, webhook) = (log.read(found), webhook.read(found));
        if policy_file.is_none() && (log.is_some() || webhook.is_some()) {
            found.warn("no events are recorded without --audit-policy-file");
        }
        if policy_file.is_some() && log.is_none() && webhook.is_none() {
            found.warn(
                "--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file",
            );
        }
        AuditOptions {
            policy_file,
            log,
            webhook,
        }
    }
}

/// A number that may not be negative.
fn natural<T: TryFrom<i64> + Default>(found: &mut Findings, flag: &str, number: i64) -> T {
    if number < 0 {
        found.fault(format!("--{flag} {number} can't be a negative number"));
    }
    T::try_from(number.max(0)).unwrap_or_else(|_| {
        found.fault(format!("--{flag} {number} is too large"));
        T::default()
    })
}

impl AuditLogFlags {
    fn read(self, found: &mut Findings) -> Option<LogOptions> {
        let AuditLogFlags {
            audit_log_path: path,
            audit_log_maxage: max_age,
            audit_log_maxbackup: max_backups,
            audit_log_maxsize: max_mib,
            audit_log_compress: compress,
            audit_log_format: format,
            audit_log_version: AuditVersion::V1,
            audit_log_mode: mode,
            audit_log_batch_buffer_size: buffer_size,
            audit_log_batch_max_size: max_size,
            audit_log_batch_max_wait: max_wait,
            audit_log_batch_throttle_enable: throttle,
            audit_log_batch_throttle_qps: qps,
            audit_log_batch_throttle_burst: burst,
            audit_log_truncate_enabled: truncate,
            audit_log_truncate_max_batch_size: max_batch,
            audit_log_truncate_max_event_size: max_event,
        } = self;
        let path = path.filter(|path| !path.as_os_str().is_empty())?;
        let shared = Shared {
            plugin: "log",
            mode: mode.into(),
            buffer_size,
            max_size,
            max_wait,
            throttle,
            qps,
            burst,
            truncate,
            max_batch,
            max_event,
        };
        let (batching, truncation) = shared.read(found);
        Some(LogOptions {
            path: (path != Path::new("-")).then_some(path),
            format: format.into(),
            max_age_days: natural(found, "audit-log-maxage", max_age),
            max_backups: natural(found, "audit-log-maxbackup", max_backups),
            max_size_mib: natural(found, "audit-log-maxsize", max_mib),
            compress,
            mode: mode.into(),
            batching,
            truncation,
        })
    }
}

impl AuditWebhookFlags {
    fn read(self, found: &mut Findings) -> Option<WebhookOptions> {
        let AuditWebhookFlags {
            audit_webhook_config_file: config_file,
            audit_webhook_initial_backoff: initial_backoff,
            audit_webhook_batch_initial_backoff: deprecated_backoff,
            audit_webhook_version: AuditVersion::V1,
            audit_webhook_mode: mode,
            audit_webhook_batch_buffer_size: buffer_size,
            audit_webhook_batch_max_size: max_size,
            audit_webhook_batch_max_wait: max_wait,
            audit_webhook_batch_throttle_enable: throttle,
            audit_webhook_batch_throttle_qps: qps,
            audit_webhook_batch_throttle_burst: burst,
            audit_webhook_truncate_enabled: truncate,
            audit_webhook_truncate_max_batch_size: max_batch,
            audit_webhook_truncate_max_event_size: max_event,
        } = self;
        if deprecated_backoff.is_some() {
            found.warn("--audit-webhook-batch-initial-backoff is deprecated, use --audit-webhook-initial-backoff instead");
        }
        let config_file = config_file.filter(|path| !path.as_os_str().is_empty())?;
        let shared = Shared {
            plugin: "webhook",
            mode: mode.into(),
            buffer_size,
            max_size,
            max_wait,
            throttle,
            qps,
            burst,
            truncate,
            max_batch,
            max_event,
        };
        let (batching, truncation) = shared.read(found);
        Some(WebhookOptions {
            config_file,
            initial_backoff: deprecated_backoff.unwrap_or(initial_backoff),
            mode: mode.into(),
            batching,
            truncation,
        })
    }
}

impl Shared {
    fn read(self, found: &mut Findings) -> (Batching, Option<Truncation>) {
        if self.mode == Mode::Batch {
            self.check_batching(found);
        }
        let plugin = self.plugin;
        if self.max_event <= 0 {
            found.fault(format!(
                "invalid audit truncate {plugin} max event size {}, must be a positive number",
                self.max_event
            ));
        } else if self.max_batch < self.max_event {
            found.fault(format!(
                "invalid audit truncate {plugin} max batch size {}, must be greater than max event size ({})",
                self.max_batch, self.max_event
            ));
        }
        let number = |number: i64| usize::try_from(number).unwrap_or_default();
        let batching = Batching {
            // Of no use in the other modes, where they may be anything.
            buffer_size: number(self.buffer_size).max(1),
            max_size: number(self.max_size).max(1),
            max_wait: self.max_wait,
            throttle: self
                .throttle
                .then(|| (self.qps, u32::try_from(self.burst).unwrap_or(u32::MAX))),
        };
        let truncation = self.truncate.then(|| Truncation {
            max_batch_bytes: number(self.max_batch),
            max_event_bytes: number(self.max_event),
        });
        (batching, truncation)
    }

    fn check_batching(&self, found: &mut Findings) {
        let plugin = self.plugin;
        let mut positive = |what: &str, shown: String, is_positive: bool| {
            if !is_positive {
                found.fault(format!(
                    "invalid audit batch {plugin} {what} {shown}, must be a positive number"
                ));
            }
        };
        positive("buffer size", self.buffer_size.to_string(), self.buffer_size > 0);
        let too_large = self.buffer_size > LARGEST_BUFFER;
        positive("max batch size", self.max_size.to_string(), self.max_size > 0);
        if self.throttle {
            positive("throttle QPS", self.qps.to_string(), self.qps > 0.0);
            positive("throttle burst", self.burst.to_string(), self.burst > 0);
        }
        if too_large {
            found.fault(format!(
                "invalid audit batch {plugin} buffer size {}, must be at most {LARGEST_BUFFER}",
                self.buffer_size
            ));
        }
    }
}
