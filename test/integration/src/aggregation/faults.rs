//! Backends that misbehave: each fault is bounded, and named in the condition or in the answer, in upstream's words.

use std::sync::Arc;

use generic_server::delegated::{Kubeconfig, ServerTrust};
use generic_server::pki::Authority;
use test_support::{eventually, plane};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::faulty::{Faulty, Script, Step, acceptor, answer, issued};
use super::{SERVICES, api_service, local_service, reason};

/// A connection of the administrator's, for what no HTTP client does.
pub(super) async fn raw_connection(
    plane: &control_plane::ControlPlane,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    let config = Kubeconfig::parse(&plane.kubeconfig()).expect("a kubeconfig");
    let (certificate, key) = config.certificate.expect("a client certificate");
    let chain = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .expect("certificates")
    };
    let mut roots = rustls::RootCertStore::empty();
    let ServerTrust::Authorities(authorities) = &config.trust else {
        panic!("a plane has an authority");
    };
    for ca in chain(authorities) {
        roots.add(ca).expect("a CA");
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain(&certificate), key)
        .expect("a pair");
    let stream = TcpStream::connect(plane.address()).await.expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    tokio_rustls::TlsConnector::from(Arc::new(tls))
        .connect(name, stream)
        .await
        .expect("TLS")
}

/// Asks for an upgrade through the proxy; gives what comes first back.
async fn upgraded(plane: &control_plane::ControlPlane, path: &str) -> String {
    let mut stream = raw_connection(plane).await;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Remote-User: root\r\n\r\n"
    );
    stream
        .write_all(head.as_bytes())
        .await
        .expect("the request is sent");
    let mut got = Vec::new();
    let mut sent = false;
    let read = async {
        let mut buffer = [0; 4096];
        loop {
            let n = stream.read(&mut buffer).await.unwrap_or_default();
            got.extend_from_slice(&buffer[..n]);
            let whole = got.windows(4).any(|w| w == b"\r\n\r\n");
            if n == 0 || got.ends_with(b"ping") || (whole && !got.starts_with(b"HTTP/1.1 101")) {
                return;
            }
            if whole && !sent {
                sent = true;
                stream.write_all(b"ping").await.expect("bytes after the switch");
            }
        }
    };
    tokio::time::timeout(test_support::PATIENCE, read)
        .await
        .expect("an answer in time");
    String::from_utf8_lossy(&got).into_owned()
}

