//! The seats and the queues of one priority level: fair queuing, as a state machine.
//!
//! No lock, no task and no clock are here: every call says what time it is, so that the whole is simulated in tests. The method is
//! upstream's ("Fair Queuing for Server Requests", KEP-1040): a request is dealt a hand of queues by the hash of its flow and takes
//! the one with the least work waiting. Each queue has a virtual time at which its next request would begin if all queues shared the seats equally; the
//! queue whose oldest request would end first is served next. That request waits until there are seats for all of its width, and no other passes it.
//!
//! The cost of a call is O(log n) in the waiting requests. Only queues with requests exist, so that memory is bounded by requests
//! and not by what a configuration says.

mod queue;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::{Duration, Instant};

use super::dealer;
use super::demand::Demand;
use super::work::{SERVICE_TIME, SeatTime, Width};
use queue::{Queue, Waiting};

/// What happens to the requests that there are no seats for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queuing {
    /// There are always seats.
    Exempt,
    /// They are refused.
    Reject,
    /// They wait.
    Queue {
        queues: u32,
        hand_size: usize,
        /// Requests that may wait in one queue.
        length: usize,
    },
}

/// What became of an arriving request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Runs(Place),
    Waits {
        ticket: Ticket,
        /// Requests in its queue, this one included.
        length: usize,
    },
    Refused(Refused),
}

/// Why a request is refused. The texts are labels of metrics, as upstream has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No seat, in a level without queues.
    ConcurrencyLimit,
    /// No seat, and its queue is full.
    QueueFull,
    /// It has waited too long.
    TimeOut,
}

/// The place of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    queue: u32,
    id: u64,
}

/// The place of a running request. Has to be given back by [`QueueSet::finish`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Place(usize);

/// Who sends a request, by hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Of the flow, which deals it its queues.
    pub(crate) flow: u64,
    /// Of the user, who may have no more than half of the seats.
    pub(crate) user: u64,
}

/// The users of a level.
#[derive(Debug, Default)]
struct Users {
    seats: HashMap<u64, u64, BuildHasherDefault<IndexHasher>>,
    /// The queues that have requests alone whose users may have no more seats, by each of these.
    held: HashMap<u64, Vec<u32>, BuildHasherDefault<IndexHasher>>,
}

impl Users {
    fn take(&mut self, user: u64, seats: u32) {
        *self.seats.entry(user).or_default() += u64::from(seats);
    }

    /// Fewer than were taken in all when the level was exempt at the time.
    fn give_back(&mut self, user: u64, seats: u32) {
        if let Entry::Occupied(mut used) = self.seats.entry(user) {
            *used.get_mut() = used.get().saturating_sub(u64::from(seats));
            if *used.get() == 0 {
                used.remove();
            }
        }
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(crate) struct Executing<I> {
    pub(crate) info: I,
    /// The hash of its user.
    user: u64,
    /// `None` when the level has no queues.
    pub(crate) queue: Option<u32>,
    pub(crate) width: Width,
    pub(crate) arrived: Instant,
    pub(crate) started: Instant,
}

/// Requests of a queue that are passed over at most, since their users have all the seats that they may have.
const PASSED_OVER: usize = 128;

/// The next request of a queue.
enum Next {
    Request {
        id: u64,
        seats: u32,
    },
    /// None: these users may have no more seats.
    Held(Vec<u64>),
}

/// Numbers for metrics and dumps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) waiting: usize,
    pub(crate) seats_waiting: u64,
    pub(crate) executing: usize,
    pub(crate) seats_in_use: u64,
    pub(crate) dispatched: u64,
    pub(crate) rejected: u64,
    pub(crate) cancelled: u64,
    /// Attempts to serve the next request that found too few seats.
    pub(crate) no_accommodation: u64,
}

/// Virtual times of the last dispatch, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LastDispatch {
    /// Of the level.
    pub(crate) r: SeatTime,
    /// Of the queue.
    pub(crate) s: SeatTime,
}

