//! How wide requests are: lists by what they hold in memory, writes by who watches.

use std::time::Duration;

use machinery::GroupResource;

use super::work::{SeatTime, Width};
use crate::directory::Directory;
use crate::request::RequestInfo;
use crate::request_info::{query_pairs, query_value};

/// The widest list and the widest write. Upstream's figures.
const WIDEST_LIST: u32 = 100;
const WIDEST_WRITE: u32 = 10;
/// Bytes of objects that are a seat's. Upstream's figure.
const BYTES_PER_SEAT: u64 = 100_000;
/// A list from the cache is streamed, and holds no more than this. Upstream's figure.
const STREAMED_BYTES: u64 = 1_000_000;
/// Watches whose events are a seat's, and for how long they take it. Upstream's figures.
const WATCHES_PER_SEAT: u64 = 10;
const EVENT_TIME: Duration = Duration::from_millis(5);
/// Objects that are looked at for their size, at each end of a resource.
const SAMPLE: usize = 4;

/// What is known of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    objects: u64,
    average_bytes: u64,
}

/// The width of a list, or of a watch while it is set up. `widest` is the level's bound, zero for none.
pub(crate) fn list(info: &RequestInfo, query: &str, directory: Option<&Directory>, widest: u32) -> Width {
    let stored = directory.and_then(|directory| stored(directory, info));
    let seats = stored.map_or(1, |stored| list_seats(info, query, stored));
    Width::seats(seats.clamp(1, bounded(widest, WIDEST_LIST)))
}

/// The width of a write whose event so many watches are sent.
pub(crate) fn write(info: &RequestInfo, watches: u64, widest: u32) -> Width {
    let makes_no_event = info.resource == "serviceaccounts" && info.subresource == "token";
    if makes_no_event || watches < WATCHES_PER_SEAT {
        return Width::ONE;
    }
    let seats = u32::try_from(watches.div_ceil(WATCHES_PER_SEAT)).unwrap_or(u32::MAX);
    let final_seats = seats.min(bounded(widest, WIDEST_WRITE));
    Width {
        initial_seats: 1,
        final_seats,
        additional_latency: SeatTime::of(seats, EVENT_TIME).spread_over(final_seats),
    }
}

fn bounded(level: u32, most: u32) -> u32 {
    if level == 0 { most } else { level.min(most) }
}

/// The seats of a list or watch, before bounds.
fn list_seats(info: &RequestInfo, query: &str, stored: Stored) -> u32 {
    let value = |key| query_value(query, key).unwrap_or_default();
    let version = value("resourceVersion");
    if info.verb == "watch" {
        let initial = query_pairs(query).any(|(key, value)| key == "sendInitialEvents" && value == "true");
        if !initial && !matches!(&*version, "" | "0") {
            return 1;
        }
    }
    let limit: u64 = value("limit").parse().unwrap_or_default();
    let limited = match limit {
        0 => stored.objects,
        limit => limit.min(stored.objects),
    };
    let is_past = match &*value("resourceVersionMatch") {
        "" => !value("continue").is_empty() || limit > 0 && !matches!(&*version, "" | "0"),
        "NotOlderThan" => false,
        _ => true,
    };
    let from_cache = info.verb == "watch" || !is_past;
    let selects = !info.field_selector.is_empty() || !info.label_selector.is_empty();
    let objects = match () {
        () if !info.name.is_empty() => 1,
        () if !from_cache && selects => limited.max(stored.objects / 2),
        () => limited,
    };
    let bytes = objects.saturating_mul(stored.average_bytes);
    let held = if from_cache {
        bytes.min(STREAMED_BYTES)
    } else {
        bytes
    };
    u32::try_from(held.div_ceil(BYTES_PER_SEAT)).unwrap_or(u32::MAX)
}

