//! A priority level: its seats and queues behind one lock, and the requests that wait.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};

use super::demand::Period;
use super::queue_set::{Arrival, Caller, Place, QueueSet, Queuing, Refused, Ticket};
use super::retry_after::RetryAfter;
use super::series::FlowSeries;
use super::utilization::Utilization;
use super::work::Width;
use crate::request::RequestContext;

/// The requests of a level.
pub(crate) type Set = QueueSet<Requester, oneshot::Sender<Seat>>;

/// A request at a level, for metrics and dumps.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) context: Arc<RequestContext>,
    pub(crate) flow: Arc<FlowSeries>,
    /// What distinguishes flows is the name of the user, the namespace, or nothing.
    pub(crate) by: Option<super::objects::Distinguisher>,
}

/// A level.
pub(crate) struct Level {
    name: Arc<str>,
    state: Mutex<State>,
    /// The widest that a request may be estimated.
    widest: AtomicU32,
    /// Wakes the task that gives back lingering seats.
    ticks: Arc<Notify>,
}

/// What the lock of a level is for.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) set: Set,
    pub(crate) utilization: Utilization,
    retry_after: RetryAfter,
    /// When the task that gives back lingering seats wakes next, `None` when it waits for a notification.
    ticks_at: Option<Instant>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Entry {
    Runs(Seat),
    Waits(Waiting),
    Refused,
}

/// The right to run, given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    level: Arc<Level>,
    place: Option<Place>,
}

/// A request in a queue. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    level: Arc<Level>,
    ticket: Ticket,
    seat: oneshot::Receiver<Seat>,
    /// Still to be taken from the queue.
    queued: bool,
}

impl Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Level {
    pub(crate) fn new(
        name: &str,
        queuing: Queuing,
        limit: u64,
        now: Instant,
        ticks: Arc<Notify>,
    ) -> Arc<Self> {
        Arc::new(Level {
            name: name.into(),
            state: Mutex::new(State {
                set: QueueSet::new(queuing, limit, now).halve_users(),
                utilization: Utilization::new(now),
                retry_after: RetryAfter::new(now),
                ticks_at: None,
            }),
            widest: AtomicU32::new(0),
            ticks,
        })
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The widest that a request may be estimated; zero for no bound.
    pub(crate) fn widest(&self) -> u32 {
        self.widest.load(Ordering::Relaxed)
    }

    pub(crate) fn set_widest(&self, seats: u32) {
        self.widest.store(seats, Ordering::Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A request comes. Never waits itself; what it gives does.
    pub(crate) fn enter(
        self: &Arc<Self>,
        caller: Caller,
        width: Width,
        request: Requester,
        now: Instant,
    ) -> Entry {
        let (flow, context) = (request.flow.clone(), request.context.clone());
        let info = &context.info;
        let mut seat = None;
        let mut state = self.lock();
        let arrival = state.set.arrive(caller, width, request, now, || {
            let (sender, receiver) = oneshot::channel();
            seat = Some(receiver);
            sender
        });
        let entry = match (arrival, seat) {
            (Arrival::Runs(place), _) => {
                let seats = state
                    .set
                    .at(&place)
                    .map_or(0, |request| request.width.most_seats());
                flow.dispatched(info, seats, now);
                Entry::Runs(Seat {
                    level: self.clone(),
                    place: Some(place),
                })
            }
            (Arrival::Waits { ticket, length }, Some(seat)) => {
                flow.queued(info, length, width.most_seats(), now);
                Entry::Waits(Waiting {
                    level: self.clone(),
                    ticket,
                    seat,
                    queued: true,
                })
            }
            (Arrival::Waits { .. }, None) => Entry::Refused,
            (Arrival::Refused(why), _) => {
                flow.refused(why);
                Entry::Refused
            }
        };
        self.changed(state, now);
        entry
    }

    /// What the answer to a refused request says.
    pub(crate) fn retry_after(&self, now: Instant) -> Duration {
        self.lock().retry_after.refuse(now)
    }

    pub(crate) fn configure(self: &Arc<Self>, queuing: Queuing, limit: u64, now: Instant) {
        let mut state = self.lock();
        state.set.configure(queuing, limit, now);
        self.changed(state, now);
    }

    /// Ends a period of demand.
    pub(crate) fn end_period(self: &Arc<Self>, now: Instant) -> Period {
        let mut state = self.lock();
        let period = state.set.end_period(now);
        self.changed(state, now);
        period
    }

    /// Gives back lingering seats that are due. Gives when the next are, if a request waits for them.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        state.set.tick(now);
        let next = state.set.next_tick();
        state.ticks_at = next;
        self.changed(state, now);
        next
    }

    fn finish(self: &Arc<Self>, place: Place, now: Instant) {
        let mut state = self.lock();
        let done = state.set.finish(place, now);
        self.changed(state, now);
        if let Some(done) = done {
            let info = &done.info.context.info;
            let seats = done.width.most_seats();
            done.info.flow.finished(info, seats, done.started, now);
        }
    }

    fn leave(self: &Arc<Self>, ticket: Ticket, now: Instant) -> bool {
        let mut state = self.lock();
        let left = state.set.leave(ticket, now);
        self.changed(state, now);
        if let Some(left) = &left {
            let info = &left.info.context.info;
            let seats = left.width.most_seats();
            left.info.flow.left(info, seats, left.arrived, now);
            left.info.flow.refused(Refused::TimeOut);
        }
        left.is_some()
    }

    /// After every change: hands out the seats that others have now, without the lock, because a seat whose receiver has gone comes
    /// back at once.
    fn changed(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: Instant) {
        let ready = state.set.take_ready();
        if let Some(request) = state.set.take_short() {
            request.flow.not_accommodated();
        }
        // A request waits for seats that linger, be it that it came before they did or after.
        let next = state.set.next_tick();
        if next.is_some() && next != state.ticks_at {
            state.ticks_at = next;
            self.ticks.notify_one();
        }
        let (totals, limit) = (state.set.totals(), state.set.limit());
        state.utilization.note(&totals, limit, now);
        let ready: Vec<_> = ready
            .into_iter()
            .map(|ready| {
                if let Some(request) = state.set.at(&ready.place) {
                    let info = &request.info.context.info;
                    let seats = (ready.asked, request.width.most_seats());
                    request.info.flow.served(info, seats, request.arrived, now);
                }
                (ready.waiter, ready.place)
            })
            .collect();
        drop(state);
        for (sender, place) in ready {
            let seat = Seat {
                level: self.clone(),
                place: Some(place),
            };
            drop(sender.send(seat));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.level.finish(place, now());
        }
    }
}

impl Waiting {
    /// Waits for a seat, no longer than until `end`. Dropped meanwhile, the request leaves its queue.
    ///
    /// # Errors
    /// When there was none in time.
    pub(crate) async fn seat(mut self, end: Instant) -> Result<Seat, Refused> {
        let seat = tokio::time::timeout_at(end.into(), &mut self.seat).await;
        self.queued = false;
        if let Ok(Ok(seat)) = seat {
            return Ok(seat);
        }
        if self.level.leave(self.ticket, now()) {
            return Err(Refused::TimeOut);
        }
        // It came just now.
        self.seat.try_recv().map_err(|_| Refused::TimeOut)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.queued {
            self.level.leave(self.ticket, now());
        }
    }
}

/// The time; tests may stop it.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
