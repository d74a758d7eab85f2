//! Auditing: which requests are recorded, at which level, and where the events go.
//!
//! A policy chooses the level of each request by its first rule that matches; what is recorded is gathered in a [`Capture`] while the
//! request is served, and becomes an [`Event`] at each stage that the policy does not omit. Sinks take events: a log file, a webhook.
//! Events are `audit.k8s.io/v1`. Mirrors upstream's `apiserver/pkg/audit` and its plugins.

mod auditor;
mod batches;
mod capture;
mod delivery;
mod event;
mod log;
mod metrics;
mod options;
mod policy;
#[cfg(test)]
mod tests;
mod webhook;

pub use auditor::{Auditor, Sink};
pub use capture::Capture;
pub(crate) use capture::{Arrival, RecordsObjects, ResponseObject, StatusText};
pub use event::Event;
pub use metrics::AuditMetrics;
pub use options::{AuditOptions, Batching, Format, LogOptions, Mode, Truncation, WebhookOptions};
pub use policy::Policy;

/// How much of a request is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who asked for what, and the outcome.
    Metadata,
    /// The object of the request, too.
    Request,
    /// The object of the answer, too.
    RequestResponse,
}

impl Level {
    /// In the order of upstream's messages.
    pub(crate) const ALL: [Level; 4] = [
        Level::None,
        Level::Metadata,
        Level::Request,
        Level::RequestResponse,
    ];

    /// As policies and events name it.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// Where a request is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known; nothing was done yet.
    RequestReceived,
    /// The head of a long-running answer is sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

impl Stage {
    /// In the order of upstream's messages.
    pub(crate) const ALL: [Stage; 4] = [
        Stage::RequestReceived,
        Stage::ResponseStarted,
        Stage::ResponseComplete,
        Stage::Panic,
    ];

    /// As policies and events name it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}