/// The objects of a resource that this server has cached. `None` for others: those of other servers cost little here.
fn stored(directory: &Directory, info: &RequestInfo) -> Option<Stored> {
    let registered = directory.get(&GroupResource::new(&info.group, &info.resource))?;
    let snapshot = registered.store.as_system().started_cache()?.snapshot();
    let objects = &snapshot.objects;
    let ends = objects
        .values()
        .take(SAMPLE)
        .chain(objects.values().rev().take(SAMPLE));
    let (looked_at, bytes) = ends.fold((0, 0), |(count, bytes), entry| {
        (count + 1, bytes + entry.untyped().len())
    });
    Some(Stored {
        objects: u64::try_from(objects.len()).unwrap_or(u64::MAX),
        average_bytes: u64::try_from(bytes.checked_div(looked_at).unwrap_or_default()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_wide_as_their_bytes() {
        #[track_caller]
        fn check(path: &str, objects: u64, average_bytes: u64, expected: u32) {
            let uri: http::Uri = path.parse().expect("a path");
            let info = crate::request_info::resolve(&http::Method::GET, &uri).expect("a request");
            let stored = Stored {
                objects,
                average_bytes,
            };
            let seats = list_seats(&info, uri.query().unwrap_or_default(), stored);
            assert_eq!(seats, expected, "{path}");
        }
        let pods = "/api/v1/pods";
        check(pods, 0, 0, 0);
        check(pods, 10, 1_000, 1);
        check(pods, 500, 1_000, 5);
        // Streamed from the cache.
        check(pods, 1_000_000, 1_000, 10);
        check("/api/v1/pods?limit=200", 1_000_000, 1_000, 2);
        check("/api/v1/pods?resourceVersion=0", 500, 1_000, 5);
        check(
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan",
            500,
            1_000,
            5,
        );
        // States of the past.
        check(
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
            50_000,
            1_000,
            500,
        );
        check("/api/v1/pods?limit=50000&continue=x", 50_000, 1_000, 500);
        check("/api/v1/pods?limit=500&resourceVersion=7", 50_000, 1_000, 5);
        check(
            "/api/v1/pods?limit=500&resourceVersion=7&labelSelector=a",
            50_000,
            1_000,
            250,
        );
        // One object.
        check(
            "/api/v1/namespaces/n/pods?fieldSelector=metadata.name%3Da",
            50_000,
            1_000,
            1,
        );
        // Watches without an initial state.
        check("/api/v1/pods?watch=1&resourceVersion=5", 5_000, 1_000, 1);
        check("/api/v1/pods?watch=1&resourceVersion=0", 500, 1_000, 5);
        check("/api/v1/pods?watch=1", 500, 1_000, 5);
        check(
            "/api/v1/pods?watch=1&resourceVersion=5&sendInitialEvents=true",
            500,
            1_000,
            5,
        );
    }

    #[test]
    fn writes_are_as_wide_as_their_watches() {
        #[track_caller]
        fn check(path: &str, watches: u64, widest: u32, expected: (u32, u64)) {
            let uri: http::Uri = path.parse().expect("a path");
            let info = crate::request_info::resolve(&http::Method::PUT, &uri).expect("a request");
            let width = write(&info, watches, widest);
            let latency = Duration::from_millis(expected.1);
            assert_eq!(
                (width.initial_seats, width.final_seats),
                (1, expected.0),
                "{watches}"
            );
            assert_eq!(width.additional_latency, latency, "{watches}");
        }
        let pod = "/api/v1/namespaces/n/pods/p";
        check(pod, 0, 0, (0, 0));
        check(pod, 9, 0, (0, 0));
        check(pod, 10, 0, (1, 5));
        check(pod, 95, 0, (10, 5));
        // Past the widest it takes longer instead.
        check(pod, 1_000, 0, (10, 50));
        check(pod, 1_000, 4, (4, 125));
        check(pod, 1_000, 100, (10, 50));
        check("/api/v1/namespaces/n/serviceaccounts/a/token", 1_000, 0, (0, 0));
    }

    #[test]
    fn lists_have_a_widest() {
        assert_eq!(bounded(0, WIDEST_LIST), 100);
        assert_eq!(bounded(7, WIDEST_LIST), 7);
        assert_eq!(bounded(700, WIDEST_LIST), 100);
    }
}
