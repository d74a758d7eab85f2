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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn events_that_wait_have_all_the_room_there_is_and_no_more() {
        let room = Room::default();
        let all = Bytes::from(vec![0; limits::AUDIT_QUEUED_BYTES]);
        let one = Bytes::from_static(b"x");
        let held = room.take(&all).expect("room for as much as there is");
        assert!(room.take(&one).is_none(), "a byte past it");
        assert!(room.wait(&one).now_or_never().is_none(), "a request waits");
        drop(held);
        // An event that is larger than the room is alone in it.
        let larger = Bytes::from(vec![0; limits::AUDIT_QUEUED_BYTES + 1]);
        assert!(room.take(&larger).is_none());
        let held = room.take(&one).expect("room");
        assert!(room.wait(&larger).now_or_never().is_none());
        drop(held);
        assert!(room.wait(&larger).now_or_never().flatten().is_some());
    }
}