/// A self-signed certificate.
fn self_signed(service: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new([format!("{service}.default.svc")]).expect("parameters");
    change(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn certificates_are_judged() {
    let (plane, client) = plane().await;
    let authority = Authority::generate("test").expect("an authority");
    local_service(&client, "tls").await;
    let script: Script = Arc::new(|_: &str, _: &str| answer("200 OK", "{}"));
    let expired = self_signed("tls", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let early = self_signed("tls", |params| {
        params.not_before = rcgen::date_time_ymd(4000, 1, 1)
    });
    let own = self_signed("tls", |_| {});
    let wrong = issued(&authority, "another");
    let x509 = "tls: failed to verify certificate: x509: ";
    // The group, the certificate it shows, the bundle it is verified against, and the reported error.
    let cases = [
        (
            "expired.io",
            Some(&expired),
            &expired.0,
            format!("{x509}certificate has expired or is not yet valid: current time "),
        ),
        (
            "early.io",
            Some(&early),
            &early.0,
            "is before 4000-01-01T00:00:00Z".into(),
        ),
        (
            "self.io",
            Some(&own),
            &authority.certificate,
            format!("{x509}certificate signed by unknown authority"),
        ),
        (
            "wrong.io",
            Some(&(wrong.certificate, wrong.key)),
            &authority.certificate,
            format!("{x509}certificate is valid for another.default.svc, not tls.default.svc"),
        ),
        (
            "plain.io",
            None,
            &authority.certificate,
            "first record does not look like a TLS handshake".into(),
        ),
    ];
    let mut running = Vec::new();
    for (group, shown, trusted, expected) in &cases {
        let shown = shown.map(|(certificate, key)| acceptor(certificate, key));
        let backend = Faulty::with(shown, script.clone()).await;
        let service = api_service(group, "tls", backend.port, Some(trusted));
        client.post(SERVICES, &service).await.expect(201);
        let message = reason(&client, group, "FailedDiscoveryCheck").await;
        assert!(message.contains(expected), "{group}: {message}");
        client.get(&format!("/apis/{group}/v1/things")).await.expect(503);
        running.push(backend);
    }
    // One that is itself in the bundle is trusted, as in Go.
    let backend = Faulty::with(Some(acceptor(&own.0, &own.1)), script).await;
    let service = api_service("pinned.io", "tls", backend.port, Some(&own.0));
    client.post(SERVICES, &service).await.expect(201);
    reason(&client, "pinned.io", "Passed").await;
    plane.stop().await;
}

/// The backend's behaviour, by the last part of the path.
fn misbehave(path: &str, head: &str) -> Vec<Step> {
    let say = |text: &str| vec![Step::Say(text.as_bytes().to_vec())];
    let with_body = |text: &str, then: Step| vec![Step::Say(text.as_bytes().to_vec()), then];
    if head.contains("upgrade: echo") {
        return match path.rsplit('/').next().unwrap_or_default() {
            "fine" if head.contains("x-remote-user: kubernetes-admin") => with_body(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
                Step::Echo,
            ),
            "declines" => answer("200 OK", "no"),
            "forbids" => answer("403 Forbidden", "not you"),
            "hangs-up" => Vec::new(),
            _ => say("this is no HTTP\r\n\r\n"),
        };
    }
    match path.rsplit('/').next().unwrap_or_default() {
        "redirects" => say("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
        "unmodified" => say("HTTP/1.1 304 Not Modified\r\nEtag: \"e\"\r\n\r\n"),
        "resets" => Vec::new(),
        "headers" => vec![
            Step::Say(b"HTTP/1.1 200 OK\r\n".to_vec()),
            Step::Forever(b"X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
        ],
        "line" => vec![Step::Say(b"HTTP/1.1 200 ".to_vec()), Step::Forever(&[b'a'; 512])],
        "garbage" => say("this is no HTTP\r\n\r\n"),
        "switches" => say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
        "hints" => say(
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ),
        "hints-forever" => vec![Step::Forever(b"HTTP/1.1 103 Early Hints\r\n\r\n")],
        "fails" => answer("500 Internal Server Error", "oops"),
        "stalls" => vec![Step::Stall],
        "stalls-within" => with_body("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", Step::Stall),
        "short" => say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
        "long" => say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}and more"),
        "chunks" => say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
        "two-lengths" => say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        "v1" => answer(
            "200 OK",
            r#"{"kind":"APIResourceList","groupVersion":"bad.io/v1","resources":[]}"#,
        ),
        _ => answer("200 OK", "{}"),
    }
}

#[tokio::test]
async fn bad_backends_are_bounded_and_named() {
    let (plane, client) = plane().await;
    let authority = Authority::generate("test").expect("an authority");
    let backend = Faulty::start(&authority, "bad", Arc::new(misbehave)).await;
    local_service(&client, "bad").await;
    let service = api_service("bad.io", "bad", backend.port, Some(&authority.certificate));
    client.post(SERVICES, &service).await.expect(201);
    reason(&client, "bad.io", "Passed").await;
    let ask = |what: &str| format!("/apis/bad.io/v1/{what}");
    // A failure makes it be looked at, and a row of them makes it be refused for a moment: both pass.
    let fine = || async {
        eventually("it serves", || async {
            (client.get(&ask("fine")).await.status == 200).then_some(())
        })
        .await;
    };
    for (what, status, text) in [
        ("redirects", 502, "the backend attempted to redirect this request"),
        ("unmodified", 304, ""),
        ("resets", 503, "error trying to reach service: EOF"),
        (
            "headers",
            503,
            "error trying to reach service: net/http: server response headers exceeded",
        ),
        ("line", 503, "error trying to reach service: "),
        (
            "garbage",
            503,
            "error trying to reach service: net/http: HTTP/1.x transport connection broken",
        ),
        ("switches", 502, "invalid response: status code 101"),
        ("hints", 200, "{}"),
        ("fails", 500, "oops"),
        ("long", 200, "{}"),
        ("two-lengths", 503, "error trying to reach service: "),
        ("stalls?timeout=1s", 504, "Timeout"),
        ("hints-forever?timeout=1s", 504, "Timeout"),
    ] {
        fine().await;
        let answer = client.get(&ask(what)).await;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{what}: {body}");
        assert!(body.contains(text), "{what}: {body}");
    }
    // A truncated answer is seen to be cut, never taken for complete.
    for what in ["short", "chunks", "stalls-within?timeout=1s"] {
        fine().await;
        let cut = client.try_get(&ask(what)).await;
        assert!(cut.is_err(), "{what}: {cut:?}");
    }
    for (what, expected) in [
        ("fine", "HTTP/1.1 101"),
        ("declines", "HTTP/1.1 503"),
        ("forbids", "HTTP/1.1 403"),
        ("hangs-up", "HTTP/1.1 503"),
        ("garbage", "HTTP/1.1 503"),
    ] {
        fine().await;
        let switched = upgraded(&plane, &ask(what)).await;
        assert!(switched.starts_with(expected), "{what}: {switched}");
        assert_eq!(switched.ends_with("ping"), what == "fine", "{what}: {switched}");
    }
    fine().await;
    client.get("/api/v1/namespaces").await.expect(200);
    // A backend that hangs has a bounded number of requests; a client that gives up frees its place.
    let hanging: Vec<_> = (0..110)
        .map(|_| {
            let (client, path) = (client.clone(), ask("stalls"));
            tokio::spawn(async move { client.get(&path).await })
        })
        .collect();
    eventually("its seats are taken", || async {
        let text = client.get("/metrics").await.body;
        let wanted = "aggregator_proxy_requests_in_flight{name=\"v1.bad.io\"} 100";
        String::from_utf8_lossy(&text).contains(wanted).then_some(())
    })
    .await;
    client.get(&ask("fine")).await.expect(429);
    client.get("/api/v1/namespaces").await.expect(200);
    for request in &hanging {
        request.abort();
    }
    fine().await;
    let metrics = client.get("/metrics").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(
        text.contains("aggregator_proxy_failures_total{name=\"v1.bad.io\"}"),
        "{text}"
    );
    plane.stop().await;
}
