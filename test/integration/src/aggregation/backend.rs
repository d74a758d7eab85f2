//! A well-behaved backend, over HTTP/2 or HTTP/1.1, that records its requests. It can die, and the way to it can go dead.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use generic_server::pki::Authority;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::faulty::{issued, server_config};

/// The HTTP version of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    Http2,
}

/// The requests that a backend has received, and their clients.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Requests and watches that have not ended.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Requests answered or under way.
    pub(super) asked: AtomicUsize,
    /// The certificate of the last client.
    pub(super) client: Mutex<Option<CertificateDer<'static>>>,
}

/// The running backend; it dies with the value, and its connections with it.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    _serving: JoinSet<()>,
}

/// The identity of a backend.
#[derive(Debug)]
pub(super) struct Identity<'a> {
    pub(super) authority: &'a Authority,
    /// The service in the namespace default that it stands behind.
    pub(super) service: &'a str,
    /// Clients show certificates of its own authority.
    pub(super) asks_clients: bool,
}

impl Backend {
    /// One that listens at this address.
    pub(super) async fn start(of: &Identity<'_>, at: &str, speaks: Speaks) -> Self {
        let issued = issued(of.authority, of.service);
        let clients = of.asks_clients.then(|| verifier(&of.authority.certificate));
        let mut config = server_config(&issued.certificate, &issued.key, clients);
        config.alpn_protocols = match speaks {
            Speaks::Http1 => vec![b"http/1.1".to_vec()],
            Speaks::Http2 => vec![b"h2".to_vec()],
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(at).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let of_server = seen.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, acceptor.clone(), of_server.clone(), address));
            }
        });
        Backend {
            address,
            seen,
            _serving: serving,
        }
    }

    /// How many requests and watches it has that have not ended.
    pub(super) fn waiting(&self) -> usize {
        self.seen.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self) -> usize {
        self.seen.asked.load(Ordering::Relaxed)
    }
}

fn verifier(authority: &str) -> Arc<dyn ClientCertVerifier> {
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate");
    roots.add(root).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("a verifier")
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: Arc<Seen>, address: SocketAddr) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    *seen.client.lock() = shown.map(|certificate| certificate.clone().into_owned());
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move { Ok::<_, Infallible>(answer(&seen, &request, address).await) }
    });
    // A client that goes away is no failure of a test.
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// By the last part of the path: `wait` never answers. A watch sends one event and lasts.
async fn answer(
    seen: &Seen,
    request: &Request<Incoming>,
    address: SocketAddr,
) -> Response<BoxBody<Bytes, Infallible>> {
    let path = request.uri().path();
    let whole = |text: String| Response::new(http_body_util::Full::new(Bytes::from(text)).boxed());
    if path.starts_with("/openapi") || path == "/apis" {
        let mut none = whole(String::new());
        *none.status_mut() = http::StatusCode::NOT_FOUND;
        return none;
    }
    if let Some(group) = path
        .strip_prefix("/apis/")
        .and_then(|rest| rest.strip_suffix("/v1"))
    {
        let list = json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1"), "resources": []});
        return whole(list.to_string());
    }
    seen.asked.fetch_add(1, Ordering::Relaxed);
    let waiting = Waiting::new(&seen.waiting);
    if path.ends_with("/wait") {
        std::future::pending::<()>().await;
    }
    if request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch=1"))
    {
        let lasting = Lasting {
            sent: false,
            _waiting: waiting,
        };
        return Response::new(lasting.boxed());
    }
    whole(json!({"address": address.to_string()}).to_string())
}

/// Counts while it is there.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One event, and then nothing.
struct Lasting {
    sent: bool,
    _waiting: Waiting,
}

impl Body for Lasting {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if std::mem::replace(&mut self.sent, true) {
            return Poll::Pending;
        }
        let event = json!({"type": "ADDED", "object": {}});
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("{event}\n"))))))
    }
}

/// A network path to a backend that can go dead: bytes are lost without an error.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) address: SocketAddr,
    dead: watch::Sender<bool>,
    _relaying: JoinSet<()>,
}

impl Way {
    pub(super) async fn to(backend: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let dead = watch::Sender::new(false);
        let cut = dead.subscribe();
        let mut relaying = JoinSet::new();
        relaying.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                open.spawn(relay(near, backend, cut.clone()));
            }
        });
        Way {
            address,
            dead,
            _relaying: relaying,
        }
    }

    pub(super) fn goes_dead(&self) {
        self.dead.send_replace(true);
    }
}

async fn relay(mut near: TcpStream, backend: SocketAddr, mut dead: watch::Receiver<bool>) {
    let mut far = TcpStream::connect(backend).await.expect("the backend");
    tokio::select! {
        biased;
        () = async { drop(dead.wait_for(|dead| *dead).await) } => std::future::pending().await,
        _ = copy_bidirectional(&mut near, &mut far) => {}
    }
}
