//! One queue of a level.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::work::{SeatTime, Width};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Waiting<I, W> {
    pub(crate) info: I,
    /// The hash of its user.
    pub(super) user: u64,
    pub(crate) waiter: W,
    pub(crate) width: Width,
    pub(crate) arrived: Instant,
    /// The virtual time of its arrival.
    pub(crate) arrival_r: SeatTime,
}

/// The requests of a queue.
#[derive(Debug)]
pub(crate) struct Queue<I, W> {
    /// In the order of their arrival.
    pub(crate) waiting: BTreeMap<u64, Waiting<I, W>>,
    waiting_work: SeatTime,
    /// The virtual time at which the next request begins.
    pub(crate) next: SeatTime,
    pub(crate) executing: usize,
    /// Those of requests that have ended, too, while they linger.
    pub(crate) seats_in_use: u64,
    /// The number of the last dispatch from here: of queues that are equal, the one that has waited longest is next.
    pub(super) served: u64,
    /// Where it is in the order of queues.
    pub(super) key: Option<(SeatTime, u64, u32)>,
}

impl<I, W> Default for Queue<I, W> {
    fn default() -> Self {
        Queue {
            waiting: BTreeMap::new(),
            waiting_work: SeatTime::default(),
            next: SeatTime::default(),
            executing: 0,
            seats_in_use: 0,
            served: 0,
            key: None,
        }
    }
}

impl<I, W> Queue<I, W> {
    pub(super) fn is_active(&self) -> bool {
        self.executing > 0 || !self.waiting.is_empty()
    }

    /// All of the work that waits, as estimated.
    pub(crate) fn waiting_work(&self) -> SeatTime {
        self.waiting_work
    }

    pub(super) fn oldest(&self) -> Option<&Waiting<I, W>> {
        self.waiting.values().next()
    }

    /// The virtual time at which the oldest request would end.
    pub(super) fn end_of_oldest(&self) -> Option<SeatTime> {
        self.oldest().map(|oldest| self.next + oldest.width.work())
    }

    pub(super) fn push(&mut self, id: u64, request: Waiting<I, W>) {
        self.waiting_work += request.width.work();
        self.waiting.insert(id, request);
        self.keep_behind_arrivals();
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Waiting<I, W>> {
        let request = self.waiting.remove(&id)?;
        self.waiting_work -= request.width.work();
        self.keep_behind_arrivals();
        Some(request)
    }

    /// Takes one out that has its turn. Whoever does calls [`Queue::begin`].
    pub(super) fn take(&mut self, id: u64) -> Option<Waiting<I, W>> {
        let request = self.waiting.remove(&id)?;
        self.waiting_work -= request.width.work();
        Some(request)
    }

    /// A request begins, with the work that is estimated.
    pub(super) fn begin(&mut self, width: &Width) {
        self.next += width.work();
        self.executing += 1;
        self.seats_in_use += u64::from(width.most_seats());
        self.keep_behind_arrivals();
    }

    /// A request has ended: its work is known now. Its seats are another matter, because they may linger.
    pub(super) fn end(&mut self, seats: u32, took: Duration) {
        self.executing -= 1;
        self.next += super::correction(seats, took);
        self.keep_behind_arrivals();
    }

    /// Nothing begins before it has arrived. Without this, a queue that never has enough requests for its share, and never none,
    /// would save up virtual time and could then keep the others waiting.
    fn keep_behind_arrivals(&mut self) {
        if let Some(arrival) = self.oldest().map(|oldest| oldest.arrival_r) {
            self.next = self.next.max(arrival);
        }
    }
}
