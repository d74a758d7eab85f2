//! The queue of a sink in mode batch: events are gathered for a time or up to a number, and delivered together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use machinery::limits;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::metrics::{AuditMetrics, Plugin};
use super::options::Batching;
use super::sink::{Destination, Queued};
use crate::spawn::Tasks;

/// The queue and the task that empties it.
#[derive(Debug)]
pub(super) struct Batches {
    /// `None` when the server has stopped.
    queue: Mutex<Option<mpsc::Sender<Queued>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Worker {
    plugin: Plugin,
    destination: Arc<dyn Destination>,
    batching: Batching,
    /// Bytes of a batch.
    most: usize,
    metrics: Arc<AuditMetrics>,
    tasks: Tasks,
    /// Deliveries at once.
    seats: Arc<Semaphore>,
}

impl Batches {
    pub(super) fn start(
        plugin: Plugin,
        destination: Arc<dyn Destination>,
        (batching, most): (Batching, usize),
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
    ) -> Self {
        let (queue, events) = mpsc::channel(batching.buffer_size);
        let seats = match destination.is_concurrent() {
            true => limits::AUDIT_DELIVERIES,
            false => 1,
        };
        let worker = Worker {
            plugin,
            destination,
            batching,
            most,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
            seats: Arc::new(Semaphore::new(seats)),
        };
        Batches {
            queue: Mutex::new(Some(queue)),
            task: Mutex::new(Some(tasks.spawn_to_end("audit batches", worker.run(events)))),
        }
    }

    pub(super) fn push(&self, event: Queued) -> Result<(), &'static str> {
        let queue = self.queue.lock();
        let queue = queue.as_ref().ok_or("audit backend shut down")?;
        queue.try_send(event).map_err(|_| "audit buffer queue blocked")
    }

    /// Delivers what is queued, and takes no more.
    pub(super) async fn flush(&self) {
        drop(self.queue.lock().take());
        let task = self.task.lock().take();
        if let Some(task) = task {
            // It has no way to fail but a panic, which is in the log.
            let _ = task.await;
        }
    }
}

impl Worker {
    async fn run(self, mut events: mpsc::Receiver<Queued>) {
        let mut throttle = self.batching.throttle.map(Throttle::new);
        let mut next = None;
        while let Some(first) = match next.take() {
            Some(event) => Some(event),
            None => events.recv().await,
        } {
            let mut batch = vec![first];
            next = self.gather(&mut batch, &mut events).await;
            if let Some(throttle) = &mut throttle {
                throttle.wait().await;
            }
            self.deliver(batch).await;
        }
        // Deliveries that are under way end in their own time.
        let all = u32::try_from(Semaphore::MAX_PERMITS.min(self.seat_count())).unwrap_or(1);
        drop(self.seats.acquire_many(all).await);
    }

    fn seat_count(&self) -> usize {
        match self.destination.is_concurrent() {
            true => limits::AUDIT_DELIVERIES,
            false => 1,
        }
    }

    /// Adds to a batch what comes in time, and gives the event that has no room in it.
    async fn gather(&self, batch: &mut Vec<Queued>, events: &mut mpsc::Receiver<Queued>) -> Option<Queued> {
        let until = Instant::now() + self.batching.max_wait;
        let mut bytes: usize = batch.iter().map(|queued| queued.event.len()).sum();
        while batch.len() < self.batching.max_size {
            let Ok(Some(queued)) = tokio::time::timeout_at(until, events.recv()).await else {
                break;
            };
            bytes += queued.event.len();
            if bytes > self.most {
                return Some(queued);
            }
            batch.push(queued);
        }
        None
    }

    async fn deliver(&self, batch: Vec<Queued>) {
        let Ok(seat) = self.seats.clone().acquire_owned().await else {
            return;
        };
        let (plugin, destination, metrics) = (self.plugin, self.destination.clone(), self.metrics.clone());
        self.tasks.spawn_to_end("audit delivery", async move {
            let _seat = seat;
            let (events, room): (Vec<Bytes>, Vec<_>) = batch
                .into_iter()
                .map(|queued| (queued.event, queued.room))
                .unzip();
            let count = events.len();
            if let Err(why) = destination.deliver(events).await {
                metrics.lost(plugin, count, &why);
            }
            drop(room);
        });
    }
}

/// Batches per second on average, with as many at once as were not used before.
struct Throttle {
    pause: Duration,
    /// How far ahead of the average it may be.
    ahead: Duration,
    /// When all that was sent is within the average.
    even: Instant,
}

impl Throttle {
    fn new((per_second, burst): (f32, u32)) -> Self {
        let longest = Duration::from_hours(1);
        let pause = Duration::try_from_secs_f32(1.0 / per_second).map_or(longest, |pause| pause.min(longest));
        Throttle {
            pause,
            ahead: pause.saturating_mul(burst.saturating_sub(1)),
            even: Instant::now(),
        }
    }

    async fn wait(&mut self) {
        let now = Instant::now();
        self.even = self.even.max(now);
        tokio::time::sleep_until(self.even.checked_sub(self.ahead).unwrap_or(now)).await;
        self.even += self.pause;
    }
}
