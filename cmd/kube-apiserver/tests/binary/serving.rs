//! The edge of a served control plane: layers of a product around the chain, and flags about connections that end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use control_plane::ControlPlane;
use generic_server::client::trust::{TrustedPeers, settings};
use generic_server::client::{TlsIo, connect};
use generic_server::request::empty;
use generic_server::{Request, Response};
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioExecutor;
use rustls_pki_types::ServerName;
use serde_json::json;
use test_support::{Client, PATIENCE, eventually, plane_with};
use tokio_rustls::TlsConnector;
use tower::ServiceExt;
use tower::util::{MapRequestLayer, MapResponseLayer};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A connection without a client certificate, with this protocol.
async fn connection(plane: &ControlPlane, protocol: &str) -> TlsIo {
    let settings = settings(TrustedPeers::Anyone).expect("settings");
    let mut tls = settings.with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let authority = plane.address().to_string();
    connect(
        &TlsConnector::from(Arc::new(tls)),
        &name,
        &authority,
        |_| true,
        PATIENCE,
    )
    .await
    .expect("a connection")
}

/// Appends to the header that the layers of this test write.
fn mark(name: &'static str) -> impl FnMut(Response) -> Response + Clone {
    move |mut response| {
        let mark = HeaderValue::from_static(name);
        response.headers_mut().append("x-layer", mark);
        response
    }
}

#[tokio::test]
async fn a_product_puts_layers_around_the_chain() {
    let rename = MapRequestLayer::new(|mut request: Request| {
        if request.uri().path() == "/old" {
            *request.uri_mut() = "/version".parse().expect("a path");
        }
        request
    });
    let (plane, client) = plane_with(|builder| {
        builder
            .layer(MapResponseLayer::new(mark("outer")))
            .layer(MapResponseLayer::new(mark("inner")))
            .layer(rename)
    })
    .await;
    let marks = |headers: &http::HeaderMap| -> Vec<String> {
        let all = headers.get_all("x-layer").iter();
        all.map(|mark| mark.to_str().expect("text").to_string()).collect()
    };
    // Answers pass the innermost layer first; refusals pass all of them too.
    let answer = client.get("/old").await;
    assert_eq!(marks(&answer.headers), ["inner", "outer"]);
    assert_eq!(answer.expect(200)["major"], "1");
    let nobody = client.anonymous(plane.ca_certificate());
    let refused = nobody.get("/api/v1/namespaces").await;
    assert_eq!((refused.status, marks(&refused.headers).len()), (403, 2));

    let request = || http::Request::get("/version").body(empty()).expect("a request");
    let served = plane.service().oneshot(request()).await;
    let served = served.unwrap_or_else(|never| match never {});
    assert_eq!(marks(served.headers()), ["inner", "outer"]);
    let bare = plane.chain().serve(request()).await;
    assert_eq!(marks(bare.headers()), [""; 0]);
    plane.stop().await;
}

#[tokio::test]
async fn connections_are_asked_to_go_now_and_then() {
    let (plane, _, token) = with_token(|options| options.goaway_chance = 0.02).await;
    let io = connection(&plane, "h2").await;
    let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let mut requests = 0;
    // By chance none of ten thousand requests ends it once in 10^87 runs.
    while !connection.is_finished() && requests < 10_000 {
        let request = http::Request::get("https://localhost/version").header("authorization", &token);
        let request = request.body(Empty::<Bytes>::new()).expect("a request");
        if send.ready().await.is_err() {
            break;
        }
        let Ok(answer) = send.send_request(request).await else {
            break;
        };
        assert_eq!(answer.status(), StatusCode::OK);
        answer.into_body().collect().await.expect("a whole body");
        requests += 1;
    }
    assert!((1..10_000).contains(&requests), "{requests} requests");
    let ended = tokio::time::timeout(PATIENCE, connection).await;
    ended.expect("it ends").expect("a task").expect("in order");
    plane.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_says_when_to_come_again() {
    let (plane, client, token) = with_token(|options| {
        options.shutdown_send_retry_after = true;
        options.request_timeout = Duration::from_secs(60);
    })
    .await;
    let address = plane.address();
    // A request in flight, whose body does not end: the server waits for it.
    let (bytes, waiting) = endless_post(&plane, &token).await;
    let lifecycle = plane.chain().lifecycle().clone();
    eventually("the request is in flight", || async {
        (lifecycle.running() > 0).then_some(())
    })
    .await;

    let nobody = client.anonymous(plane.ca_certificate());
    let stopping = tokio::spawn(plane.stop());
    let refused = eventually("new requests are refused", || async {
        let answer = client.try_get("/api/v1/namespaces").await.ok()?;
        (answer.status == 429).then_some(answer)
    })
    .await;
    let header = |name| {
        refused
            .headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    assert_eq!(
        (header("retry-after"), header("connection")),
        (Some("5"), Some("close"))
    );
    // Whether it lives is said to the end.
    assert_eq!(nobody.get("/livez").await.status, 200);
    drop(bytes);
    let _ = waiting.await.expect("a task");
    tokio::time::timeout(PATIENCE, stopping)
        .await
        .expect("it stops")
        .expect("a task");
    let gone = tokio::net::TcpStream::connect(address).await;
    assert!(gone.is_err(), "nothing listens any more");
}

/// The end of a body that has only begun, and the answer to its request.
type Endless = (
    tokio::sync::mpsc::Sender<Bytes>,
    tokio::task::JoinHandle<hyper::Result<http::Response<hyper::body::Incoming>>>,
);

/// Posts a body that does not end before the sender is dropped.
async fn endless_post(plane: &ControlPlane, token: &str) -> Endless {
    let io = connection(plane, "http/1.1").await;
    let (mut send, busy) = hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
    tokio::spawn(busy);
    let (bytes, body) = tokio::sync::mpsc::channel::<Bytes>(1);
    let frames = futures_util::stream::unfold(body, |mut body| async {
        let bytes = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(bytes)), body))
    });
    let request = http::Request::post(MAPS)
        .header("host", "localhost")
        .header("authorization", token)
        .header("content-type", "application/json")
        .body(StreamBody::new(Box::pin(frames)))
        .expect("a request");
    let waiting = tokio::spawn(send.send_request(request));
    bytes.send("{".into()).await.expect("it is read");
    (bytes, waiting)
}

