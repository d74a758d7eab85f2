//! Watches over WebSocket.

use generic_server::streaming::websocket::{End, Event, Reader, Writer};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use test_support::{Client, PATIENCE, eventually, plane};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ORIGIN: (&str, &str) = ("origin", "https://console.example");

type Socket = (
    Reader<ReadHalf<TokioIo<Upgraded>>>,
    Writer<WriteHalf<TokioIo<Upgraded>>>,
);

/// A WebSocket to a path, or the status of the refusal.
async fn open(client: &Client, path: &str, more: &[(&str, &str)]) -> Result<Socket, u16> {
    let mut headers = vec![
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    headers.extend(more);
    let upgraded = client.upgrade("GET", path, &headers).await;
    let upgraded = upgraded.map_err(|answer| answer.status)?;
    let (from, to) = tokio::io::split(upgraded.io);
    Ok((Reader::new(from, End::Server), Writer::new(to, End::Client)))
}

/// The next message, and whether it is binary; `None` when the server says that it is done.
async fn message(socket: &mut Socket) -> Option<(Vec<u8>, bool)> {
    let mut message = Vec::new();
    loop {
        let event = timeout(PATIENCE, socket.0.next())
            .await
            .expect("an event in time");
        match event.expect("an event") {
            Some(Event::Data {
                bytes, binary, last, ..
            }) => {
                message.extend_from_slice(&bytes);
                if last {
                    return Some((message, binary));
                }
            }
            Some(Event::Ping(_) | Event::Pong) => {}
            Some(Event::Close(status)) => {
                assert_eq!(status, Some(1000));
                return None;
            }
            None => panic!("the end is not said"),
        }
    }
}

async fn event(socket: &mut Socket) -> Option<(String, String)> {
    let (text, binary) = message(socket).await?;
    assert!(!binary, "JSON is text");
    let event: Value = serde_json::from_slice(&text).expect("one event");
    let field = |pointer: &str| {
        let value = event.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_string()
    };
    Some((field("/type"), field("/object/metadata/name")))
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"own": ""}}, "data": {"k": "two\nlines"}})
}

#[tokio::test]
async fn each_event_of_a_watch_is_a_message() {
    let (plane, client) = plane().await;
    for name in ["a", "b"] {
        client.post(MAPS, &map(name)).await.expect(201);
    }
    // Both are there already: as a body they would come in one piece.
    let path = format!("{MAPS}?watch=1&labelSelector=own&resourceVersion=1&timeoutSeconds=600");
    let mut socket = open(&client, &path, &[ORIGIN]).await.expect("an upgrade");
    let added = |name: &str| Some(("ADDED".to_string(), name.to_string()));
    assert_eq!(event(&mut socket).await, added("a"));
    assert_eq!(event(&mut socket).await, added("b"));
    client.post(MAPS, &map("c")).await.expect(201);
    assert_eq!(event(&mut socket).await, added("c"));

    let protobuf = [
        ORIGIN,
        ("accept", "application/vnd.kubernetes.protobuf;stream=watch"),
    ];
    let mut encoded = open(&client, &path, &protobuf).await.expect("an upgrade");
    for _ in ["a", "b", "c"] {
        let (bytes, binary) = message(&mut encoded).await.expect("an event");
        assert!(binary && bytes.starts_with(b"\n\x05ADDED"), "{bytes:?}");
    }

    let ending = format!("{MAPS}?watch=1&labelSelector=own&resourceVersion=1&timeoutSeconds=1");
    let mut ending = open(&client, &ending, &[ORIGIN]).await.expect("an upgrade");
    for name in ["a", "b", "c"] {
        assert_eq!(event(&mut ending).await, added(name));
    }
    assert_eq!(event(&mut ending).await, None);

    let counted = async || {
        let metrics = client.get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let lines = text.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{") && line.contains("configmaps")
        });
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        counts.sum::<u64>()
    };
    eventually("the watches that are open are counted", || async {
        (counted().await == 2).then_some(())
    })
    .await;
    drop((socket, encoded));
    eventually("no watch is counted", || async {
        (counted().await == 0).then_some(())
    })
    .await;
    plane.stop().await;
}

#[tokio::test]
async fn watches_over_websocket_are_refused_as_upstream_does() {
    let (plane, client) = plane().await;
    let check = async |path: &str, more: &[(&str, &str)], expected: u16| {
        let refused = open(&client, path, more).await.map(|_| ());
        assert_eq!(refused, Err(expected), "{path} {more:?}");
    };
    let watch = format!("{MAPS}?watch=1");
    check(&watch, &[], 403).await;
    check(&watch, &[ORIGIN, ("sec-websocket-protocol", "a, b")], 400).await;
    check(&format!("{watch}&labelSelector=%21%21"), &[ORIGIN], 400).await;
    check(&format!("{watch}&resourceVersion=x"), &[ORIGIN], 500).await;
    check("/api/v1/namespaces/default/absent?watch=1", &[ORIGIN], 404).await;
    // A list is none.
    check(MAPS, &[ORIGIN], 200).await;
    plane.stop().await;
}

#[tokio::test]
async fn a_stop_ends_watches_over_websocket() {
    let (plane, client) = plane().await;
    let path = format!("{MAPS}?watch=1&labelSelector=own");
    let mut socket = open(&client, &path, &[ORIGIN]).await.expect("an upgrade");
    let stopping = tokio::spawn(plane.stop());
    assert_eq!(event(&mut socket).await, None);
    drop(socket);
    stopping.await.expect("a task");
}
