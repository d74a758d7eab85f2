//! Levels under load, in virtual time: whole minutes of traffic, event by event.

use super::*;

/// Clients of one kind. Each has so many requests under way, and sends the next when one is answered.
#[derive(Debug, Clone)]
struct Flow {
    hash: u64,
    under_way: usize,
    width: Width,
    service: Duration,
    /// Between an answer and the next request.
    pause: Duration,
}

/// What a flow got.
#[derive(Debug, Clone, Default)]
struct Got {
    served: u64,
    refused: u64,
    /// Seconds multiplied by seats.
    seat_seconds: f64,
    waits: Vec<Duration>,
}

impl Got {
    /// The wait that one request in a hundred passes.
    fn p99(&mut self) -> Duration {
        self.waits.sort_unstable();
        let at = self.waits.len() * 99 / 100;
        self.waits.get(at).copied().unwrap_or_default()
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    /// Of a flow, at a place.
    Finish(usize, usize),
    Tick,
}

struct Simulation {
    set: QueueSet<usize, (usize, Instant)>,
    flows: Vec<Flow>,
    got: Vec<Got>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    scheduled: u64,
    begin: Instant,
    now: Instant,
    /// Before this, nothing is counted.
    warm: Instant,
}

impl Simulation {
    fn new(queuing: Queuing, limit: u64, flows: Vec<Flow>) -> Self {
        let begin = Instant::now();
        let mut simulation = Simulation {
            set: QueueSet::new(queuing, limit, begin).halve_users(),
            got: vec![Got::default(); flows.len()],
            flows,
            events: BinaryHeap::new(),
            scheduled: 0,
            begin,
            now: begin,
            warm: begin + Duration::from_secs(1),
        };
        for flow in 0..simulation.flows.len() {
            for _ in 0..simulation.flows[flow].under_way {
                simulation.schedule(begin, Event::Arrive(flow));
            }
        }
        simulation
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    /// Goes on to some time after the begin.
    fn run(&mut self, until: Duration) {
        let until = self.begin + until;
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= until
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = at;
            match event {
                Event::Arrive(flow) => self.arrive(flow),
                Event::Finish(flow, place) => self.finish(flow, place),
                Event::Tick => self.set.tick(at),
            }
            for ready in self.set.take_ready() {
                let (flow, arrived) = ready.waiter;
                self.serve(flow, arrived, ready.place);
            }
            if let Some(due) = self.set.next_tick() {
                self.schedule(due, Event::Tick);
            }
            let seats = self.set.totals().seats_in_use;
            assert!(seats <= self.set.limit, "{seats} seats");
        }
    }

    fn arrive(&mut self, flow: usize) {
        let (hash, width) = (self.flows[flow].hash, self.flows[flow].width);
        let now = self.now;
        let caller = Caller {
            flow: hash,
            user: hash,
        };
        match self.set.arrive(caller, width, flow, now, || (flow, now)) {
            Arrival::Runs(place) => self.serve(flow, now, place),
            Arrival::Waits { .. } => {}
            Arrival::Refused(_) => {
                self.got[flow].refused += 1;
                // As a client does after a 429 with a Retry-After of one second.
                self.schedule(now + Duration::from_secs(1), Event::Arrive(flow));
            }
        }
    }

    fn serve(&mut self, flow: usize, arrived: Instant, place: Place) {
        if self.now >= self.warm {
            self.got[flow].waits.push(self.now - arrived);
        }
        self.schedule(self.now + self.flows[flow].service, Event::Finish(flow, place.0));
    }

