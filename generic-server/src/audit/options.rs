//! How events are recorded, as flags say it.

use std::path::PathBuf;
use std::time::Duration;

/// The policy and the sinks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuditOptions {
    /// The file of the policy. Without one nothing is recorded.
    pub policy_file: Option<PathBuf>,
    /// A log.
    pub log: Option<LogOptions>,
    /// A webhook.
    pub webhook: Option<WebhookOptions>,
}

/// The form of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line of text for an event.
    Legacy,
    /// One line of JSON for an event.
    Json,
}

/// When a request goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At once. Events are queued.
    Batch,
    /// When its event has been delivered, or could not be.
    Blocking,
    /// When its event has been delivered. A request whose first event cannot be is refused.
    BlockingStrict,
}

/// How events are queued and delivered together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batching {
    /// Events in the queue. Past it they are lost, and counted.
    pub buffer_size: usize,
    /// Events delivered at once.
    pub max_size: usize,
    /// How long an event waits for others.
    pub max_wait: Duration,
    /// Batches per second, and as many at once.
    pub throttle: Option<(f32, u32)>,
}

/// The size of events and of what is delivered at once, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Of all events that are delivered at once.
    pub max_batch_bytes: usize,
    /// Of an event. One that is larger is recorded without its objects, or not at all.
    pub max_event_bytes: usize,
}

/// A log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogOptions {
    /// `None`: the standard output.
    pub path: Option<PathBuf>,
    /// The form of events.
    pub format: Format,
    /// Days after which a rotated file is removed; zero for never.
    pub max_age_days: u32,
    /// Rotated files that are kept; zero for all.
    pub max_backups: usize,
    /// The size at which a file is rotated, in MiB; zero for never.
    pub max_size_mib: u64,
    /// Whether rotated files are compressed with gzip.
    pub compress: bool,
    /// When requests go on.
    pub mode: Mode,
    /// The queue in mode batch.
    pub batching: Batching,
    /// The bounds on sizes.
    pub truncation: Option<Truncation>,
}

/// A webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookOptions {
    /// A kubeconfig.
    pub config_file: PathBuf,
    /// The pause before a delivery is tried for the second time.
    pub initial_backoff: Duration,
    /// When requests go on.
    pub mode: Mode,
    /// The queue in mode batch.
    pub batching: Batching,
    /// The bounds on sizes.
    pub truncation: Option<Truncation>,
}
