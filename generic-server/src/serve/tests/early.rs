//! Answers that are sent before the request has been read.

use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// A body that no server wants.
const LARGE: usize = 20 << 20;
const REFUSAL: &str = r#"{"kind":"Status","status":"Failure"}"#;

/// Refuses every request: `/at-once` without its body, `/past/N` when it has read more than so many bytes.
#[derive(Debug, Default)]
struct Refuses(Arc<ConnectionMetrics>);

impl Handler for Refuses {
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            let most = request.uri().path().strip_prefix("/past/").map(str::to_string);
            if let Some(most) = most {
                let (limit, mut read, mut body) = (most.parse().unwrap(), 0_usize, request.into_body());
                while read <= limit {
                    let frame = body.frame().await.unwrap().unwrap();
                    read += frame.data_ref().map_or(0, bytes::Bytes::len);
                }
            }
            let mut response = Response::new(full(REFUSAL));
            *response.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
            response
        })
    }

    fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.0.clone()
    }
}

struct Plain {
    server: Server,
    address: std::net::SocketAddr,
}

async fn plain() -> Plain {
    let server = Server::with_limits(Arc::new(Refuses::default()), ConnectionLimits::default());
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let running = server.clone();
    tokio::spawn(async move { running.run(listener, None, CancellationToken::new()).await });
    Plain { server, address }
}

fn post(path: &str, length: usize, more: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{more}\r\n").into_bytes()
}

/// Sends all of the bytes and only then reads, until the server ends the connection.
async fn send_then_read(address: std::net::SocketAddr, parts: &[&[u8]]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    for part in parts {
        stream.write_all(part).await?;
    }
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said)
}

#[tokio::test]
async fn an_early_answer_is_not_lost_on_http1() {
    let plain = plain().await;
    let body = vec![b'x'; LARGE];
    for round in 0..100 {
        let (path, more) = match round % 4 {
            0 => ("/at-once", ""),
            1 => ("/past/3145728", ""),
            2 => ("/past/0", "Expect: 100-continue\r\n"),
            _ => ("/at-once", "Expect: 100-continue\r\n"),
        };
        let said = send_then_read(plain.address, &[&post(path, LARGE, more), &body]).await;
        let said = said.unwrap_or_else(|error| panic!("{round}: {error}"));
        let answer = said
            .strip_prefix("HTTP/1.1 100 Continue\r\n\r\n")
            .unwrap_or(&said);
        assert!(answer.starts_with("HTTP/1.1 413 "), "{round}: {said}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{round}: {said}");
        assert!(answer.ends_with(REFUSAL), "{round}: {said}");
    }
    plain.server.drain(Duration::from_secs(5)).await;
    assert_eq!(plain.server.connections(), 0);
}

#[tokio::test]
async fn a_refused_head_is_answered_too() {
    let plain = plain().await;
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx: ";
    let rest = vec![b'y'; 8 * machinery::limits::HEADER_BYTES];
    for round in 0..10 {
        let said = send_then_read(plain.address, &[head.as_bytes(), &rest]).await;
        let said = said.unwrap_or_else(|error| panic!("{round}: {error}"));
        assert!(said.starts_with("HTTP/1.1 431 "), "{round}: {said}");
    }
}

/// Bytes that a server says on a connection in memory, until it ends it or is silent for a second, and when.
async fn said(client: &mut tokio::io::DuplexStream) -> String {
    let mut said = Vec::new();
    let read = client.read_to_end(&mut said);
    let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
    String::from_utf8(said).unwrap()
}

/// Sends a request with so much of its body; gives how many answers it and a second request get, and whether the first one closes.
async fn kept(length: usize, sent: usize, more: &str) -> (usize, bool) {
    let server = Server::with_limits(Arc::new(Refuses::default()), ConnectionLimits::default());
    let info = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new());
    let mut client = server.connect_in_memory(info);
    let mut first = post("/at-once", length, more);
    first.resize(first.len() + sent, b'x');
    let (mut reader, mut writer) = tokio::io::split(&mut client);
    let write = async {
        let _ = writer.write_all(&first).await;
        let _ = writer
            .write_all(b"GET /at-once HTTP/1.1\r\nHost: a\r\n\r\n")
            .await;
    };
    let mut answers = Vec::new();
    let read = async {
        let read = reader.read_to_end(&mut answers);
        let _ = tokio::time::timeout(Duration::from_secs(10), read).await;
    };
    tokio::join!(write, read);
    let text = String::from_utf8(answers).unwrap();
    (text.matches(REFUSAL).count(), text.contains("connection: close"))
}

#[tokio::test(start_paused = true)]
async fn a_short_rest_is_read_and_the_connection_goes_on() {
    let bound = machinery::limits::DROPPED_BODY_BYTES;
    assert_eq!(kept(2, 2, "").await, (2, false));
    assert_eq!(kept(bound, bound, "").await, (2, false));
    assert_eq!(kept(bound + 1, bound + 1, "").await, (1, true));
    // One that does not come.
    assert!(kept(bound, 0, "").await.1);
    // One that is not sent before the server asks for it.
    assert_eq!(kept(2, 0, "Expect: 100-continue\r\n").await, (1, true));
}

