//! Connections end to end: a real port with TLS, and memory.

mod bounds;
mod early;
mod silence;
mod version1;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::authn::anonymous::Anonymous;
use crate::authn::union::Authentication;
use crate::authn::x509::{ClientAuthorities, X509};
use crate::authz::AlwaysAllow;
use crate::chain::{Chain, ChainConfig, build};
use crate::delegate::{Delegate, Handled};
use crate::pki::{Authority, Issued, Pki, ServingNames};
use crate::request::{Authorized, Body, Request, Response, empty, full};

/// Answers with the user's name and groups.
#[derive(Debug)]
struct WhoAmI;

#[async_trait::async_trait]
impl Delegate for WhoAmI {
    async fn handle(&self, authorized: &Authorized, _request: Request) -> Handled {
        let user = authorized.user();
        Handled::Answered(Response::new(full(format!(
            "{} {}",
            user.name,
            user.groups.join(",")
        ))))
    }
}

fn chain(pki: &Pki) -> Arc<Chain> {
    let authorities = Arc::new(ClientAuthorities::new(&pki.client_ca().unwrap()).unwrap());
    let ways = vec![Arc::new(X509::new(authorities)) as Arc<_>];
    let authenticator = Authentication::new(ways, Some(Anonymous::default()));
    build(ChainConfig::new(
        Arc::new(authenticator),
        Arc::new(AlwaysAllow),
        Arc::new(WhoAmI),
    ))
}

struct Port {
    address: std::net::SocketAddr,
    server: Server,
    stop: CancellationToken,
    pki: Pki,
    metrics: Arc<ConnectionMetrics>,
}

async fn port() -> Port {
    port_with(ConnectionLimits::default()).await
}

async fn port_with(limits: ConnectionLimits) -> Port {
    let pki = Pki::in_memory(&ServingNames::default()).unwrap();
    let chain = chain(&pki);
    let metrics = chain.connection_metrics();
    let server = Server::with_limits(chain, limits);
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.address();
    let mut options = TlsOptions::new(pki.serving_key().unwrap());
    options.client_ca = pki.client_ca().unwrap();
    let tls = Arc::new(Tls::new(options).unwrap());
    let stop = CancellationToken::new();
    let (running, token) = (server.clone(), stop.clone());
    tokio::spawn(async move { running.run(listener, Some(tls), token).await });
    Port {
        address,
        server,
        stop,
        pki,
        metrics,
    }
}

async fn ask(port: &Port, alpn: &[u8], identity: Option<&Issued>) -> (http::StatusCode, String) {
    let shown = identity.map(|identity| {
        let chain = crate::pki::certificates(&identity.certificate).unwrap();
        (chain, identity.key.as_str())
    });
    ask_with(port, rustls::ALL_VERSIONS, alpn, shown).await
}

/// With the certificates that a client shows, and its key in PEM.
async fn ask_with(
    port: &Port,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpn: &[u8],
    shown: Option<(Vec<CertificateDer<'static>>, &str)>,
) -> (http::StatusCode, String) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(port.pki.client_ca().unwrap().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let key = rustls::pki_types::pem::PemObject::from_pem_slice(key.as_bytes()).unwrap();
            let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
            // Whatever it shows: rustls itself would not show a certificate of another version.
            let shown = rustls::sign::CertifiedKey::new(chain, key);
            builder.with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(shown)))
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = tokio::net::TcpStream::connect(port.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn));
    let request = http::Request::get("https://localhost/api/v1/pods").header("host", "localhost");
    let request: http::Request<Body> = request.body(empty()).unwrap();
    let io = TokioIo::new(stream);
    let response = if alpn == b"h2" {
        let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
            .await
            .unwrap();
        tokio::spawn(connection);
        send.send_request(request).await.unwrap()
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        send.send_request(request).await.unwrap()
    };
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn client_certificates_over_tls() {
    let port = port().await;
    let admin = "kubernetes-admin system:masters,system:authenticated";
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let answer = ask(&port, alpn, Some(&port.pki.admin)).await;
        assert_eq!(answer, (http::StatusCode::OK, admin.into()));
        let answer = ask(&port, alpn, None).await;
        assert_eq!(
            answer,
            (
                http::StatusCode::OK,
                "system:anonymous system:unauthenticated".into()
            )
        );
    }

    // A certificate of an unknown authority is a 401, not a broken handshake and not anonymous.
    let stranger = Authority::generate("kubernetes")
        .unwrap()
        .client("mallory", "system:masters")
        .unwrap();
    let (status, body) = ask(&port, b"h2", Some(&stranger)).await;
    assert_eq!(status, 401);
    assert!(body.contains("\"reason\":\"Unauthorized\""), "{body}");

    // So is one whose time is over, and one that is for servers.
    let expired = port
        .pki
        .ca
        .client_for("late", "", time::Duration::seconds(-1))
        .unwrap();
    assert_eq!(ask(&port, b"h2", Some(&expired)).await.0, 401);
    assert_eq!(ask(&port, b"h2", Some(&port.pki.serving)).await.0, 401);

    port.stop.cancel();
    port.server.drain(Duration::from_secs(5)).await;
    assert_eq!(port.server.connections(), 0);
}

#[tokio::test]
async fn in_memory() {
    let pki = Pki::in_memory(&ServingNames::default()).unwrap();
    let server = Server::new(chain(&pki));
    let shown = crate::pki::certificates(&pki.admin.certificate).unwrap();
    let info = ConnectionInfo::new("127.0.0.1:9".parse().unwrap(), shown);
    let io = TokioIo::new(server.connect_in_memory(info));
    let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/api/v1/pods").header("host", "localhost");
    let request: http::Request<Body> = request.body(empty()).unwrap();
    let response = send.send_request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"kubernetes-admin system:masters,system:authenticated");
    drop(send);
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn draining_cuts_endless_requests() {
    let port = port().await;
    // A client that connects and says nothing.
    let _silent = tokio::net::TcpStream::connect(port.address).await.unwrap();
    let connected = async {
        while port.server.connections() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), connected)
        .await
        .unwrap();
    port.server.drain(Duration::ZERO).await;
    assert_eq!(port.server.connections(), 0);
}