    fn finish(&mut self, flow: usize, place: usize) {
        let done = self
            .set
            .finish(Place(place), self.now)
            .expect("a request runs there");
        if self.now >= self.warm {
            let seconds = (self.now - done.started).as_secs_f64();
            self.got[flow].served += 1;
            self.got[flow].seat_seconds += seconds * f64::from(done.width.most_seats());
        }
        self.schedule(self.now + self.flows[flow].pause, Event::Arrive(flow));
    }
}

/// The hash of a flow by its number.
fn hash(flow: u64) -> u64 {
    (flow + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x1234_5678_9abc_def0
}

fn flow(number: u64, under_way: usize, millis: u64) -> Flow {
    Flow {
        hash: hash(number),
        under_way,
        width: Width::ONE,
        service: Duration::from_millis(millis),
        pause: Duration::ZERO,
    }
}

/// As upstream's `workload-low` and `global-default`.
const USUAL: Queuing = Queuing::Queue {
    queues: 128,
    hand_size: 6,
    length: 50,
};

/// Flows whose hands have no card in common, so that each has queues of its own.
fn disjoint(flows: usize) -> Vec<u64> {
    let Queuing::Queue {
        queues, hand_size, ..
    } = USUAL
    else {
        return Vec::new();
    };
    let mut taken = Vec::new();
    let mut found = Vec::new();
    for number in 0..100_000 {
        let hand = dealer::deal(hash(number), queues, hand_size);
        if found.len() < flows && hand.cards().iter().all(|card| !taken.contains(card)) {
            taken.extend_from_slice(hand.cards());
            found.push(number);
        }
    }
    found
}

/// Seats of the level that has the abusive flow.
const SEATS: u64 = 20;
/// Seconds that are counted.
const SECONDS: f64 = 15.0;

/// Runs one abusive flow (the first) and nine polite ones.
fn abused(abusive: Flow, polite: impl Iterator<Item = Flow>) -> Simulation {
    let flows = std::iter::once(abusive).chain(polite).collect();
    let mut simulation = Simulation::new(USUAL, SEATS, flows);
    simulation.run(Duration::from_secs(16));
    simulation
}

/// What the abusive flow does: a thousand requests at once, as long as those of others, much longer, or wide.
fn abuses(number: u64) -> [Flow; 3] {
    let wide = Flow {
        width: Width::seats(10),
        ..flow(number, 1_000, 20)
    };
    [flow(number, 1_000, 20), flow(number, 1_000, 1_000), wide]
}

#[test]
fn an_abusive_flow_leaves_nine_polite_ones_their_share() {
    // Seat-seconds of a tenth of the seats.
    let share = SECONDS * 20.0 / 10.0;
    let numbers = disjoint(10);
    for abusive in abuses(numbers[0]) {
        // The polite ones have enough requests to use all of their share.
        let polite = numbers[1..].iter().map(|number| flow(*number, 20, 20));
        let simulation = abused(abusive, polite);
        let used: f64 = simulation.got.iter().map(|got| got.seat_seconds).sum();
        assert!(used > 0.95 * SECONDS * 20.0, "seats are idle: {used}");
        for got in &simulation.got[1..] {
            assert!(got.seat_seconds >= 0.9 * share, "{} {share}", got.seat_seconds);
            assert_eq!(got.refused, 0);
        }
    }
    // Hands that overlap, as they come: some queues are shared.
    for abusive in abuses(0) {
        let polite = (1..10).map(|number| flow(number, 20, 20));
        for got in &abused(abusive, polite).got[1..] {
            assert!(got.seat_seconds >= 0.75 * share, "{} {share}", got.seat_seconds);
            assert_eq!(got.refused, 0);
        }
    }
}

#[test]
fn flows_that_ask_for_less_than_their_share_have_what_they_ask_for() {
    // Three requests of 20 ms under way, with pauses between: one seat of the two that are each flow's share.
    let polite = |number| Flow {
        pause: Duration::from_millis(40),
        ..flow(number, 3, 20)
    };
    let alone = SECONDS;
    // Long requests are not among these abuses: one that is under way is not interrupted, so that others wait for its end.
    let [many, _, wide] = abuses(0);
    for abusive in [many, wide] {
        for got in &mut abused(abusive, (1..10).map(polite)).got[1..] {
            assert!(got.seat_seconds >= 0.9 * alone, "{}", got.seat_seconds);
            assert_eq!(got.refused, 0);
        }
    }
}

#[test]
fn a_light_flow_hardly_waits_for_a_flood() {
    let mut flows = vec![flow(0, 1_000, 10)];
    flows.extend((1..10).map(|number| Flow {
        pause: Duration::from_millis(50),
        ..flow(number, 1, 10)
    }));
    let mut simulation = Simulation::new(USUAL, 10, flows);
    simulation.run(Duration::from_secs(11));
    assert!(simulation.got[0].refused > 0, "the flood is cut");
    for got in &mut simulation.got[1..] {
        assert_eq!(got.refused, 0);
        // A request under way is not interrupted, and others are light, too.
        assert!(got.p99() <= Duration::from_millis(20), "{:?}", got.p99());
        // Alone it would have one each 60 ms.
        assert!(got.served >= 130, "{}", got.served);
    }
}

#[test]
fn wide_requests_are_not_starved_by_narrow_ones() {
    let mut flows: Vec<Flow> = (1..10).map(|number| flow(number, 20, 10)).collect();
    flows.push(Flow {
        width: Width::seats(10),
        ..flow(0, 1, 10)
    });
    let mut simulation = Simulation::new(USUAL, 10, flows);
    simulation.run(Duration::from_secs(16));
    let got = &mut simulation.got[9];
    assert!(got.served > 25, "{}", got.served);
    assert!(got.p99() < Duration::from_secs(2), "{:?}", got.p99());
}

#[test]
fn what_writes_cause_is_paid_for() {
    let writes = |number, final_seats| Flow {
        width: Width {
            initial_seats: 1,
            final_seats,
            additional_latency: Duration::from_millis(if final_seats > 0 { 30 } else { 0 }),
        },
        ..flow(number, 20, 10)
    };
    let mut simulation = Simulation::new(USUAL, 10, vec![writes(1, 0), writes(2, 5)]);
    simulation.run(Duration::from_secs(16));
    let (plain, watched) = (simulation.got[0].served, simulation.got[1].served);
    // One takes 0.01 seat-seconds, the other up to 0.16.
    assert!(plain > 8 * watched, "{plain} {watched}");
    assert!(watched > 15, "{watched}");
}

#[test]
fn any_number_of_flows_is_served() {
    // More flows than queues: each has its hand, and none is forgotten.
    let flows: Vec<Flow> = (0..3_000).map(|number| flow(number, 1, 2)).collect();
    let mut simulation = Simulation::new(USUAL, 50, flows);
    simulation.run(Duration::from_secs(4));
    let least = simulation.got.iter().map(|got| got.served).min();
    assert!(least.is_some_and(|least| least > 3), "{least:?}");
    assert!(simulation.set.queues.len() <= 128);
    let waiting: usize = simulation
        .set
        .queues
        .values()
        .map(|queue| queue.waiting.len())
        .sum();
    assert_eq!(waiting, simulation.set.totals().waiting);
}

#[test]
fn idle_time_is_not_saved_up() {
    // One flow was idle for long; it does not keep the other waiting when it comes back.
    let both = vec![flow(1, 30, 10), flow(2, 0, 10)];
    let mut simulation = Simulation::new(USUAL, 10, both);
    simulation.run(Duration::from_secs(60));
    simulation.warm = simulation.now;
    simulation.got = vec![Got::default(); 2];
    for _ in 0..30 {
        simulation.schedule(simulation.now, Event::Arrive(1));
    }
    simulation.run(Duration::from_secs(70));
    let (busy, back) = (simulation.got[0].seat_seconds, simulation.got[1].seat_seconds);
    assert!(busy > 0.9 * back && back > 0.9 * busy, "{busy} {back}");
}

#[test]
fn requests_that_never_end_leave_half_of_the_seats() {
    let endless = flow(0, 1_000, 1_000_000);
    let polite = (1..5).map(|number| flow(number, 2, 20));
    let mut simulation = Simulation::new(USUAL, 20, std::iter::once(endless).chain(polite).collect());
    simulation.run(Duration::from_secs(10));
    for got in &mut simulation.got[1..] {
        assert_eq!(got.refused, 0);
        assert!(got.p99() <= Duration::from_millis(20), "{:?}", got.p99());
        assert!(got.served > 800, "{}", got.served);
    }
}