#[tokio::test(start_paused = true)]
async fn lingering_has_its_bounds() {
    // The client looks every now and then.
    const INTERVAL: Duration = Duration::from_millis(100);
    #[track_caller]
    fn check(waited: Duration, expected: Duration) {
        assert!(
            waited >= expected && waited <= expected + 2 * INTERVAL,
            "{waited:?}"
        );
    }
    let connect = || {
        let server = Server::with_limits(Arc::new(Refuses::default()), ConnectionLimits::default());
        let info = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new());
        let client = server.connect_in_memory(info);
        (server, client)
    };
    // Silence.
    let (server, mut client) = connect();
    client.write_all(&post("/at-once", 1 << 40, "")).await.unwrap();
    assert!(said(&mut client).await.ends_with(REFUSAL));
    let since = tokio::time::Instant::now();
    while client.write_all(b"").await.is_ok() && server.connections() > 0 {
        tokio::time::sleep(INTERVAL).await;
    }
    check(since.elapsed(), machinery::limits::LINGER);

    // A little every now and then.
    let (server, mut client) = connect();
    client.write_all(&post("/at-once", 1 << 40, "")).await.unwrap();
    assert!(said(&mut client).await.ends_with(REFUSAL));
    let since = tokio::time::Instant::now();
    while client.write_all(b"x").await.is_ok() && server.connections() > 0 {
        tokio::time::sleep(INTERVAL).await;
    }
    check(since.elapsed(), machinery::limits::LINGER_IN_ALL);

    // As fast as it goes.
    let (_server, mut client) = connect();
    client.write_all(&post("/at-once", 1 << 40, "")).await.unwrap();
    assert!(said(&mut client).await.ends_with(REFUSAL));
    let (mut sent, piece) = (0, vec![b'x'; 64 * 1024]);
    while client.write_all(&piece).await.is_ok() {
        sent += piece.len();
    }
    assert!(sent >= machinery::limits::LINGER_BYTES, "{sent}");
    assert!(
        sent <= machinery::limits::LINGER_BYTES + 4 * piece.len(),
        "{sent}"
    );
}

/// The frames of an HTTP/2 server: kind, flags and payload of those about stream 1.
async fn frames_of_stream(client: &mut tokio::io::DuplexStream, count: usize) -> Vec<(u8, u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let mut start = [0; 9];
        client.read_exact(&mut start).await.unwrap();
        let mut payload = vec![0; usize::from(start[1]) << 8 | usize::from(start[2])];
        client.read_exact(&mut payload).await.unwrap();
        if start[5..] == [0, 0, 0, 1] {
            frames.push((start[3], start[4], payload));
        }
    }
    frames
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_reset_without_an_error_a_moment_after_its_answer() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    let server = Server::with_limits(Arc::new(Refuses::default()), ConnectionLimits::default());
    let info = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new());
    let mut client = server.connect_in_memory(info);
    // POST /at-once of http://a, without the end of the stream.
    let mut head = vec![0x83, 0x86, 0x41, 1, b'a', 0x44, 8];
    head.extend_from_slice(b"/at-once");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend_from_slice(&[0, 0, u8::try_from(head.len()).unwrap(), HEADERS, 4, 0, 0, 0, 1]);
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&[0, 0, 1, DATA, 0, 0, 0, 0, 1, b'x']);
    client.write_all(&bytes).await.unwrap();
    let since = tokio::time::Instant::now();
    let answer = frames_of_stream(&mut client, 2).await;
    assert!(since.elapsed() < machinery::limits::LINGER);
    assert_eq!(answer[0].0, HEADERS);
    assert_eq!(answer[1], (DATA, 1, REFUSAL.as_bytes().to_vec()));
    let reset = frames_of_stream(&mut client, 1).await;
    assert_eq!(reset, [(RST_STREAM, 0, vec![0; 4])]);
    assert!(since.elapsed() >= machinery::limits::LINGER);
}

#[tokio::test]
async fn an_early_answer_is_not_lost_on_http2() {
    let plain = plain().await;
    let body = bytes::Bytes::from(vec![b'x'; LARGE]);
    let stream = TcpStream::connect(plain.address).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for round in 0..100 {
        let path = ["/at-once", "/past/3145728"][round % 2];
        let request = http::Request::post(format!("http://a{path}"));
        let request: http::Request<Body> = request.body(full(body.clone())).unwrap();
        let response = send.send_request(request).await;
        let response = response.unwrap_or_else(|error| panic!("{round}: {error:?}"));
        assert_eq!(response.status(), 413, "{round}");
        let answer = response.into_body().collect().await;
        let answer = answer.unwrap_or_else(|error| panic!("{round}: {error:?}"));
        assert_eq!(answer.to_bytes(), REFUSAL, "{round}");
    }
    plain.server.drain(Duration::from_secs(5)).await;
}
