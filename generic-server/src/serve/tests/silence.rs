//! Connections that say nothing, too little, or only that they live. In memory, in paused time.

use std::future::Future;
use std::pin::Pin;

use http_body_util::StreamBody;
use machinery::limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::*;

/// Answers at once, but for `/hang` and for `/stall`, whose answer's body never ends.
#[derive(Debug, Default)]
struct Answers(Arc<ConnectionMetrics>);

impl Handler for Answers {
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            match request.uri().path() {
                "/hang" => std::future::pending().await,
                "/stall" => {
                    let never = StreamBody::new(futures_util::stream::pending());
                    Response::new(never.boxed_unsync())
                }
                "/large" => Response::new(full(vec![b'x'; 600 * 1024])),
                _ => {
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    Response::new(full(body))
                }
            }
        })
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.0.clone()
    }
}

fn connect() -> (Server, DuplexStream) {
    let server = Server::with_limits(Arc::new(Answers::default()), ConnectionLimits::default());
    let info = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new());
    let client = server.connect_in_memory(info);
    (server, client)
}

/// Seconds until the server ends the connection, and what it said until then.
async fn ended(client: &mut DuplexStream) -> (u64, Vec<u8>) {
    let (since, mut said) = (Instant::now(), Vec::new());
    client.read_to_end(&mut said).await.unwrap();
    (since.elapsed().as_secs(), said)
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

#[tokio::test(start_paused = true)]
async fn the_first_head_has_its_time() {
    for start in [
        &b""[..],
        b"P",
        &PREFACE[..20],
        PREFACE,
        &[PREFACE, &SETTINGS[..8]].concat(),
        b"GET / HTTP/1.1\r\nHost: a\r\n",
    ] {
        let (_server, mut client) = connect();
        after(10).await;
        client.write_all(start).await.unwrap();
        after(10).await;
        assert_eq!(ended(&mut client).await.0, limits::HEAD_SECONDS - 20, "{start:?}");
    }
    // One that is whole in time is answered.
    let (_server, mut client) = connect();
    client.write_all(&GET[..GET.len() - 1]).await.unwrap();
    after(limits::HEAD_SECONDS - 1).await;
    ask(&mut client, b"\n", b"\r\n\r\n").await;
}

/// One request on a connection that lasts: gives its answer.
async fn ask(client: &mut DuplexStream, request: &[u8], until: &[u8]) -> Vec<u8> {
    client.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(until) {
        assert_ne!(
            client.read_buf(&mut answer).await.unwrap(),
            0,
            "the connection ended"
        );
    }
    answer
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_kept_for_their_time() {
    let (_server, mut client) = connect();
    for _ in 0..3 {
        ask(&mut client, GET, b"\r\n\r\n").await;
        after(limits::IDLE_SECONDS - 1).await;
    }
    ask(&mut client, GET, b"\r\n\r\n").await;
    assert_eq!(ended(&mut client).await, (limits::IDLE_SECONDS, Vec::new()));

    // With a body, too, that comes late.
    let (_server, mut client) = connect();
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    client.write_all(post).await.unwrap();
    after(50).await;
    ask(&mut client, b"ab", b"ab").await;
    assert_eq!(ended(&mut client).await.0, limits::IDLE_SECONDS);
}

#[tokio::test(start_paused = true)]
async fn later_heads_have_their_time() {
    let (_server, mut client) = connect();
    ask(&mut client, GET, b"\r\n\r\n").await;
    after(80).await;
    client.write_all(b"GET / HT").await.unwrap();
    after(20).await;
    client.write_all(b"TP/1.1\r\n").await.unwrap();
    assert_eq!(ended(&mut client).await.0, limits::HEAD_SECONDS - 20);
}

/// A client's reply to the frames of a server: an acknowledgement of each PING and nothing else.
fn answers(frames: &mut Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    while let [high, middle, low, kind, flags, ..] = **frames {
        let end = 9 + usize::from(high) * 65536 + usize::from(middle) * 256 + usize::from(low);
        if frames.len() < end {
            break;
        }
        let frame: Vec<u8> = frames.drain(..end).collect();
        if (kind, flags & 1) == (6, 0) {
            out.extend_from_slice(&[0, 0, 8, 6, 1, 0, 0, 0, 0]);
            out.extend_from_slice(&frame[9..]);
        }
    }
    out
}

#[tokio::test(start_paused = true)]
async fn pings_keep_no_connection() {
    let (_server, mut client) = connect();
    client.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    let (since, mut said, mut frames) = (Instant::now(), Vec::new(), Vec::new());
    loop {
        let before = said.len();
        match tokio::time::timeout(Duration::from_secs(1), client.read_buf(&mut said)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => {
                frames.extend_from_slice(&said[before..]);
                let _ = client.write_all(&answers(&mut frames)).await;
            }
            Err(_) => drop(client.write_all(PING).await),
        }
    }
    assert_eq!(since.elapsed().as_secs(), limits::IDLE_SECONDS);
    // Frame type 7 without an error.
    let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0];
    assert!(said.windows(9).any(|frame| frame == goaway), "{said:?}");
}

async fn http2(client: DuplexStream) -> hyper::client::conn::http2::SendRequest<Body> {
    let (send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
            .await
            .unwrap();
    tokio::spawn(connection);
    send
}

fn get(path: &str) -> http::Request<Body> {
    http::Request::get(format!("http://a{path}"))
        .body(empty())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_under_way_keep_their_connection() {
    let (server, client) = connect();
    let mut send = http2(client).await;
    let response = send.send_request(get("/stall")).await.unwrap();
    let hanging = tokio::spawn(send.send_request(get("/hang")));
    after(1000).await;
    assert_eq!(server.connections(), 1);
    assert!(!send.is_closed());
    drop(response);
    hanging.abort();
    let _ = hanging.await;
    after(80).await;
    assert!(!send.is_closed());
    after(20).await;
    assert!(send.is_closed());
    assert_eq!(server.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_taken_slowly_are_sent_whole() {
    let (_server, mut client) = connect();
    client
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let (mut taken, mut some) = (0, vec![0; 16 * 1024]);
    loop {
        after(20).await;
        match client.read(&mut some).await.unwrap() {
            0 => break,
            count => taken += count,
        }
    }
    assert!(taken > 600 * 1024, "{taken}");

    // One that is not taken at all ends.
    let (server, mut client) = connect();
    client
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    after(200).await;
    assert_eq!(server.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_no_silent_client() {
    let (server, client) = connect();
    let mut send = http2(client).await;
    send.send_request(get("/")).await.unwrap();
    let (_, silent) = (send, connect_to(&server));
    let since = Instant::now();
    server.drain(Duration::from_secs(60)).await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_connection_is_closed_at_once() {
    let limits = ConnectionLimits {
        connections: 2,
        ..ConnectionLimits::default()
    };
    let server = Server::with_limits(Arc::new(Answers::default()), limits);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = connect_to(&server);
        // One request on stream 1, and no word after the answer: not even to the server's goodbye.
        let get = [0x82, 0x84, 0x87, 0x41, 1, b'a'];
        let head = [0, 0, 6, 1, 5, 0, 0, 0, 1];
        client
            .write_all(&[PREFACE, SETTINGS, &head, &get].concat())
            .await
            .unwrap();
        let mut said = vec![0; 9];
        client.read_exact(&mut said).await.unwrap();
        after(1).await;
        open.push(client);
    }
    let since = Instant::now();
    let mut third = connect_to(&server);
    ask(&mut third, GET, b"\r\n\r\n").await;
    ended(&mut open[0]).await;
    assert_eq!(since.elapsed().as_secs(), 0);
    assert_eq!(server.connections(), 2);
}

fn connect_to(server: &Server) -> DuplexStream {
    server.connect_in_memory(ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new()))
}
