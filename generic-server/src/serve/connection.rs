//! Connections: the TLS handshake, HTTP/1.1 or HTTP/2 on top, one task each, and their orderly end.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::listener::Listener;
use super::tls::Tls;
use crate::authn::x509::CachedVerdicts;
use crate::request::{Request, Response, empty};
use crate::spawn::Tasks;

/// Upstream's bound for one HTTP/2 connection.
const MAX_STREAMS: u32 = 250;
/// Upstream's size of most bodies: what one stream may send before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// As Go's default for headers.
const MAX_HEADERS: u32 = 1 << 20;
/// Upstream's `ReadHeaderTimeout`; Go bounds handshakes by it too.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// A connection that is silent for this long is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(30);
/// And given this long to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Answers requests; the handler chain is one.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Never fails: an error is an answer.
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>>;
}

/// What is known of the connection that a request came by. In the request's extensions as `Arc<ConnectionInfo>`.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// The certificates that the client showed, its own first. *Not verified*: the x509 authenticators do that.
    pub client_certificates: Vec<CertificateDer<'static>>,
    /// What verifiers found of them, so that each connection pays once.
    pub(crate) verdicts: CachedVerdicts,
    closing: CancellationToken,
}

impl ConnectionInfo {
    /// A connection from an address with what the client showed of itself.
    pub fn new(peer: SocketAddr, client_certificates: Vec<CertificateDer<'static>>) -> Self {
        ConnectionInfo {
            peer,
            client_certificates,
            verdicts: CachedVerdicts::default(),
            closing: CancellationToken::new(),
        }
    }

    /// Asks for the connection to end once its requests are answered: GOAWAY on HTTP/2, `Connection: close` on HTTP/1.1.
    pub fn close_when_idle(&self) {
        self.closing.cancel();
    }
}

/// Serves connections and owns them.
#[derive(Clone)]
pub struct Server {
    handler: Arc<dyn Handler>,
    http: Arc<auto::Builder<TokioExecutor>>,
    tasks: Tasks,
    draining: CancellationToken,
    handshake_failures: Arc<AtomicU64>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("connections", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server without connections.
    pub fn new(handler: Arc<dyn Handler>) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADERS as usize);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * 16)
            .max_frame_size(STREAM_WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Server {
            handler,
            http: Arc::new(http),
            tasks: Tasks::new(),
            draining: CancellationToken::new(),
            handshake_failures: Arc::default(),
        }
    }

    /// The same, counting failed TLS handshakes there.
    #[must_use]
    pub fn counting_failures(mut self, failures: Arc<AtomicU64>) -> Self {
        self.handshake_failures = failures;
        self
    }

    /// Accepts connections until `stop` fires; without `tls` in plain text.
    pub async fn run(&self, listener: Listener, tls: Option<Arc<Tls>>, stop: CancellationToken) {
        loop {
            let (stream, peer) = tokio::select! {
                () = stop.cancelled() => return,
                () = self.draining.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let server = self.clone();
            let tls = tls.as_ref().map(|tls| tls.current());
            self.tasks.spawn("connection", async move {
                let Some(tls) = tls else {
                    return server.drive(stream, ConnectionInfo::new(peer, Vec::new())).await;
                };
                let handshake = TlsAcceptor::from(tls).accept(stream);
                match tokio::time::timeout(HEADER_TIMEOUT, handshake).await {
                    Ok(Ok(stream)) => {
                        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                        let shown = shown.iter().map(|c| c.clone().into_owned()).collect();
                        server.drive(stream, ConnectionInfo::new(peer, shown)).await;
                    }
                    Ok(Err(error)) => server.handshake_failed(peer, &error.to_string()),
                    Err(_) => server.handshake_failed(peer, "timed out"),
                }
            });
        }
    }

    fn handshake_failed(&self, peer: SocketAddr, why: &str) {
        tracing::debug!(client.address = %peer, error = why, "TLS handshake failed");
        self.handshake_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection in memory: the returned end speaks HTTP/1.1 or HTTP/2 (with prior knowledge) in plain text.
    pub fn connect_in_memory(&self, info: ConnectionInfo) -> DuplexStream {
        let (client, stream) = tokio::io::duplex(64 * 1024);
        let server = self.clone();
        self.tasks
            .spawn("connection", async move { server.drive(stream, info).await });
        client
    }

    async fn drive<S>(&self, stream: S, info: ConnectionInfo)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let info = Arc::new(info);
        let facts = info.clone();
        let handler = self.handler.clone();
        let service = service_fn(move |request: http::Request<Incoming>| {
            let handler = handler.clone();
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(facts.clone());
            let body = if body.is_end_stream() {
                empty()
            } else {
                body.map_err(Into::into).boxed_unsync()
            };
            async move { Ok::<_, Infallible>(handler.handle(Request::from_parts(parts, body)).await) }
        });
        let connection = self
            .http
            .serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = async { tokio::select! { () = self.draining.cancelled() => {}, () = info.closing.cancelled() => {} } } => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            // A client that went away: its business.
            tracing::trace!(client.address = %info.peer, %error, "connection ended");
        }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.tasks.len()
    }

    /// Lets connections finish their requests, and ends those that are still there after `limit`.
    pub async fn drain(&self, limit: Duration) {
        self.draining.cancel();
        let waited = tokio::time::timeout(limit, async {
            while !self.tasks.is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        if waited.await.is_err() {
            tracing::warn!(connections = self.connections(), "connections are cut");
        }
        self.tasks.stop(Duration::from_secs(1)).await;
    }
}