#[tokio::test]
async fn a_request_ends_with_its_timeout() {
    let (plane, _, token) = with_token(|options| options.request_timeout = Duration::from_secs(1)).await;
    let (_body, answer) = endless_post(&plane, &token).await;
    // The default is a minute.
    let ended = tokio::time::timeout(Duration::from_secs(30), answer).await;
    let answer = ended.expect("it ends").expect("a task");
    assert!(answer.is_err() || answer.is_ok_and(|answer| !answer.status().is_success()));
    plane.stop().await;
}

#[tokio::test]
async fn seats_are_bounded_by_flags() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tokens.csv");
    // Members of system:masters need no seat.
    std::fs::write(&file, "one,first,u1\ntwo,second,u2\n").expect("a file");
    let (plane, admin) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(file);
            options.authorization_mode = vec![control_plane::AuthorizationMode::AlwaysAllow];
            options.max_requests_inflight = 1;
            options.max_mutating_requests_inflight = 1;
        })
    })
    .await;
    let token = "Bearer one".to_string();
    let client = admin
        .anonymous(plane.ca_certificate())
        .header("authorization", "Bearer two");
    for name in ["a", "b", "c", "d"] {
        let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(900_000)}});
        admin.post(MAPS, &map).await.expect(201);
    }
    let small = json!({"metadata": {"name": "small"}});

    let (body, answer) = endless_post(&plane, &token).await;
    eventually("the seat of writes is taken", || async {
        (client.post(MAPS, &small).await.status == 429).then_some(())
    })
    .await;
    client.get(&format!("{MAPS}/a")).await.expect(200);
    drop(body);
    let _ = answer.await.expect("a task");
    eventually("the seat of writes is free", || async {
        (client.post(MAPS, &small).await.status != 429).then_some(())
    })
    .await;

    // A list that is larger than what is sent ahead of a client holds its seat until it has been read.
    let io = connection(&plane, "h2").await;
    let (mut send, open) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1024)
        .handshake(io)
        .await
        .expect("HTTP/2");
    tokio::spawn(open);
    let request = http::Request::get(format!("https://localhost{MAPS}")).header("authorization", &token);
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let unread = send.send_request(request).await.expect("an answer");
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(client.get(&format!("{MAPS}/a")).await.status, 429);
    drop(unread);
    eventually("the seat of reads is free", || async {
        (client.get(&format!("{MAPS}/a")).await.status == 200).then_some(())
    })
    .await;
    plane.stop().await;
}

/// A control plane that knows one token, a client of its administrator, and the header with the token.
async fn with_token(change: impl FnOnce(&mut control_plane::Options)) -> (ControlPlane, Client, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tokens.csv");
    std::fs::write(&file, "secret,root,u0,system:masters\n").expect("a file");
    let (plane, client) = plane_with(|builder| {
        builder.with(|options| {
            options.token_auth_file = Some(file);
            change(options);
        })
    })
    .await;
    (plane, client, "Bearer secret".into())
}
