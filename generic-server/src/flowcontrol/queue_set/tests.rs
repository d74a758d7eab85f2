//! The rules of one level, one by one.

use super::*;

type Set = QueueSet<&'static str, &'static str>;

fn queuing(queues: u32, hand_size: usize, length: usize) -> Queuing {
    Queuing::Queue {
        queues,
        hand_size,
        length,
    }
}

/// A level and its time.
struct Bench {
    set: Set,
    now: Instant,
}

impl Bench {
    fn new(queuing: Queuing, limit: u64) -> Self {
        let now = Instant::now();
        Bench {
            set: QueueSet::new(queuing, limit, now),
            now,
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn arrive(&mut self, name: &'static str, hash: u64, width: Width) -> Arrival {
        let caller = Caller {
            flow: hash,
            user: hash,
        };
        self.set.arrive(caller, width, name, self.now, || name)
    }

    #[track_caller]
    fn run(&mut self, name: &'static str, hash: u64) -> Place {
        match self.arrive(name, hash, Width::ONE) {
            Arrival::Runs(place) => place,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[track_caller]
    fn wait(&mut self, name: &'static str, hash: u64, width: Width) -> Ticket {
        match self.arrive(name, hash, width) {
            Arrival::Waits { ticket, .. } => ticket,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Of a user whose flow is another's, too.
    #[track_caller]
    fn wait_as(&mut self, name: &'static str, flow: u64, user: u64) {
        let caller = Caller { flow, user };
        let arrival = self.set.arrive(caller, Width::ONE, name, self.now, || name);
        assert!(matches!(arrival, Arrival::Waits { .. }), "{name}: {arrival:?}");
    }

    fn finish(&mut self, place: Place) {
        assert!(self.set.finish(place, self.now).is_some());
    }

    /// Those that were served meanwhile, and their places.
    #[track_caller]
    fn served(&mut self, expected: &[&str]) -> Vec<Place> {
        let ready = self.set.take_ready().into_iter();
        let (names, places): (Vec<&str>, Vec<Place>) = ready.map(|one| (one.waiter, one.place)).unzip();
        assert_eq!(names, expected);
        places
    }

    /// Nothing is left, and nothing was lost.
    #[track_caller]
    fn ends_empty(&mut self) {
        self.pass(60_000);
        self.set.tick(self.now);
        let totals = self.set.totals();
        assert!(self.set.is_idle());
        assert_eq!((totals.seats_in_use, totals.seats_waiting), (0, 0));
        assert_eq!(self.set.active, 0);
        assert!(self.set.queues.is_empty() && self.set.order.is_empty() && self.set.lingering.is_empty());
        assert_eq!(self.set.free.len(), self.set.executing.len());
    }
}

#[test]
fn exempt_levels_have_no_limit() {
    let mut bench = Bench::new(Queuing::Exempt, 0);
    let places: Vec<Place> = (0..100).map(|hash| bench.run("a", hash)).collect();
    assert_eq!(bench.set.totals().seats_in_use, 100);
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
}

#[test]
fn levels_without_queues_refuse() {
    let mut bench = Bench::new(Queuing::Reject, 2);
    let first = bench.run("a", 1);
    let second = bench.run("b", 1);
    let refused = Arrival::Refused(Refused::ConcurrencyLimit);
    assert_eq!(bench.arrive("c", 1, Width::ONE), refused);
    bench.finish(first);
    // Two seats, one of them free.
    assert_eq!(bench.arrive("c", 1, Width::seats(2)), refused);
    let third = bench.run("d", 1);
    bench.finish(second);
    bench.finish(third);
    // Wider than the level: alone.
    let Arrival::Runs(wide) = bench.arrive("e", 1, Width::seats(3)) else {
        panic!("it is served alone")
    };
    assert_eq!(bench.arrive("f", 1, Width::ONE), refused);
    bench.finish(wide);
    bench.ends_empty();
    assert_eq!(bench.set.totals().rejected, 3);
    assert_eq!(bench.set.totals().dispatched, 4);
}

#[test]
fn queues_have_a_length() {
    let mut bench = Bench::new(queuing(1, 1, 2), 1);
    let place = bench.run("a", 1);
    bench.wait("b", 1, Width::ONE);
    bench.wait("c", 1, Width::ONE);
    let refused = bench.arrive("d", 1, Width::ONE);
    assert_eq!(refused, Arrival::Refused(Refused::QueueFull));
    bench.finish(place);
    let mut places = bench.served(&["b"]);
    bench.finish(places.remove(0));
    let mut places = bench.served(&["c"]);
    bench.finish(places.remove(0));
    bench.ends_empty();
}

#[test]
fn those_that_leave_make_room() {
    let mut bench = Bench::new(queuing(1, 1, 10), 2);
    let first = bench.run("a", 1);
    let second = bench.run("b", 1);
    let wide = bench.wait("wide", 1, Width::seats(2));
    let narrow = bench.wait("narrow", 1, Width::ONE);
    bench.finish(first);
    // The next in the queue needs two seats, and is not passed.
    bench.served(&[]);
    assert!(bench.set.totals().no_accommodation > 0);
    assert_eq!(bench.set.take_short(), Some(&"wide"));
    assert_eq!(bench.set.take_short(), None);
    assert!(bench.set.leave(wide, bench.now).is_some());
    let mut places = bench.served(&["narrow"]);
    assert!(bench.set.leave(narrow, bench.now).is_none(), "it has a seat");
    bench.finish(places.remove(0));
    bench.finish(second);
    assert_eq!(bench.set.totals().cancelled, 1);
    bench.ends_empty();
}

#[test]
fn a_request_that_is_wider_than_the_level_is_served_alone() {
    let mut bench = Bench::new(queuing(4, 1, 10), 2);
    let first = bench.run("a", 1);
    bench.wait("wide", 1, Width::seats(10));
    bench.finish(first);
    let mut wide = bench.served(&["wide"]);
    bench.wait("b", 2, Width::ONE);
    bench.served(&[]);
    bench.finish(wide.remove(0));
    let mut places = bench.served(&["b"]);
    bench.finish(places.remove(0));
    bench.ends_empty();
}

#[test]
fn seats_linger() {
    let width = Width {
        initial_seats: 1,
        final_seats: 2,
        additional_latency: Duration::from_millis(5),
    };
    let mut bench = Bench::new(queuing(4, 1, 10), 2);
    let Arrival::Runs(place) = bench.arrive("a", 1, width) else {
        panic!("there are two seats")
    };
    assert_eq!(bench.set.next_tick(), None);
    bench.finish(place);
    // Nobody waits, so that nothing has to happen.
    assert_eq!(bench.set.next_tick(), None);
    assert_eq!(bench.set.totals().seats_in_use, 2);
    bench.wait("b", 2, Width::ONE);
    let due = bench.now + Duration::from_millis(5);
    assert_eq!(bench.set.next_tick(), Some(due));
    bench.pass(4);
    bench.set.tick(bench.now);
    bench.served(&[]);
    bench.pass(1);
    bench.set.tick(bench.now);
    let mut places = bench.served(&["b"]);
    bench.finish(places.remove(0));
    bench.ends_empty();
}

#[test]
fn a_new_configuration_is_in_force_at_once() {
    let mut bench = Bench::new(queuing(4, 1, 10), 1);
    let place = bench.run("a", 1);
    bench.wait("b", 1, Width::ONE);
    bench.wait("c", 2, Width::ONE);
    bench.set.configure(queuing(1, 1, 10), 2, bench.now);
    // The queue of the one that is served already has its turn later.
    let mut places = bench.served(&["c"]);
    // Without queues those that wait already stay.
    bench.set.configure(Queuing::Reject, 2, bench.now);
    let refused = bench.arrive("d", 1, Width::ONE);
    assert_eq!(refused, Arrival::Refused(Refused::ConcurrencyLimit));
    bench.finish(place);
    places.extend(bench.served(&["b"]));
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
}

#[test]
fn queues_take_turns() {
    let mut bench = Bench::new(queuing(3, 1, 10), 1);
    let place = bench.run("first", 0);
    for (hash, name) in [(0, "a1"), (0, "a2"), (0, "a3"), (1, "b1"), (2, "c1"), (1, "b2")] {
        bench.wait(name, hash, Width::ONE);
    }
    let mut place = Some(place);
    for expected in ["b1", "c1", "a1", "b2", "a2", "a3"] {
        bench.pass(3);
        bench.finish(place.take().expect("a place"));
        place = bench.served(&[expected]).pop();
    }
    bench.finish(place.expect("a place"));
    bench.ends_empty();
}

#[test]
fn only_queues_with_requests_take_memory() {
    let mut bench = Bench::new(queuing(10_000_000, 8, 10), 2);
    let places: Vec<Place> = (0..2).map(|hash| bench.run("a", hash)).collect();
    let tickets: Vec<Ticket> = (0..1_000_u64)
        .map(|flow| bench.wait("b", flow.wrapping_mul(0x9e37_79b9_7f4a_7c15), Width::ONE))
        .collect();
    assert!(bench.set.queues.len() <= 1_002);
    for ticket in tickets {
        assert!(bench.set.leave(ticket, bench.now).is_some());
    }
    assert_eq!(bench.set.queues.len(), 2);
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
}

#[test]
fn a_user_has_half_of_the_seats_where_it_is_bounded() {
    let mut bench = Bench::new(queuing(64, 1, 4), 4);
    bench.set = QueueSet::new(queuing(64, 1, 4), 4, bench.now).halve_users();
    let mut places = vec![bench.run("a1", 1), bench.run("a2", 1)];
    let waiting = bench.wait("a3", 1, Width::ONE);
    bench.wait("a4", 1, Width::ONE);
    // Two seats are free, and half of the queue is left to others.
    let refused = bench.arrive("a5", 1, Width::ONE);
    assert_eq!(refused, Arrival::Refused(Refused::QueueFull));
    // Others are served meanwhile, at once.
    for name in ["b1", "b2"] {
        assert!(matches!(bench.arrive(name, 2, Width::ONE), Arrival::Waits { .. }));
        places.extend(bench.served(&[name]));
    }
    bench.wait("b3", 2, Width::ONE);
    bench.served(&[]);
    // The oldest of the queue that is held leaves it: the next is held as well.
    assert!(bench.set.leave(waiting, bench.now).is_some());
    bench.served(&[]);
    bench.finish(places.remove(0));
    places.extend(bench.served(&["a4"]));
    // More seats are more for each.
    bench.wait("a6", 1, Width::ONE);
    bench.set.configure(queuing(64, 1, 4), 6, bench.now);
    let (names, more): (Vec<_>, Vec<_>) = bench
        .set
        .take_ready()
        .into_iter()
        .map(|one| (one.waiter, one.place))
        .unzip();
    assert_eq!(names.len(), 2, "{names:?}");
    places.extend(more);
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
    let users = bench.set.users.as_ref().expect("they are bounded");
    assert!(users.seats.is_empty() && users.held.is_empty());
}

/// Users who share a queue, or a flow: one who has all the seats that he may have holds up nobody.
#[test]
fn those_who_may_have_no_more_are_passed_over() {
    let mut bench = Bench::new(queuing(1, 1, 50), 8);
    bench.set = QueueSet::new(queuing(1, 1, 50), 8, bench.now).halve_users();
    let mut places: Vec<Place> = ["a1", "a2", "a3", "a4"]
        .into_iter()
        .map(|name| bench.run(name, 1))
        .collect();
    for name in ["a5", "a6", "a7"] {
        bench.wait(name, 1, Width::ONE);
    }
    for name in ["b1", "b2", "b3", "b4"] {
        bench.wait_as(name, 1, 2);
        places.extend(bench.served(&[name]));
    }
    // Those who wait already are passed over, too, when seats become free for others.
    bench.wait_as("c1", 1, 3);
    bench.served(&[]);
    bench.finish(places.pop().expect("of b"));
    places.extend(bench.served(&["c1"]));
    for name in ["a5", "a6", "a7"] {
        bench.finish(places.remove(0));
        places.extend(bench.served(&[name]));
    }
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
}

#[test]
fn one_wide_request_of_a_user_is_served() {
    let mut bench = Bench::new(queuing(64, 1, 2), 4);
    bench.set = QueueSet::new(queuing(64, 1, 2), 4, bench.now).halve_users();
    let Arrival::Runs(wide) = bench.arrive("a", 1, Width::seats(4)) else {
        panic!("there are four seats")
    };
    bench.wait("b", 2, Width::ONE);
    bench.finish(wide);
    let places = bench.served(&["b"]);
    places.into_iter().for_each(|place| bench.finish(place));
    bench.ends_empty();
}
