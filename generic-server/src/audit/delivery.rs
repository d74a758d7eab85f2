//! A sink: events are encoded, cut where they are too large, and delivered at once or from a queue.

use std::sync::Arc;

use bytes::Bytes;
use machinery::limits;

use super::batches::Batches;
use super::event::Event;
use super::metrics::{AuditMetrics, Plugin};
use super::options::{Batching, Format, Mode, Truncation};
use super::sink::{Destination, Queued, Room, Sink};
use super::{Level, Stage};
use crate::cpu;
use crate::spawn::Tasks;

/// A sink in front of a destination.
#[derive(Debug)]
pub(super) struct Delivery {
    plugin: Plugin,
    destination: Arc<dyn Destination>,
    format: Format,
    mode: Mode,
    truncation: Option<Truncation>,
    room: Room,
    /// In mode batch.
    batches: Option<Batches>,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
}

impl Delivery {
    pub(super) fn new(
        plugin: Plugin,
        destination: Arc<dyn Destination>,
        format: Format,
        mode: Mode,
        (batching, truncation): (Batching, Option<Truncation>),
        (metrics, tasks): (&Arc<AuditMetrics>, &Tasks),
    ) -> Self {
        let most = truncation.map_or(limits::AUDIT_BATCH_BYTES, |bounds| bounds.max_batch_bytes);
        let batches = (mode == Mode::Batch)
            .then(|| Batches::start(plugin, destination.clone(), (batching, most), metrics, tasks));
        Delivery {
            plugin,
            destination,
            format,
            mode,
            truncation,
            room: Room::default(),
            batches,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        }
    }

    /// The event in the sink's form; `None` when it is too large in any form.
    fn encode(&self, event: &Event<'_>) -> Option<Bytes> {
        let mut json = None;
        let line = || match self.format {
            Format::Json => event.json(),
            Format::Legacy => event.line().into(),
        };
        let Some(Truncation { max_event_bytes, .. }) = self.truncation else {
            return Some(line());
        };
        let fits = |text: &Bytes| text.len() < max_event_bytes;
        let whole = event.json();
        if fits(&whole) {
            json = Some(whole);
        } else if event.level() >= Level::Request {
            json = Some(event.truncated()).filter(fits);
        }
        let json = json.or_else(|| {
            let why = "event is too large even after truncating";
            self.metrics.lost(Plugin::Truncate, 1, why);
            None
        })?;
        Some(match self.format {
            Format::Json => json,
            Format::Legacy => line(),
        })
    }

    fn queue(&self, event: Bytes) {
        let Some(batches) = &self.batches else { return };
        let lost = match self.room.take(&event) {
            Some(room) => batches.push(Queued { event, room }),
            None => Err("the queue of audit events is full"),
        };
        if let Err(why) = lost {
            self.metrics.lost(Plugin::Buffered, 1, why);
        }
    }
}

async fn deliver(plugin: Plugin, to: &dyn Destination, events: Vec<Bytes>, metrics: &AuditMetrics) -> bool {
    let count = events.len();
    match to.deliver(events).await {
        Ok(()) => true,
        Err(why) => {
            metrics.lost(plugin, count, &why);
            false
        }
    }
}

#[async_trait::async_trait]
impl Sink for Delivery {
    async fn take(&self, event: &Event<'_>) -> bool {
        cpu::heavy_answer(event.size()).await;
        let Some(encoded) = self.encode(event) else {
            return true;
        };
        if self.mode == Mode::Batch {
            self.queue(encoded);
            return true;
        }
        let _room = self.room.wait(&encoded).await;
        let taken = deliver(self.plugin, &*self.destination, vec![encoded], &self.metrics).await;
        // Once it has begun, a request goes on: what it does is done.
        taken || self.mode == Mode::Blocking || event.stage != Stage::RequestReceived
    }

    fn offer(&self, event: &Event<'_>) {
        let Some(encoded) = self.encode(event) else { return };
        if self.mode == Mode::Batch {
            return self.queue(encoded);
        }
        let Some(room) = self.room.take(&encoded) else {
            return self.metrics.lost(self.plugin, 1, "too many audit events wait");
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return self.metrics.lost(self.plugin, 1, "the server has stopped");
        }
        let (plugin, destination, metrics) = (self.plugin, self.destination.clone(), self.metrics.clone());
        self.tasks.spawn_to_end("audit", async move {
            let _room = room;
            deliver(plugin, &*destination, vec![encoded], &metrics).await;
        });
    }

    async fn flush(&self) {
        if let Some(batches) = &self.batches {
            batches.flush().await;
        }
    }
}
