//! The metrics of auditing, under upstream's names.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Level;
use crate::metrics::{Collect, family, sample};

/// The parts that an event can be lost in, in alphabetical order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plugin {
    /// The queue of a sink that works in batches.
    Buffered,
    /// The log.
    Log,
    /// The bound on the size of events.
    Truncate,
    /// The webhook.
    Webhook,
}

impl Plugin {
    const ALL: [Plugin; 4] = [Plugin::Buffered, Plugin::Log, Plugin::Truncate, Plugin::Webhook];

    pub(super) fn name(self) -> &'static str {
        match self {
            Plugin::Buffered => "buffered",
            Plugin::Log => "log",
            Plugin::Truncate => "truncate",
            Plugin::Webhook => "webhook",
        }
    }
}

/// Counts events, levels and losses.
#[derive(Debug, Default)]
pub struct AuditMetrics {
    pub(super) events: AtomicU64,
    errors: [AtomicU64; 4],
    levels: [AtomicU64; 4],
    pub(super) rejected: AtomicU64,
}

impl AuditMetrics {
    pub(super) fn level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts events that were lost, and says so in the log.
    pub(super) fn lost(&self, plugin: Plugin, events: usize, why: &str) {
        self.errors[plugin as usize].fetch_add(events as u64, Ordering::Relaxed);
        tracing::error!(
            plugin = plugin.name(),
            events,
            error = why,
            "audit events were lost"
        );
    }
}

impl Collect for AuditMetrics {
    fn collect(&self, out: &mut String) {
        let all = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let total = "apiserver_audit_event_total";
        let help = "Counter of audit events generated and sent to the audit backend.";
        family(out, total, "counter", help);
        sample(out, total, &[], all(&self.events));
        let errors = "apiserver_audit_error_total";
        let help = "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.";
        family(out, errors, "counter", help);
        for plugin in Plugin::ALL {
            let count = all(&self.errors[plugin as usize]);
            if count > 0 {
                sample(out, errors, &[("plugin", plugin.name())], count);
            }
        }
        let levels = "apiserver_audit_level_total";
        let help = "Counter of policy levels for audit events (1 per request).";
        family(out, levels, "counter", help);
        for level in Level::ALL {
            let count = all(&self.levels[level as usize]);
            if count > 0 {
                sample(out, levels, &[("level", level.name())], count);
            }
        }
        let rejected = "apiserver_audit_requests_rejected_total";
        let help = "Counter of apiserver requests rejected due to an error in audit logging backend.";
        family(out, rejected, "counter", help);
        sample(out, rejected, &[], all(&self.rejected));
    }
}
