//! The bounds of connections and of heads on a real port.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Limits that a test can reach.
fn small() -> ConnectionLimits {
    ConnectionLimits {
        connections: 4,
        head: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        ..ConnectionLimits::default()
    }
}

async fn tls(port: &Port) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(port.pki.client_ca().unwrap().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(port.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// The bytes that the server sends until it ends the connection.
async fn said(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    // A close without TLS's farewell is an error to the client.
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said));
    assert!(
        read.await.is_ok(),
        "the connection is there after {}",
        String::from_utf8_lossy(&said)
    );
    String::from_utf8_lossy(&said).into_owned()
}

fn metric(port: &Port, name: &str) -> u64 {
    let mut text = String::new();
    port.metrics.render(&mut text);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.expect(name).parse().unwrap()
}

/// Waits until something was counted so often: the server counts after it has answered.
async fn counted(port: &Port, name: &str, expected: u64) {
    let reached = async {
        while metric(port, name) != expected {
            tokio::task::yield_now().await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(20), reached).await;
    assert!(reached.is_ok(), "{name} {}", metric(port, name));
}

#[tokio::test]
async fn silent_connections_end() {
    let port = port_with(small()).await;
    // Before the handshake, after it, and with the beginning of HTTP/2.
    said(TcpStream::connect(port.address).await.unwrap()).await;
    said(tls(&port).await).await;
    let mut stream = tls(&port).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    said(stream).await;
    // And one that had a request.
    let mut stream = tls(&port).await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    assert!(said(stream).await.starts_with("HTTP/1.1 200"));
    counted(&port, "apiserver_tls_handshake_errors_total", 1).await;
    counted(
        &port,
        "apiserver_connections_closed_total{reason=\"header_timeout\"}",
        3,
    )
    .await;
    counted(
        &port,
        "apiserver_connections_closed_total{reason=\"idle_timeout\"}",
        1,
    )
    .await;
    counted(&port, "apiserver_connections_accepted_total", 4).await;
}

#[tokio::test]
async fn too_many_silent_connections_stop_nobody() {
    let limits = ConnectionLimits {
        connections: 4,
        ..ConnectionLimits::default()
    };
    let port = port_with(limits).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(port.address).await.unwrap());
    }
    let answer = ask(&port, b"http/1.1", None).await;
    assert_eq!(answer.0, 200);
    assert!(
        metric(
            &port,
            "apiserver_connections_closed_total{reason=\"too_many_handshakes\"}"
        ) >= 18
    );
    assert!(metric(&port, "apiserver_connections") <= 5);
}

#[tokio::test]
async fn http_on_the_tls_port() {
    let port = port().await;
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /api HTTP/1.1\r\n\r\n",
        "HEAD / HTTP/1.0\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(port.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(
            said(stream).await,
            "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
        );
    }
    counted(&port, "apiserver_tls_handshake_errors_total", 3).await;
}

/// The answer to a request as it is written.
async fn raw(port: &Port, request: &str) -> String {
    let mut stream = tls(port).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    said(stream).await
}

#[tokio::test]
async fn heads() {
    let limits = ConnectionLimits {
        idle: Duration::from_millis(100),
        ..ConnectionLimits::default()
    };
    let port = port_with(limits).await;
    let check = async |request: String, expected: &str, text: &str| {
        let answer = raw(&port, &request).await;
        let request = &request[..request.len().min(60)];
        assert!(answer.starts_with(expected), "{request}: {answer}");
        assert!(answer.ends_with(text), "{request}: {answer}");
    };
    let bad = "HTTP/1.1 400 Bad Request\r\n";
    let missing = "\r\n\r\n400 Bad Request: missing required Host header";
    check("GET / HTTP/1.1\r\n\r\n".into(), bad, missing).await;
    check(
        "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n".into(),
        bad,
        "\r\n\r\n400 Bad Request",
    )
    .await;
    let malformed = "\r\n\r\n400 Bad Request: malformed Host header";
    check("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), bad, malformed).await;
    check("GET / HTTP/1.0\r\n\r\n".into(), "HTTP/1.0 200 OK\r\n", "").await;

    // Headers by their number: at the bound, and one past it.
    let headers = |count: usize| "x: y\r\n".repeat(count - 1);
    let request = |count| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", headers(count));
    check(request(machinery::limits::HEADERS), "HTTP/1.1 200 OK\r\n", "").await;
    check(request(machinery::limits::HEADERS + 1), "HTTP/1.1 431 ", "").await;

    // And the target by its bytes.
    let request = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length - 1));
    check(
        request(machinery::limits::TARGET_BYTES),
        "HTTP/1.1 200 OK\r\n",
        "",
    )
    .await;
    check(request(machinery::limits::TARGET_BYTES + 1), "HTTP/1.1 414 ", "").await;

    // And the whole head by its bytes: it has to fit the buffer, which the library finds full at the bound.
    let request = |length: usize| {
        let (start, end) = ("GET / HTTP/1.1\r\nHost: a\r\nx: ", "\r\n\r\n");
        format!("{start}{}{end}", "y".repeat(length - start.len() - end.len()))
    };
    check(
        request(machinery::limits::HEADER_BYTES - 1),
        "HTTP/1.1 200 OK\r\n",
        "",
    )
    .await;
    check(request(machinery::limits::HEADER_BYTES + 1), "HTTP/1.1 431 ", "").await;
}

/// Bytes of an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn streams_of_one_connection() {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const REFUSED_STREAM: u32 = 7;
    let port = port().await;
    let mut server = port
        .server
        .connect_in_memory(ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), Vec::new()));
    // Heads of POST / whose bodies do not come; 0x83, 0x84, 0x87 and 0x41 are of HPACK's static table.
    let head = [0x83, 0x84, 0x87, 0x41, 0x01, b'a'];
    let mut bytes = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &frame(SETTINGS, 0, 0, &[])[..],
    ]
    .concat();
    for index in 0..=machinery::limits::STREAMS {
        bytes.extend(frame(HEADERS, 4, 2 * index + 1, &head));
    }
    server.write_all(&bytes).await.unwrap();
    let mut announced = None;
    let refused = loop {
        let mut start = [0; 9];
        server.read_exact(&mut start).await.unwrap();
        let mut payload = vec![0; usize::from(start[1]) << 8 | usize::from(start[2])];
        server.read_exact(&mut payload).await.unwrap();
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        match start[3] {
            SETTINGS => {
                let most = payload.chunks(6).find(|setting| setting[..2] == [0, 3]);
                announced = announced.or(most.map(|setting| number(&setting[2..])));
            }
            RST_STREAM if number(&payload) == REFUSED_STREAM => break number(&start[5..]),
            _ => {}
        }
    };
    assert_eq!(announced, Some(machinery::limits::STREAMS));
    assert_eq!(refused, 2 * machinery::limits::STREAMS + 1);
}
