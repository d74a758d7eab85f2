//! Which connection makes room.

use machinery::limits;

use super::*;

fn registry(connections: usize, handshakes: usize) -> Arc<Registry> {
    let limits = ConnectionLimits {
        connections,
        handshakes,
        ..ConnectionLimits::default()
    };
    Registry::new(limits, Arc::default())
}

fn admit(registry: &Arc<Registry>) -> Option<Place> {
    registry.admit(CancellationToken::new())
}

/// A connection whose one request has been answered.
fn idle(registry: &Arc<Registry>) -> Place {
    let place = admit(registry).expect("a place");
    drop(place.requests().begin());
    place
}

fn is_closed(place: &Place) -> bool {
    place.activity.closing.is_cancelled()
}

async fn later() {
    tokio::time::advance(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn the_one_that_is_idle_longest_makes_room() {
    let registry = registry(3, 10);
    let first = idle(&registry);
    later().await;
    let second = idle(&registry);
    later().await;
    let third = idle(&registry);
    later().await;
    // The first is used again, and the second has a request under way.
    drop(first.requests().begin());
    let running = second.requests().begin();
    let fourth = admit(&registry).expect("room");
    let closed = [&first, &second, &third, &fourth].map(is_closed);
    assert_eq!(closed, [false, false, true, false]);

    // Then the first, whose last use is older than the fourth.
    let _request = fourth.requests().begin();
    let fifth = admit(&registry).expect("room");
    let closed = [&first, &second, &fifth].map(is_closed);
    assert_eq!(closed, [true, false, false]);

    // The fifth has never had a request; then all that are left are busy.
    let sixth = admit(&registry).expect("room");
    assert!(is_closed(&fifth));
    let _another = sixth.requests().begin();
    assert!(admit(&registry).is_none(), "all are busy");
    assert_eq!(registry.metrics.refused.load(Ordering::Relaxed), 1);
    drop(running);
    assert!(admit(&registry).is_some(), "the second is idle now");
    assert!(is_closed(&second));
}

#[tokio::test(start_paused = true)]
async fn the_handshake_that_takes_longest_makes_room() {
    let registry = registry(100, 2);
    let first = admit(&registry).expect("room");
    let second = admit(&registry).expect("room");
    assert!(!is_closed(&first), "as many as may wait");
    let third = admit(&registry).expect("room");
    assert_eq!([&first, &second, &third].map(is_closed), [true, false, false]);
    // One that had a request waits no more.
    drop(second.requests().begin());
    let _fourth = admit(&registry).expect("room");
    assert_eq!([&second, &third].map(is_closed), [false, false]);
}

#[tokio::test(start_paused = true)]
async fn the_default_bounds() {
    let registry = Registry::new(ConnectionLimits::default(), Arc::default());
    let mut places: Vec<Place> = (0..limits::HANDSHAKES)
        .map(|_| admit(&registry).expect("room"))
        .collect();
    assert!(!places.iter().any(is_closed), "as many as may wait");
    places.push(admit(&registry).expect("room"));
    assert!(is_closed(&places[0]));
    drop(places);

    let places: Vec<Place> = (0..limits::CONNECTIONS).map(|_| idle(&registry)).collect();
    assert!(!places.iter().any(is_closed), "as many as there may be");
    let _one_more = admit(&registry).expect("room");
    assert!(is_closed(&places[0]));
    assert!(!places[1..].iter().any(is_closed));
}

#[tokio::test(start_paused = true)]
async fn silent_connections_leave_half_of_the_places() {
    let registry = registry(10, 1000);
    let busy = idle(&registry);
    let _silent: Vec<_> = (0..50).map(|_| admit(&registry)).collect();
    assert!(!is_closed(&busy));
    assert_eq!(registry.counts(), (6, 5, 1));
}

#[tokio::test(start_paused = true)]
async fn places_come_back() {
    let registry = registry(4, 2);
    let upgraded = idle(&registry);
    upgraded.requests().detach();
    assert_eq!(registry.counts(), (1, 0, 0), "counted, and not to be closed");
    for _ in 0..20 {
        let _waiting = admit(&registry);
        let _idle = idle(&registry);
    }
    assert_eq!(registry.counts(), (1, 0, 0));
    drop(upgraded);
    assert_eq!(registry.counts(), (0, 0, 0));
    assert_eq!(registry.metrics.open.load(Ordering::Relaxed), 0);
}

/// Looking for room passes each busy connection once: it is recorded again behind all that are idle now.
#[tokio::test(start_paused = true)]
async fn busy_connections_are_passed_once() {
    let registry = registry(1001, 10);
    let mut places: Vec<Place> = (0..1000).map(|_| idle(&registry)).collect();
    let running: Vec<Running> = places.iter().map(|place| place.requests().begin()).collect();
    later().await;
    places.push(idle(&registry));
    later().await;
    // The idle one is behind 1,000 others: found after as many looks, however many ask.
    let mut refused = 0;
    while admit(&registry).is_none() {
        refused += 1;
    }
    assert_eq!(refused, 1000 / LOOKED_AT);
    assert!(is_closed(&places[1000]));
    drop(running);
}
