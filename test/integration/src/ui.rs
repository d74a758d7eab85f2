//! The status page: its files, who may load them, its document, and requests that other sites make browsers send.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use control_plane::ControlPlane;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use test_support::{Answer, Client, plane, plane_with};

const STATUS: &str = "/debug/status";

async fn ask(client: &Client, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut client = client.clone();
    for (name, value) in headers {
        client = client.header(name, value);
    }
    client.raw(method, path, "", "").await
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer
        .headers
        .get(name)
        .map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test]
async fn files_have_strict_headers_and_are_revalidated() {
    let (plane, client) = plane().await;
    let page = ask(&client, "GET", "/ui/", &[]).await;
    assert_eq!(page.status, 200);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    let policy = header(&page, "content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-cache"),
        ("vary", "Accept-Encoding"),
    ] {
        assert_eq!(header(&page, name), value, "{name}");
    }

    let tag = header(&page, "etag").to_string();
    let known = ask(&client, "GET", "/ui/", &[("if-none-match", &tag)]).await;
    assert_eq!((known.status, known.body.len()), (304, 0));
    assert_eq!(header(&known, "etag"), tag);
    let other = ask(&client, "GET", "/ui/", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(other.status, 200);

    let packed = ask(&client, "GET", "/ui/app.js", &[("accept-encoding", "br, gzip")]).await;
    let plain = ask(&client, "GET", "/ui/app.js", &[]).await;
    assert_eq!(header(&packed, "content-encoding"), "gzip");
    assert_eq!(header(&plain, "content-encoding"), "");
    assert_ne!(header(&packed, "etag"), header(&plain, "etag"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*packed.body)
        .read_to_end(&mut unpacked)
        .expect("gzip");
    assert_eq!(unpacked, plain.body);

    let head = ask(&client, "HEAD", "/ui/app.js", &[]).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(header(&head, "content-length"), plain.body.len().to_string());

    let moved = ask(&client, "GET", "/ui", &[]).await;
    assert_eq!((moved.status, header(&moved, "location")), (301, "ui/"));
    for path in [
        "/ui/none.js",
        "/ui/../version/x",
        "/ui/app.js/",
        "/ui/%2e%2e/metrics",
        "/uix",
    ] {
        assert_eq!(ask(&client, "GET", path, &[]).await.status, 404, "{path}");
    }
    assert_eq!(ask(&client, "POST", "/ui/", &[]).await.status, 405);
    plane.stop().await;
}

#[tokio::test]
async fn files_are_for_everybody_and_figures_for_those_who_may() {
    let (plane, admin) = plane().await;
    let anonymous = admin.anonymous(plane.ca_certificate());
    let user = control_plane::User {
        name: "reader".into(),
        ..control_plane::User::default()
    };
    let token = format!("Bearer {}", plane.token_for(&user));
    let reader = anonymous.clone().header("authorization", &token);
    for client in [&anonymous, &reader, &admin] {
        for path in ["/ui", "/ui/", "/ui/style.css"] {
            assert!(ask(client, "GET", path, &[]).await.status < 400, "{path}");
        }
    }
    for client in [&anonymous, &reader] {
        assert_eq!(ask(client, "GET", STATUS, &[]).await.status, 403);
        assert_eq!(ask(client, "POST", "/ui/", &[]).await.status, 403);
        assert_eq!(ask(client, "GET", "/uix", &[]).await.status, 403);
    }
    let wrong = anonymous.clone().header("authorization", "Bearer wrong");
    assert_eq!(ask(&wrong, "GET", "/ui/", &[]).await.status, 401);

    let status = admin.get(STATUS).await.expect(200);
    assert!(
        status["readySince"].as_u64() >= status["startedAt"].as_u64(),
        "{status}"
    );
    assert_eq!(status["stores"][0]["engine"], "memory");
    assert!(status["stores"][0]["revision"].as_u64() > Some(0), "{status}");
    let certificates = status["certificates"].as_array().expect("certificates");
    assert!(certificates.len() >= 5, "{status}");
    for one in certificates {
        assert!(one["notAfter"].as_u64() > one["notBefore"].as_u64(), "{one}");
    }
    assert!(!status.to_string().contains("PRIVATE"), "{status}");
    assert_eq!(ask(&admin, "DELETE", STATUS, &[]).await.status, 405);
    plane.stop().await;
}

#[tokio::test]
async fn without_anonymous_requests_files_are_for_users() {
    let (plane, admin) =
        plane_with(|builder| builder.with(|options| options.authentication.anonymous_auth = Some(false)))
            .await;
    let anonymous = admin.anonymous(plane.ca_certificate());
    assert_eq!(ask(&anonymous, "GET", "/ui/", &[]).await.status, 401);
    assert_eq!(ask(&admin, "GET", "/ui/", &[]).await.status, 200);
    plane.stop().await;
}

#[tokio::test]
async fn the_flag_turns_the_page_off() {
    let (plane, admin) = plane_with(|builder| builder.with(|options| options.enable_ui = false)).await;
    for path in ["/ui", "/ui/", "/ui/app.js", STATUS] {
        assert_eq!(ask(&admin, "GET", path, &[]).await.status, 404, "{path}");
    }
    let anonymous = admin.anonymous(plane.ca_certificate());
    assert_eq!(ask(&anonymous, "GET", "/ui/", &[]).await.status, 403);
    plane.stop().await;
}

/// A browser adds the client certificate to a POST of any page, and sends one without a media type unasked.
#[tokio::test]
async fn other_sites_cannot_write_with_a_browsers_certificate() {
    let (plane, admin) = plane().await;
    let (path, map) = (
        "/api/v1/namespaces/default/configmaps",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"forged"}}"#,
    );
    for site in ["cross-site", "same-site"] {
        let browser = admin.clone().header("sec-fetch-site", site);
        let browser = browser.header("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
        let refused = browser.raw("POST", path, "", map).await;
        assert_eq!(refused.status, 403, "{site}");
        let message = refused.json["message"].as_str().unwrap_or_default();
        assert!(message.contains("cross-site request of a browser"), "{message}");
        assert_eq!(browser.get("/version").await.status, 200);
    }
    let stored: Value = admin.get(path).await.expect(200);
    assert!(!stored.to_string().contains("forged"));
    for site in ["same-origin", "none"] {
        let browser = admin.clone().header("sec-fetch-site", site);
        let dry = format!("{path}?dryRun=All");
        assert_eq!(browser.raw("POST", &dry, "", map).await.status, 201, "{site}");
    }
    // A script of a pod's page that is to answer for all pages of the origin.
    let worker = admin.clone().header("service-worker", "script");
    assert_eq!(worker.get("/ui/app.js").await.status, 403);
    plane.stop().await;
}

