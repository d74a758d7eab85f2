use std::time::Duration;

use http_body_util::BodyExt;
use machinery::limits;
use serde_json::{Value, json};

use super::*;
use crate::handlers::fixture::{Fixture, fixture, request};
use crate::registry::ObjectStore;
use crate::request::{Body, InitialSeat};

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");

async fn watch(f: &Fixture, what: &str, query: &str, headers: &[(&str, &str)]) -> Result<Body, ApiError> {
    let (authorized, head) = request(what, &format!("watch=1&{query}"), headers);
    super::handle(
        &f.resource,
        &authorized,
        &head,
        crate::handlers::MIN_REQUEST_TIMEOUT,
    )
    .await
    .map(|r| r.into_body())
}

/// The next events, at least one; none when the stream has ended.
async fn next(body: &mut Body) -> Vec<Value> {
    let frame = tokio::time::timeout(Duration::from_secs(200), body.frame())
        .await
        .expect("in time");
    let Some(frame) = frame else { return Vec::new() };
    let data = frame.expect("no failure").into_data().expect("data");
    assert!(data.ends_with(b"\n"), "events are whole");
    data.split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect()
}

/// `TYPE name@version` of events, until `count` have come.
async fn events_of(body: &mut Body, count: usize) -> Vec<String> {
    let mut out = Vec::new();
    while out.len() < count {
        let events = next(body).await;
        assert!(!events.is_empty(), "the stream ended after {out:?}");
        for event in events {
            let object = &event["object"];
            let name = machinery::meta::name(object);
            let kind = event["type"].as_str().expect("a type");
            out.push(format!(
                "{kind} {name}@{}",
                machinery::meta::resource_version(object)
            ));
        }
    }
    out
}

#[tokio::test]
async fn from_a_version_on() {
    let f = fixture(false);
    let from = f.put("ns", "a", "x", "n1").await;
    let mut body = watch(&f, "ns", &format!("resourceVersion={from}"), &[])
        .await
        .expect("watches");
    let mut elsewhere = watch(&f, "nt", &format!("resourceVersion={from}"), &[])
        .await
        .expect("watches");
    let b = f.put("ns", "b", "x", "n1").await;
    let a = f.put("ns", "a", "y", "n1").await;
    f.remove("ns", "b").await;
    let c = f.put("nt", "c", "y", "n1").await;
    let gone = (c.parse::<u64>().expect("a number") - 1).to_string();
    assert_eq!(
        events_of(&mut body, 3).await,
        [
            format!("ADDED b@{b}"),
            format!("MODIFIED a@{a}"),
            format!("DELETED b@{gone}")
        ]
    );
    assert_eq!(events_of(&mut elsewhere, 1).await, [format!("ADDED c@{c}")]);
}

#[tokio::test]
async fn objects_that_enter_and_leave_a_selection() {
    let f = fixture(false);
    for (query, label, node) in [
        ("labelSelector=l%3Dyes", true, false),
        ("fieldSelector=spec.nodeName%3Dyes", false, true),
    ] {
        let from = f.put("ns", "a", "no", "no").await;
        let query = format!("resourceVersion={from}&{query}");
        let mut body = watch(&f, "ns", &query, &[]).await.expect("watches");
        let set = |v: bool| {
            let value = |on: bool| if on && v { "yes" } else { "no" };
            (value(label), value(node))
        };
        let (l, n) = set(true);
        let came = f.put("ns", "a", l, n).await;
        let (l, n) = set(false);
        let left = f.put("ns", "a", l, n).await;
        f.put("ns", "b", l, n).await;
        let (l, n) = set(true);
        let back = f.put("ns", "a", l, n).await;
        f.remove("ns", "a").await;
        let events = events_of(&mut body, 4).await;
        assert_eq!(
            events[..3],
            [
                format!("ADDED a@{came}"),
                format!("DELETED a@{left}"),
                format!("ADDED a@{back}")
            ]
        );
        assert!(events[3].starts_with("DELETED a@"));
        f.remove("ns", "b").await;
    }
}

