//! Auditing: which requests are recorded, at which level, and where the events go.
//!
//! A policy chooses the level of each request by its first rule that matches; what is recorded is gathered in a [`Capture`] while the
//! request is served, and becomes an [`Event`] at each stage that the policy does not omit. Sinks take events: a log file, a webhook.
//! Events are `audit.k8s.io/v1`. Mirrors upstream's `apiserver/pkg/audit` and its plugins.

mod auditor;
mod batches;
mod delivery;
mod event;
mod log;
mod metrics;
mod options;
mod policy;
mod sink;
#[cfg(test)]
mod tests;
mod webhook;

pub use crate::request::audit::{Capture, Level, Stage};
pub use auditor::Auditor;
pub use event::Event;
pub use metrics::AuditMetrics;
pub use options::{AuditOptions, Batching, Format, LogOptions, Mode, Truncation, WebhookOptions};
pub use policy::Policy;
pub use sink::Sink;