/// Chromium says of a WebSocket's page its `Origin` alone.
#[tokio::test]
async fn other_origins_cannot_open_sockets_with_a_browsers_certificate() {
    let (plane, admin) = plane().await;
    let host = plane.url();
    let path = "/api/v1/namespaces/default/configmaps?watch=true";
    for (origin, opens) in [
        ("https://evil.example", false),
        ("null", false),
        (host.as_str(), true),
    ] {
        let headers = [
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
            ("origin", origin),
        ];
        let answer = admin.upgrade("GET", path, &headers).await;
        match answer {
            Ok(_) => assert!(opens, "{origin}"),
            Err(refused) => assert_eq!((refused.status, opens), (403, false), "{origin}"),
        }
    }
    plane.stop().await;
}

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

/// An HTTP/2 connection without credentials, as a browser has it.
async fn browsers_connection(plane: &ControlPlane) -> Sender {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(plane.ca_certificate().as_bytes()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(plane.address())
        .await
        .expect("a connection");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    let io = TokioIo::new(stream.expect("TLS"));
    let (send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .expect("HTTP/2");
    tokio::spawn(connection);
    send
}

/// How many answers a connection has for a path before it ends, up to a number.
async fn answers(plane: &ControlPlane, path: &str, most: usize) -> usize {
    let mut send = browsers_connection(plane).await;
    for count in 0..most {
        let request = http::Request::get(format!("https://localhost{path}")).body(Full::default());
        if send.ready().await.is_err() {
            return count;
        }
        let Ok(answer) = send.send_request(request.expect("a request")).await else {
            return count;
        };
        assert_eq!(answer.status(), 200);
        // The connection may end between the answer and its end.
        let _ = answer.into_body().collect().await;
    }
    most
}

/// A page whose scripts need a connection each is not loaded whole by a browser that opens few.
#[tokio::test]
async fn the_page_is_loaded_over_one_connection() {
    let (plane, _) = plane().await;
    assert_eq!(answers(&plane, "/ui/app.js", 50).await, 50);
    let bound = usize::try_from(machinery::limits::STATIC_FILES).expect("small");
    assert!(answers(&plane, "/ui/app.js", 10 * bound).await < 2 * bound);
    assert!(answers(&plane, "/version", 50).await < 5);
    plane.stop().await;
}
