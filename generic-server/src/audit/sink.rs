//! Sinks and what is behind them.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use machinery::limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::event::Event;

/// Takes events.
#[async_trait::async_trait]
pub trait Sink: Send + Sync + Debug {
    /// Takes an event. False when it is lost and its request must not go on.
    async fn take(&self, event: &Event<'_>) -> bool;

    /// Takes an event of a request that has ended without an answer: nothing can wait.
    fn offer(&self, event: &Event<'_>);

    /// Delivers what is queued, and takes no more.
    async fn flush(&self) {}
}

/// Where encoded events go.
#[async_trait::async_trait]
pub(super) trait Destination: Send + Sync + Debug {
    /// Delivers events, in order. The error says why they are lost.
    async fn deliver(&self, events: Vec<Bytes>) -> Result<(), String>;

    /// Whether a batch may be delivered while another is under way.
    fn is_concurrent(&self) -> bool;
}

/// Events that wait for their delivery hold their bytes of this.
#[derive(Debug, Clone)]
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Room(Arc::new(Semaphore::new(limits::AUDIT_QUEUED_BYTES)))
    }
}

impl Room {
    /// Room for an event whose request can wait. One that is larger than all has it when nothing else has any.
    pub(super) async fn wait(&self, event: &Bytes) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(event.len().min(limits::AUDIT_QUEUED_BYTES)).ok()?;
        self.0.clone().acquire_many_owned(bytes).await.ok()
    }

    pub(super) fn take(&self, event: &Bytes) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(event.len()).ok()?;
        self.0.clone().try_acquire_many_owned(bytes).ok()
    }
}

/// An event with its room in the queue.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) event: Bytes,
    pub(super) room: OwnedSemaphorePermit,
}