/// The requests of a level. `I` is known of each request, `W` wakes one that waits.
#[derive(Debug)]
pub(crate) struct QueueSet<I, W> {
    queuing: Queuing,
    limit: u64,
    /// Those that have a request waiting or seats taken.
    queues: HashMap<u32, Queue<I, W>, BuildHasherDefault<IndexHasher>>,
    /// Those with requests waiting, by the virtual time at which their oldest would end, then by when they were served last.
    order: BTreeSet<(SeatTime, u64, u32)>,
    executing: Vec<Option<Executing<I>>>,
    free: Vec<usize>,
    /// Seats of executing requests by the hash of their user, where a user may not have all of them.
    users: Option<Users>,
    /// Seats that are still taken after their request has ended.
    lingering: BinaryHeap<Reverse<(Instant, u32, Option<u32>)>>,
    /// The virtual time, up to `since`.
    r: SeatTime,
    since: Instant,
    /// Queues with requests waiting or executing.
    active: u64,
    arrivals: u64,
    dispatches: u64,
    totals: Totals,
    last: LastDispatch,
    demand: Demand,
    /// Waiting requests that have seats now.
    ready: Vec<Ready<W>>,
    /// The request that was next in the last call and found too few seats.
    short: Option<Ticket>,
}

/// A request that has waited and has seats now.
#[derive(Debug)]
pub(crate) struct Ready<W> {
    pub(crate) waiter: W,
    pub(crate) place: Place,
    /// The seats that it has waited for; it may have fewer.
    pub(crate) asked: u32,
}

impl<I, W> QueueSet<I, W> {
    pub(crate) fn new(queuing: Queuing, limit: u64, now: Instant) -> Self {
        QueueSet {
            queuing,
            limit,
            queues: HashMap::default(),
            order: BTreeSet::new(),
            executing: Vec::new(),
            free: Vec::new(),
            users: None,
            lingering: BinaryHeap::new(),
            r: SeatTime::default(),
            since: now,
            active: 0,
            arrivals: 0,
            dispatches: 0,
            totals: Totals::default(),
            last: LastDispatch::default(),
            demand: Demand::new(now),
            ready: Vec::new(),
            short: None,
        }
    }

    /// No user has more than half of the seats. Fair queuing decides who is next, but interrupts nobody: without this, a user whose
    /// requests never end (bodies that are not sent, answers that are not read) would have all seats. Upstream has no such bound.
    pub(crate) fn halve_users(mut self) -> Self {
        self.users = Some(Users::default());
        self
    }

    /// Changes the configuration. Requests that wait go on waiting, whatever it says.
    pub(crate) fn configure(&mut self, queuing: Queuing, limit: u64, now: Instant) {
        self.advance(now);
        self.queuing = queuing;
        self.limit = limit;
        let held: Vec<u64> = self
            .users
            .iter()
            .flat_map(|users| users.held.keys().copied())
            .collect();
        held.into_iter().for_each(|user| self.let_go(user));
        self.dispatch(now);
    }

    /// A request comes. `waiter` is called when it has to wait.
    pub(crate) fn arrive(
        &mut self,
        caller: Caller,
        width: Width,
        info: I,
        now: Instant,
        waiter: impl FnOnce() -> W,
    ) -> Arrival {
        self.advance(now);
        let seats = width.most_seats();
        let Queuing::Queue {
            queues,
            hand_size,
            length,
        } = self.queuing
        else {
            if !self.accommodates(seats) || !self.user_may_have(caller.user, seats) {
                self.totals.rejected += 1;
                return Arrival::Refused(Refused::ConcurrencyLimit);
            }
            let place = self.execute(Executing {
                info,
                user: caller.user,
                queue: None,
                width,
                arrived: now,
                started: now,
            });
            return Arrival::Runs(place);
        };
        let index = self.choose(caller.flow, queues, hand_size);
        let may_have = self.user_may_have(caller.user, seats);
        let full = self.totals.seats_in_use >= self.limit || !may_have;
        let runs = self.totals.waiting == 0 && !full && self.accommodates(seats);
        let before = |queue: &Queue<I, W>| queue.waiting.len();
        // A user who has all the seats that he may have leaves half of the queue to others, for whom there are seats.
        let room = if may_have { length } else { length.div_ceil(2) };
        if !runs && full && self.queues.get(&index).map_or(0, before) >= room {
            self.totals.rejected += 1;
            return Arrival::Refused(Refused::QueueFull);
        }
        let r = self.r;
        let queue = self.queues.entry(index).or_default();
        if !queue.is_active() {
            queue.next = r;
            self.active += 1;
        }
        if runs {
            // The same as waiting in an empty queue and being served at once.
            let width = width.narrowed(u32::try_from(self.limit).unwrap_or(u32::MAX));
            queue.next = queue.next.max(r);
            self.last = LastDispatch { r, s: queue.next };
            queue.begin(&width);
            self.dispatches += 1;
            queue.served = self.dispatches;
            let place = self.execute(Executing {
                info,
                user: caller.user,
                queue: Some(index),
                width,
                arrived: now,
                started: now,
            });
            return Arrival::Runs(place);
        }
        let ticket = Ticket {
            queue: index,
            id: self.arrivals,
        };
        let waiting = Waiting {
            info,
            user: caller.user,
            waiter: waiter(),
            width,
            arrived: now,
            arrival_r: r,
        };
        queue.push(ticket.id, waiting);
        let length = queue.waiting.len();
        self.totals.waiting += 1;
        self.totals.seats_waiting += u64::from(seats);
        self.reorder(index);
        self.note_demand(now);
        self.dispatch(now);
        Arrival::Waits { ticket, length }
    }

