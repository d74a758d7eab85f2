//! `pods/log`.

use generic_server::streaming::websocket::Event;
use http_body_util::BodyExt;
use test_support::PATIENCE;
use tokio::time::timeout;

use super::rig::{NAMESPACE, Rig, pod};

#[tokio::test]
async fn logs_are_the_kubelets_with_its_options() {
    let rig = Rig::start().await;
    let log = |query: &str| format!("{NAMESPACE}/pods/p/log?{query}");
    let answer = rig
        .client
        .get(&log(
            "tailLines=5&previous=true&sinceTime=2024-01-02T03:04:05Z&timestamps=1",
        ))
        .await;
    assert_eq!(answer.headers["content-type"], "text/plain");
    assert_eq!(
        answer.body,
        "/containerLogs/default/p/c?previous=true&sinceTime=2024-01-02T03%3A04%3A05Z&tailLines=5&timestamps=true\n"
    );
    let refused = rig.client.get(&log("limitBytes=0")).await.expect(422);
    assert_eq!(
        refused["message"],
        "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0"
    );
    rig.client.get(&log("container=other")).await.expect(400);
    // A pod that runs nowhere has said nothing.
    rig.add(&pod("pending", "", &["c"])).await;
    let answer = rig.client.get(&format!("{NAMESPACE}/pods/pending/log")).await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
    rig.client
        .get(&format!("{NAMESPACE}/pods/nobody/log"))
        .await
        .expect(404);
    rig.plane.stop().await;
}

#[tokio::test]
async fn logs_are_messages_over_websocket() {
    let rig = Rig::start().await;
    let path = format!("{NAMESPACE}/pods/p/log");
    let (mut socket, protocol) = rig
        .websocket(&path, "other, binary.k8s.io")
        .await
        .expect("an upgrade");
    assert_eq!(protocol, "binary.k8s.io");
    let mut got = Vec::new();
    while let Some(Event::Data { bytes, .. }) = socket.reader.next().await.expect("an event") {
        got.extend_from_slice(&bytes);
    }
    assert_eq!(got, b"/containerLogs/default/p/c?\n");
    let refused = rig
        .websocket(&path, "other")
        .await
        .map(|_| ())
        .expect_err("a refusal");
    assert_eq!(refused.0, 403);
    drop(socket);
    rig.is_free().await;
    rig.plane.stop().await;
}

#[tokio::test]
async fn errors_of_kubelets_are_upstreams() {
    let rig = Rig::start().await;
    rig.add(&pod("q", "n1", &["refuses", "broken", "absent", "elsewhere"]))
        .await;
    let check = async |container: &str, code: u16, expected: &str| {
        let answer = rig
            .client
            .get(&format!("{NAMESPACE}/pods/q/log?container={container}"))
            .await;
        assert_eq!(answer.expect(code)["message"], expected, "{container}");
    };
    check(
        "refuses",
        400,
        "previous terminated container \"refuses\" in pod \"p\" not found",
    )
    .await;
    check("broken", 500, "Internal error occurred: the runtime is down").await;
    check(
        "absent",
        404,
        "the server could not find the requested resource ( pods/log q)",
    )
    .await;
    check(
        "elsewhere",
        500,
        "Get \"https://192.0.2.1/logs\": redirects forbidden",
    )
    .await;
    rig.is_free().await;
    rig.plane.stop().await;
}

#[tokio::test]
async fn a_log_is_followed_until_either_end_leaves() {
    let rig = Rig::start().await;
    rig.add(&pod("q", "n1", &["quiet", "loud"])).await;
    let follow = |container: &str| format!("{NAMESPACE}/pods/q/log?follow=true&container={container}");
    // A line comes although no other follows, and the client that leaves frees the kubelet, however quiet.
    let mut body = rig.client.open(&follow("quiet")).await.into_body();
    let first = timeout(PATIENCE, body.frame()).await.expect("a line in time");
    let first = first.expect("a frame").expect("a line");
    assert_eq!(first.data_ref().map(|data| &data[..]), Some(&b"line 0\n"[..]));
    assert_eq!(rig.kubelet.connections(), 1);
    drop(body);
    rig.is_free().await;
    // A client that does not read is not read for.
    let body = rig.client.open(&follow("loud")).await.into_body();
    drop(body);
    rig.is_free().await;
    // A kubelet that goes away ends the client's log.
    let Rig {
        plane,
        client,
        kubelet,
    } = rig;
    let mut body = client.open(&follow("quiet")).await.into_body();
    timeout(PATIENCE, body.frame()).await.expect("a line in time");
    drop(kubelet);
    let end = timeout(PATIENCE, body.frame()).await.expect("an end in time");
    assert!(end.is_none_or(|frame| frame.is_err()));
    plane.stop().await;
}
