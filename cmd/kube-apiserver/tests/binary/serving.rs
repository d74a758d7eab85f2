//! The edge of a served control plane: layers of a product around the chain, and flags about connections that end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use control_plane::ControlPlane;
use generic_server::client::trust::{Whom, settings};
use generic_server::client::{TlsIo, connect};
use generic_server::request::empty;
use generic_server::{Request, Response};
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioExecutor;
use rustls_pki_types::ServerName;
use test_support::{Client, PATIENCE, eventually, plane_with};
use tokio_rustls::TlsConnector;
use tower::ServiceExt;
use tower::util::{MapRequestLayer, MapResponseLayer};

/// A connection of somebody without a client certificate, with this protocol.
async fn connection(plane: &ControlPlane, protocol: &str) -> TlsIo {
    let settings = settings(Whom::Anyone).expect("settings");
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
    let io = connection(&plane, "http/1.1").await;
    let (mut send, busy) = hyper::client::conn::http1::handshake(io).await.expect("HTTP/1.1");
    tokio::spawn(busy);
    let (bytes, body) = tokio::sync::mpsc::channel::<Bytes>(1);
    let frames = futures_util::stream::unfold(body, |mut body| async {
        let bytes = body.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(bytes)), body))
    });
    let request = http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("host", "localhost")
        .header("authorization", &token)
        .header("content-type", "application/json")
        .body(StreamBody::new(Box::pin(frames)))
        .expect("a request");
    let waiting = tokio::spawn(send.send_request(request));
    bytes.send("{".into()).await.expect("it is read");
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