    /// A waiting request gives up, or its client has. `None` when it has seats already.
    pub(crate) fn leave(&mut self, ticket: Ticket, now: Instant) -> Option<Waiting<I, W>> {
        self.advance(now);
        let queue = self.queues.get_mut(&ticket.queue)?;
        let left = queue.remove(ticket.id)?;
        if !queue.is_active() {
            self.active -= 1;
        }
        self.totals.waiting -= 1;
        self.totals.seats_waiting -= u64::from(left.width.most_seats());
        self.totals.rejected += 1;
        self.totals.cancelled += 1;
        self.reorder(ticket.queue);
        self.forget_if_empty(ticket.queue);
        self.note_demand(now);
        // The one that left may have been next and wider than what is free.
        self.dispatch(now);
        Some(left)
    }

    /// A request has ended.
    pub(crate) fn finish(&mut self, place: Place, now: Instant) -> Option<Executing<I>> {
        self.advance(now);
        let done = self.executing.get_mut(place.0)?.take()?;
        self.free.push(place.0);
        self.totals.executing -= 1;
        let seats = done.width.most_seats();
        if let Some(users) = &mut self.users {
            users.give_back(done.user, seats);
            if !users.held.is_empty() {
                self.let_go(done.user);
            }
        }
        if let Some(queue) = done.queue.and_then(|index| self.queues.get_mut(&index)) {
            let took = now.saturating_duration_since(done.started);
            queue.end(done.width.initial_seats, took);
            if !queue.is_active() {
                self.active -= 1;
            }
        }
        if let Some(index) = done.queue {
            self.reorder(index);
        }
        if done.width.additional_latency.is_zero() {
            self.release(seats, done.queue);
        } else {
            let until = now + done.width.additional_latency;
            self.lingering.push(Reverse((until, seats, done.queue)));
        }
        self.note_demand(now);
        self.dispatch(now);
        Some(done)
    }

