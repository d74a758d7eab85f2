//! The edge of a served control plane: layers of a product around the chain, and flags about connections that end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use generic_server::client::egress::Route;
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
use tempfile::TempDir;
use test_support::{Client, PATIENCE, eventually, plane_with};
use tokio::process::Child;
use tokio_rustls::TlsConnector;
use tower::ServiceExt;
use tower::util::{MapRequestLayer, MapResponseLayer};

use super::{MAPS, admin, authority_of, launch};

/// A connection without a client certificate, with this protocol.
async fn connection(server: &Server, protocol: &str) -> TlsIo {
    let settings = settings(TrustedPeers::Anyone).expect("settings");
    let mut tls = settings.with_no_client_auth();
    tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    connect(
        &Route::Direct,
        &TlsConnector::from(Arc::new(tls)),
        &name,
        server.authority(),
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
    let server = with_token(&["--goaway-chance=0.02"]).await;
    let io = connection(&server, "h2").await;
    let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let mut requests = 0;
    // By chance none of ten thousand requests ends it once in 10^87 runs.
    while !connection.is_finished() && requests < 10_000 {
        let request = http::Request::get("https://localhost/version").header("authorization", ROOT);
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
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_stops_says_when_to_come_again() {
    let mut server = with_token(&["--shutdown-send-retry-after=true"]).await;
    let client = server.client.clone();
    // A request in flight, whose body does not end: the server waits for it.
    let (bytes, waiting) = endless_post(&server, ROOT).await;
    eventually("the request is in flight", || async {
        let metrics = client.get("/metrics").await.body;
        let line = "apiserver_current_inflight_requests{request_kind=\"mutating\"} 1\n";
        String::from_utf8_lossy(&metrics).contains(line).then_some(())
    })
    .await;

    let nobody = client.anonymous(&authority_of(server.dir.path()));
    super::terminate(&server.child).await;
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
    let ended = tokio::time::timeout(PATIENCE, server.child.wait())
        .await
        .expect("it ends");
    let status = ended.expect("a status");
    assert!(status.success(), "{status}");
}

/// The end of a body that has only begun, and the answer to its request.
type Endless = (
    tokio::sync::mpsc::Sender<Bytes>,
    tokio::task::JoinHandle<hyper::Result<http::Response<hyper::body::Incoming>>>,
);

/// Posts a body that does not end before the sender is dropped.
async fn endless_post(server: &Server, token: &str) -> Endless {
    let io = connection(server, "http/1.1").await;
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
    let server = with_token(&["--request-timeout=1s"]).await;
    let (_body, answer) = endless_post(&server, ROOT).await;
    // The default is a minute.
    let ended = tokio::time::timeout(Duration::from_secs(30), answer).await;
    let answer = ended.expect("it ends").expect("a task");
    assert!(answer.is_err() || answer.is_ok_and(|answer| !answer.status().is_success()));
}

#[tokio::test]
async fn seats_are_bounded_by_flags() {
    let flags = [
        "--authorization-mode=AlwaysAllow",
        // With it, requests would wait.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=1",
        "--max-mutating-requests-inflight=1",
    ];
    let server = with_token(&flags).await;
    let admin = &server.client;
    // Members of system:masters need no seat.
    let token = "Bearer one";
    let client = admin
        .anonymous(&authority_of(server.dir.path()))
        .header("authorization", "Bearer two");
    for name in ["a", "b", "c", "d"] {
        let map = json!({"metadata": {"name": name}, "data": {"text": "x".repeat(900_000)}});
        admin.post(MAPS, &map).await.expect(201);
    }
    let small = json!({"metadata": {"name": "small"}});

    let (body, answer) = endless_post(&server, token).await;
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
    let io = connection(&server, "h2").await;
    let (mut send, open) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1024)
        .handshake(io)
        .await
        .expect("HTTP/2");
    tokio::spawn(open);
    let request = http::Request::get(format!("https://localhost{MAPS}")).header("authorization", token);
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let unread = send.send_request(request).await.expect("an answer");
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(client.get(&format!("{MAPS}/a")).await.status, 429);
    drop(unread);
    eventually("the seat of reads is free", || async {
        (client.get(&format!("{MAPS}/a")).await.status == 200).then_some(())
    })
    .await;
}

/// The header of a member of system:masters that the server of [`with_token`] knows.
const ROOT: &str = "Bearer secret";

/// A server with tokens. It ends before its directory is removed.
struct Server {
    child: Child,
    /// A client of its administrator.
    client: Client,
    url: String,
    dir: TempDir,
}

impl Server {
    fn authority(&self) -> &str {
        self.url.trim_start_matches("https://")
    }
}

/// Starts a server that knows [`ROOT`] and the users with the tokens `one` and `two`.
async fn with_token(flags: &[&str]) -> Server {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tokens.csv");
    let tokens = "secret,root,u0,system:masters\none,first,u1\ntwo,second,u2\n";
    std::fs::write(&file, tokens).expect("a file");
    let named = ["--token-auth-file", file.to_str().expect("a path")];
    let (child, url, _) = launch(dir.path(), 0, &[&named, flags].concat()).await;
    let client = admin(dir.path());
    Server {
        child,
        client,
        url,
        dir,
    }
}