#[tokio::test]
async fn existing_objects_come_first() {
    let f = fixture(false);
    f.put("ns", "b", "x", "n1").await;
    let a = f.put("ns", "a", "x", "n1").await;
    for query in [
        "",
        "resourceVersion=0",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ] {
        let mut body = watch(&f, "ns", query, &[]).await.expect("watches");
        let events = events_of(&mut body, 2).await;
        assert!(
            events[0].starts_with("ADDED a@") && events[1].starts_with("ADDED b@"),
            "{events:?}"
        );
    }
    let bookmarks = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut body = watch(&f, "ns", bookmarks, &[]).await.expect("watches");
    let events = next(&mut body).await;
    assert_eq!(
        events[2],
        json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {
            "resourceVersion": a, "annotations": {"k8s.io/initial-events-end": "true"}}}})
    );
    let c = f.put("ns", "c", "x", "n1").await;
    assert_eq!(events_of(&mut body, 1).await, [format!("ADDED c@{c}")]);
    let silent = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut body = watch(&f, "ns", silent, &[]).await.expect("watches");
    let d = f.put("ns", "d", "x", "n1").await;
    assert_eq!(events_of(&mut body, 1).await, [format!("ADDED d@{d}")]);
}

#[tokio::test]
async fn a_seat_is_held_until_the_initial_objects_are_sent() {
    let f = fixture(false);
    let version = f.put("ns", "a", "x", "n1").await;
    let held = async |query: &str| {
        let (authorized, mut head) = request("ns", &format!("watch=1&{query}"), &[]);
        let seat = Arc::new(());
        head.extensions.insert(InitialSeat::new(seat.clone()));
        let least = crate::handlers::MIN_REQUEST_TIMEOUT;
        let watch = super::handle(&f.resource, &authorized, &head, least).await;
        // The chain's own, when the request has been answered.
        head.extensions.clear();
        (watch.expect("watches").into_body(), seat)
    };
    let (mut body, seat) =
        held("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true").await;
    assert_eq!(Arc::strong_count(&seat), 2, "they are still to be sent");
    assert_eq!(next(&mut body).await.len(), 2, "the object and the bookmark");
    assert_eq!(Arc::strong_count(&seat), 1);
    let (body, seat) = held("sendInitialEvents=true&resourceVersionMatch=NotOlderThan").await;
    drop(body);
    assert_eq!(Arc::strong_count(&seat), 1, "the client has gone");
    let (_body, seat) = held(&format!("resourceVersion={version}")).await;
    assert_eq!(Arc::strong_count(&seat), 1, "there is nothing to begin with");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_the_end() {
    let f = fixture(false);
    let from = f.put("ns", "a", "x", "n1").await;
    let query = format!("resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds=100");
    let mut body = watch(&f, "ns", &query, &[]).await.expect("watches");
    let start = Instant::now();
    let elsewhere = f.put("nt", "z", "x", "n1").await;
    for after in [60, 98] {
        assert_eq!(events_of(&mut body, 1).await, [format!("BOOKMARK @{elsewhere}")]);
        assert_eq!(start.elapsed().as_secs(), after);
    }
    assert!(next(&mut body).await.is_empty(), "its time is over");
    assert_eq!(start.elapsed().as_secs(), 100);
}

#[tokio::test]
async fn it_ends_with_its_kind() {
    let f = fixture(false);
    f.put("ns", "a", "x", "n1").await;
    let mut body = watch(&f, "ns", "", &[]).await.expect("watches");
    assert_eq!(events_of(&mut body, 1).await.len(), 1);
    f.remove("ns", "a").await;
    f.store().as_system().cache().await.expect("a cache").end_feeds();
    assert_eq!(
        events_of(&mut body, 1).await.len(),
        1,
        "what happened before is events_of"
    );
    assert!(next(&mut body).await.is_empty());
    let mut late = watch(&f, "ns", "", &[]).await.expect("watches");
    assert!(next(&mut late).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_are_events() {
    use storage::{Revision, Store};
    let f = fixture(false);
    for index in 0..5 {
        f.put("ns", "a", "x", &format!("n{index}")).await;
    }
    f.engine.compact(Revision(4)).await.expect("compacts");
    let late = fixture(false);
    late.put("ns", "a", "x", "n1").await;
    let ahead = "resourceVersion=1000&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut body = watch(&late, "ns", ahead, &[]).await.expect("watches");
    let event = next(&mut body).await.remove(0);
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    // A cache that was started after the compaction does not know what came before.
    let restarted = ObjectStore::new(f.engine.clone(), f.store().config().clone());
    let options = ListOptions {
        version: "2".into(),
        ..ListOptions::default()
    };
    let selection = options.selection(&restarted, "ns");
    let error = begin(restarted.as_system(), &selection, &options)
        .await
        .err()
        .expect("too old");
    assert_eq!(error.code(), 410);
    assert!(
        error.message().starts_with("too old resource version: 2 ("),
        "{error}"
    );
    for (query, code) in [
        ("resourceVersion=abc", 500),
        ("labelSelector=%21", 400),
        ("resourceVersionMatch=Exact", 422),
    ] {
        assert_eq!(
            watch(&f, "ns", query, &[]).await.expect_err("refused").code(),
            code,
            "{query}"
        );
    }
    let yaml = [("accept", "application/yaml")];
    assert_eq!(watch(&f, "ns", "", &yaml).await.expect_err("refused").code(), 406);
}

#[tokio::test]
async fn tables_describe_their_columns_once() {
    let f = fixture(false);
    f.put("ns", "a", "x", "n1").await;
    let mut body = watch(&f, "ns", "includeObject=None", &[TABLE])
        .await
        .expect("watches");
    f.put("ns", "a", "y", "n1").await;
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(next(&mut body).await);
    }
    assert_eq!(events[0]["object"]["columnDefinitions"][0]["name"], "Name");
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(
        events[1]["object"]["rows"],
        json!([{"cells": ["a"], "object": null}])
    );
}

#[tokio::test]
async fn protobuf_frames_are_delimited() {
    let f = fixture(false);
    f.put("ns", "a", "x", "n1").await;
    let accept = [("accept", "application/vnd.kubernetes.protobuf")];
    let (authorized, head) = request("ns", "watch=1", &accept);
    let response = super::handle(
        &f.resource,
        &authorized,
        &head,
        crate::handlers::MIN_REQUEST_TIMEOUT,
    )
    .await
    .expect("watches");
    assert_eq!(
        response.headers()["content-type"],
        "application/vnd.kubernetes.protobuf;stream=watch"
    );
    let mut body = response.into_body();
    f.put("ns", "a", "y", "n1").await;
    for kind in ["ADDED", "MODIFIED"] {
        let frame = body
            .frame()
            .await
            .expect("a frame")
            .expect("no failure")
            .into_data()
            .expect("data");
        let length = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        assert_eq!(length as usize + 4, frame.len());
        let text = String::from_utf8_lossy(&frame);
        assert!(text.contains(kind) && text.contains("k8s\0"), "{text}");
    }
}

#[tokio::test]
async fn times_that_no_clock_reaches() {
    let f = fixture(false);
    let version = f.put("ns", "a", "x", "n1").await;
    for seconds in ["0", "1", "9223372036854775807", "-1", "-9223372036854775808"] {
        let query = format!("resourceVersion={version}&timeoutSeconds={seconds}");
        assert!(watch(&f, "ns", &query, &[]).await.is_ok(), "{seconds}");
    }
    let past = watch(&f, "ns", "timeoutSeconds=9223372036854775808", &[]).await;
    assert_eq!(past.err().map(|error| error.code()), Some(400));
    let (authorized, head) = request("ns", "watch=1", &[]);
    let endless = super::handle(&f.resource, &authorized, &head, Duration::MAX).await;
    assert!(endless.is_ok());
}

#[tokio::test]
async fn encoded_events_are_as_others() {
    let f = fixture(false);
    for n in 0..3 {
        f.put("ns", &format!("p{n}"), "x", &"x".repeat(limits::HEAVY_BYTES))
            .await;
    }
    let mut body = watch(&f, "ns", "", &[TABLE]).await.expect("watches");
    let mut added = 0;
    while added < 3 {
        let events = next(&mut body).await;
        assert!(events.iter().all(|event| event["type"] == "ADDED"), "{events:?}");
        added += events.len();
    }
    f.put("ns", "p1", "y", &"y".repeat(limits::HEAVY_BYTES)).await;
    assert_eq!(next(&mut body).await[0]["type"], "MODIFIED");
}

#[tokio::test]
async fn events_are_encoded_in_slices() {
    let f = fixture(false);
    let write = async |filler: &str| {
        for n in 0..9 {
            let filler = filler.repeat(limits::SLICE_BYTES / 4);
            f.put("ns", &format!("p{n}"), "x", &filler).await;
        }
    };
    write("x").await;
    let mut body = watch(&f, "ns", "", &[TABLE]).await.expect("watches");
    for kind in ["ADDED", "MODIFIED"] {
        for expected in [4, 4, 1] {
            let events = next(&mut body).await;
            assert!(events.iter().all(|event| event["type"] == kind), "{events:?}");
            assert_eq!(events.len(), expected, "{kind}");
        }
        write("y").await;
    }
}