    /// Gives back seats whose additional latency is over, and serves those that waited for them.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.advance(now);
        self.dispatch(now);
    }

    /// When [`QueueSet::tick`] has to be called, because a request waits for seats that nothing else gives back.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let Reverse((until, ..)) = self.lingering.peek()?;
        (self.totals.waiting > 0).then_some(*until)
    }

    /// The request that was next since this was called last, and found too few seats. It still waits.
    pub(crate) fn take_short(&mut self) -> Option<&I> {
        let Ticket { queue, id } = self.short.take()?;
        let request = self.queues.get(&queue)?.waiting.get(&id)?;
        Some(&request.info)
    }

    /// The requests that have seats since this was called last.
    pub(crate) fn take_ready(&mut self) -> Vec<Ready<W>> {
        std::mem::take(&mut self.ready)
    }

    /// Ends a period of the level's demand.
    pub(crate) fn end_period(&mut self, now: Instant) -> super::demand::Period {
        self.advance(now);
        self.note_demand(now);
        self.demand.end_period(now)
    }

    /// Neither waiting nor executing requests.
    pub(crate) fn is_idle(&self) -> bool {
        self.totals.waiting == 0 && self.totals.executing == 0
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The virtual time, as of the last change.
    pub(crate) fn virtual_time(&self) -> SeatTime {
        self.r
    }

    pub(crate) fn last_dispatch(&self) -> LastDispatch {
        self.last
    }

    pub(crate) fn queuing(&self) -> Queuing {
        self.queuing
    }

    /// The least and the greatest virtual time at which a queue's next request begins, of those that have requests waiting, and the same less
    /// the work that their seats are estimated to do.
    pub(crate) fn bounds(&self) -> Option<[(SeatTime, SeatTime); 2]> {
        let waiting = || self.queues.values().filter(|queue| !queue.waiting.is_empty());
        let discounted = |queue: &Queue<I, W>| {
            let seats = u32::try_from(queue.seats_in_use).unwrap_or(u32::MAX);
            queue.next - SeatTime::of(seats, SERVICE_TIME)
        };
        let next = |queue: &Queue<I, W>| queue.next;
        Some([
            (waiting().map(next).min()?, waiting().map(next).max()?),
            (waiting().map(discounted).min()?, waiting().map(discounted).max()?),
        ])
    }

    /// The queues that have requests, in no order.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (u32, &Queue<I, W>)> {
        self.queues.iter().map(|(index, queue)| (*index, queue))
    }

    /// The requests that are being served, in no order.
    pub(crate) fn executing(&self) -> impl Iterator<Item = &Executing<I>> {
        self.executing.iter().flatten()
    }

    /// One of them.
    pub(crate) fn at(&self, place: &Place) -> Option<&Executing<I>> {
        self.executing.get(place.0)?.as_ref()
    }

    /// The queue of a flow's hand with the least work waiting. Hands begin at another card each time, so that flows whose hands
    /// overlap do not prefer the same.
    fn choose(&mut self, hash: u64, queues: u32, hand_size: usize) -> u32 {
        self.arrivals += 1;
        let hand = dealer::deal(hash, queues, hand_size);
        let cards = hand.cards();
        let turn = usize::try_from(self.arrivals % cards.len() as u64).unwrap_or_default();
        let rotated = cards.iter().cycle().skip(turn).take(cards.len());
        if self.totals.waiting == 0 {
            return rotated.copied().next().unwrap_or_default();
        }
        let waiting = |card: &&u32| {
            self.queues
                .get(*card)
                .map(Queue::waiting_work)
                .unwrap_or_default()
        };
        rotated.min_by_key(waiting).copied().unwrap_or_default()
    }

    /// Brings the virtual time up to now. Each queue with requests has an equal part of the seats that are wanted.
    fn advance(&mut self, now: Instant) {
        while let Some(Reverse((until, seats, queue))) = self.lingering.peek().copied()
            && until <= now
        {
            self.lingering.pop();
            self.advance_to(until);
            self.release(seats, queue);
            self.note_demand(until);
        }
        self.advance_to(now);
    }

    fn advance_to(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed.is_zero() {
            return;
        }
        self.since = now;
        if self.active > 0 {
            let wanted = self.totals.seats_in_use + self.totals.seats_waiting;
            self.r += SeatTime::shared(wanted.min(self.limit), passed, self.active);
        }
    }

    fn accommodates(&self, seats: u32) -> bool {
        let seats = u64::from(seats);
        match self.queuing {
            Queuing::Exempt => true,
            // Wider than the level: it is served alone.
            _ if seats > self.limit => self.totals.executing == 0,
            _ => self.totals.seats_in_use + seats <= self.limit,
        }
    }

    /// Whether a user may have so many seats more.
    fn user_may_have(&self, user: u64, seats: u32) -> bool {
        let Some(users) = self.users.as_ref().filter(|_| self.queuing != Queuing::Exempt) else {
            return true;
        };
        let used = users.seats.get(&user);
        used.is_none_or(|used| used + u64::from(seats) <= self.limit.div_ceil(2))
    }

    /// Takes a queue out of the order until a request of one of these users has ended.
    fn hold(&mut self, index: u32, full: &[u64]) {
        let key = self.queues.get_mut(&index).and_then(|queue| queue.key.take());
        if let Some(key) = key {
            self.order.remove(&key);
        }
        let Some(users) = &mut self.users else { return };
        for user in full {
            let held = users.held.entry(*user).or_default();
            // The requests of a user are in the queues of a few hands.
            if !held.contains(&index) {
                held.push(index);
            }
        }
    }

    /// Puts the queues back that were held for a user.
    fn let_go(&mut self, user: u64) {
        let held = self.users.as_mut().and_then(|users| users.held.remove(&user));
        for index in held.into_iter().flatten() {
            self.reorder(index);
        }
    }

    /// The request of a queue that is next: the oldest whose user may have its seats.
    fn next_of(&self, queue: &Queue<I, W>) -> Next {
        let mut full = Vec::new();
        for (id, request) in queue.waiting.iter().take(PASSED_OVER) {
            let seats = request.width.most_seats();
            if self.user_may_have(request.user, seats) {
                return Next::Request { id: *id, seats };
            }
            if !full.contains(&request.user) {
                full.push(request.user);
            }
        }
        Next::Held(full)
    }

    /// Serves waiting requests as long as there are seats for the next one.
    fn dispatch(&mut self, now: Instant) {
        while self.totals.seats_in_use < self.limit
            && let Some((_, _, index)) = self.order.first().copied()
        {
            let Some(queue) = self.queues.get(&index) else {
                return;
            };
            let (id, seats) = match self.next_of(queue) {
                Next::Request { id, seats } => (id, seats),
                Next::Held(full) => {
                    self.hold(index, &full);
                    continue;
                }
            };
            if !self.accommodates(seats) {
                self.totals.no_accommodation += 1;
                self.short = Some(Ticket { queue: index, id });
                return;
            }
            let Some(queue) = self.queues.get_mut(&index) else {
                return;
            };
            let Some(next) = queue.take(id) else { return };
            self.totals.waiting -= 1;
            self.totals.seats_waiting -= u64::from(seats);
            let width = next.width.narrowed(u32::try_from(self.limit).unwrap_or(u32::MAX));
            self.last = LastDispatch {
                r: self.r,
                s: queue.next,
            };
            queue.begin(&width);
            self.dispatches += 1;
            queue.served = self.dispatches;
            self.reorder(index);
            let place = self.execute(Executing {
                info: next.info,
                user: next.user,
                queue: Some(index),
                width,
                arrived: next.arrived,
                started: now,
            });
            self.ready.push(Ready {
                waiter: next.waiter,
                place,
                asked: seats,
            });
        }
    }

    fn execute(&mut self, request: Executing<I>) -> Place {
        let now = request.started;
        self.totals.executing += 1;
        self.totals.dispatched += 1;
        self.totals.seats_in_use += u64::from(request.width.most_seats());
        if let Some(users) = &mut self.users
            && self.queuing != Queuing::Exempt
        {
            users.take(request.user, request.width.most_seats());
        }
        self.note_demand(now);
        match self.free.pop() {
            Some(place) => {
                self.executing[place] = Some(request);
                Place(place)
            }
            None => {
                self.executing.push(Some(request));
                Place(self.executing.len() - 1)
            }
        }
    }

    fn release(&mut self, seats: u32, queue: Option<u32>) {
        self.totals.seats_in_use -= u64::from(seats);
        if let Some(index) = queue {
            if let Some(queue) = self.queues.get_mut(&index) {
                queue.seats_in_use -= u64::from(seats);
            }
            self.forget_if_empty(index);
        }
    }

    /// Puts a queue where it belongs in the order.
    fn reorder(&mut self, index: u32) {
        let Some(queue) = self.queues.get_mut(&index) else {
            return;
        };
        let key = queue.end_of_oldest().map(|end| (end, queue.served, index));
        let before = std::mem::replace(&mut queue.key, key);
        if before == key {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&before);
        }
        if let Some(key) = key {
            self.order.insert(key);
        }
    }

    fn forget_if_empty(&mut self, index: u32) {
        if let Some(queue) = self.queues.get(&index)
            && !queue.is_active()
            && queue.seats_in_use == 0
        {
            self.queues.remove(&index);
        }
    }

    fn note_demand(&mut self, now: Instant) {
        self.demand
            .set(self.totals.seats_in_use + self.totals.seats_waiting, now);
    }
}

/// The time that a queue's virtual time is corrected by when a request took as long as this.
fn correction(seats: u32, took: Duration) -> SeatTime {
    SeatTime::of(seats, took) - SeatTime::of(seats, SERVICE_TIME)
}

/// Spreads indices of queues and hashes of flows. They are results of hashing, and there are no more of them than queues and requests that
/// are being served, so that nobody gains by choosing them.
#[derive(Debug, Default)]
struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, index: u32) {
        self.write_u64(u64::from(index));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = (self.0.rotate_left(5) ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
