//! Connections: the TLS handshake, HTTP/1.1 or HTTP/2 on top, one task each, and their orderly end.
//!
//! Invariants: every connection is in the [`Registry`] from its acceptance to its last byte, and no connection is without a
//! clock: until the protocol is known by a time-out here, from then on by [`clock::drive`].

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use machinery::limits;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::clock::{self, Protocol};
use super::head;
use super::io::{Metered, Prefixed};
use super::limits::ConnectionLimits;
use super::listener::{AcceptError, Backoff, Listener};
use super::registry::{Place, Registry};
use super::tls::Tls;
use super::unread::{Unread, Watched};
use crate::metrics::{Closed, ConnectionMetrics};
use crate::request::{ConnectionInfo, GuardedBody, Request, Response, empty};
use crate::spawn::Tasks;

/// Upstream's size of most bodies: the bytes that one stream may send before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// A connection that is silent for this long is asked whether it still lives.
const PING_EVERY: Duration = Duration::from_secs(30);
/// And given this long to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How every HTTP/2 connection begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Answers requests; the handler chain is one.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Never fails: an error is an answer.
    fn handle(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>>;

    /// Where the connections that its requests come by are counted.
    fn connection_metrics(&self) -> Arc<ConnectionMetrics>;
}

/// Serves connections and owns them.
#[derive(Clone)]
pub struct Server {
    handler: Arc<dyn Handler>,
    http1: Arc<http1::Builder>,
    http2: Arc<http2::Builder<TokioExecutor>>,
    registry: Arc<Registry>,
    tasks: Tasks,
    /// Streams that wait for their reset.
    resets: Tasks,
    draining: CancellationToken,
}

impl Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("connections", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server without connections, which takes as many as the process has descriptors for.
    pub fn new(handler: Arc<dyn Handler>) -> Self {
        Self::with_limits(handler, ConnectionLimits::default().within_descriptors())
    }

    /// A server without connections.
    pub fn with_limits(handler: Arc<dyn Handler>, limits: ConnectionLimits) -> Self {
        let streams = limits.streams;
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            // The connection's clock bounds heads, and idle connections by another figure.
            .header_read_timeout(None)
            .max_buf_size(limits::HEADER_BYTES);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW * 16)
            .max_frame_size(STREAM_WINDOW)
            .max_send_buf_size(limits::PIECE_BYTES)
            .max_header_list_size(u32::try_from(limits::HEADER_BYTES).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        Server {
            registry: Registry::new(limits, handler.connection_metrics()),
            handler,
            http1: Arc::new(http1),
            http2: Arc::new(http2),
            tasks: Tasks::new(),
            resets: Tasks::new(),
            draining: CancellationToken::new(),
        }
    }

    /// Accepts connections until `stop` fires; without `tls` in plain text.
    pub async fn run(&self, listener: Listener, tls: Option<Arc<Tls>>, stop: CancellationToken) {
        let mut backoff = Backoff::default();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                () = self.draining.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    backoff = Backoff::default();
                    self.take(stream, peer, tls.as_ref().map(|tls| tls.current()));
                }
                Err(AcceptError::Client) => {}
                Err(AcceptError::Server { error, exhausted }) => {
                    let pause = backoff.next();
                    tracing::warn!(%error, pause_ms = pause.as_millis(), "cannot accept a connection");
                    self.registry
                        .metrics()
                        .accept_errors
                        .fetch_add(1, Ordering::Relaxed);
                    if exhausted {
                        self.registry.close_one();
                    }
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// Serves a connection that was accepted, if there is a place for it.
    fn take(&self, stream: TcpStream, peer: SocketAddr, tls: Option<Arc<ServerConfig>>) {
        let Some(place) = self.registry.admit(self.draining.child_token()) else {
            tracing::debug!(client.address = %peer, "too many connections");
            return;
        };
        let server = self.clone();
        self.tasks.spawn("connection", async move {
            let stream = Prefixed::new(stream);
            let Some(tls) = tls else {
                let info = ConnectionInfo::new(peer, Vec::new());
                return server.serve(stream, None, place, info).await;
            };
            let opened = place.activity.opened();
            let shaken = tokio::select! {
                () = place.activity.closing.cancelled() => return,
                shaken = tokio::time::timeout_at(opened + server.registry.limits().head, handshake(tls, stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => {
                    let (_, tls) = stream.get_ref();
                    let shown = tls.peer_certificates().unwrap_or_default();
                    let shown = shown.iter().map(|c| c.clone().into_owned()).collect();
                    let protocol = tls.alpn_protocol().map(|name| match name {
                        b"h2" => Protocol::Http2,
                        _ => Protocol::Http1,
                    });
                    let info = ConnectionInfo::new(peer, shown);
                    server.serve(Prefixed::new(stream), protocol, place, info).await;
                }
                Ok(Err(error)) => server.handshake_failed(peer, &error.to_string()),
                Err(_) => {
                    server.registry.metrics().closed(Closed::Head);
                    server.handshake_failed(peer, "timed out");
                }
            }
        });
    }

    fn handshake_failed(&self, peer: SocketAddr, why: &str) {
        tracing::debug!(client.address = %peer, error = why, "TLS handshake failed");
        let errors = &self.registry.metrics().handshake_errors;
        errors.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection in memory: the returned end speaks HTTP/1.1 or HTTP/2 (with prior knowledge) in plain text. Its other end is
    /// closed when there are too many connections.
    pub fn connect_in_memory(&self, info: ConnectionInfo) -> DuplexStream {
        let (client, stream) = tokio::io::duplex(64 * 1024);
        if let Some(place) = self.registry.admit(self.draining.child_token()) {
            let server = self.clone();
            self.tasks.spawn("connection", async move {
                server.serve(Prefixed::new(stream), None, place, info).await;
            });
        }
        client
    }

    /// Serves HTTP on a stream. The protocol is what the client begins with, unless it is known.
    async fn serve<S>(
        &self,
        mut stream: Prefixed<S>,
        protocol: Option<Protocol>,
        place: Place,
        mut info: ConnectionInfo,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let protocol = match protocol {
            Some(protocol) => protocol,
            None => {
                let look = stream.look(PREFACE.len(), |seen| PREFACE.starts_with(seen));
                let limit = place.activity.opened() + self.registry.limits().head;
                let seen = tokio::select! {
                    () = place.activity.closing.cancelled() => return,
                    seen = tokio::time::timeout_at(limit, look) => seen,
                };
                match seen {
                    Ok(Ok(PREFACE)) => Protocol::Http2,
                    Ok(Ok(_)) => Protocol::Http1,
                    Ok(Err(_)) => return,
                    Err(_) => return self.registry.metrics().closed(Closed::Head),
                }
            }
        };
        info.closing = place.activity.closing.clone();
        let (info, requests) = (Arc::new(info), place.requests());
        let unread = Unread::new(protocol, self.resets.clone());
        let stream = TokioIo::new(Metered::new(stream, place, unread.clone()));
        let (facts, running, handler) = (info.clone(), requests.clone(), self.handler.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let running = running.begin();
            let unread = unread.clone();
            let has_body = !HttpBody::is_end_stream(request.body());
            let answer = answer(&handler, &facts, request, &unread);
            async move {
                let mut response = answer.await;
                unread.settle(has_body, &mut response).await;
                // The request runs until all of its answer is handed over.
                let answer = response.map(|body| GuardedBody::new(body, running));
                Ok::<_, Infallible>(answer)
            }
        });
        let outcome = match protocol {
            Protocol::Http1 => {
                let connection = self.http1.serve_connection(stream, service).with_upgrades();
                clock::drive(connection, |c| c.graceful_shutdown(), protocol, &requests).await
            }
            Protocol::Http2 => {
                let connection = self.http2.serve_connection(stream, service);
                clock::drive(connection, |c| c.graceful_shutdown(), protocol, &requests).await
            }
        };
        requests.detach();
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
        self.resets.stop(Duration::from_secs(1)).await;
    }
}

/// The TLS handshake. Clients that speak HTTP instead get an answer that says so, in Go's words.
async fn handshake(
    tls: Arc<ServerConfig>,
    mut stream: Prefixed<TcpStream>,
) -> io::Result<tokio_rustls::server::TlsStream<Prefixed<TcpStream>>> {
    let start = stream.look(head::RECORD_HEADER, |_| true).await?;
    if head::looks_like_http(start) {
        let stream = stream.inner_mut();
        stream.write_all(head::PLAIN_HTTP).await?;
        stream.shutdown().await?;
        // The rest of the client's bytes is read: closing a socket with unread bytes would reset it and lose the answer.
        let most = u64::try_from(limits::HEADER_BYTES).unwrap_or(u64::MAX);
        tokio::io::copy(&mut stream.take(most), &mut tokio::io::sink()).await?;
        return Err(io::Error::other("client sent an HTTP request to an HTTPS server"));
    }
    TlsAcceptor::from(tls).accept(stream).await
}

fn answer(
    handler: &Arc<dyn Handler>,
    info: &Arc<ConnectionInfo>,
    request: http::Request<Incoming>,
    unread: &Arc<Unread>,
) -> Pin<Box<dyn Future<Output = Response> + Send>> {
    let (mut parts, body) = request.into_parts();
    unread.begin();
    let body = match HttpBody::is_end_stream(&body) {
        true => empty(),
        false => Watched::new(body, &parts.headers, unread.clone()).boxed_unsync(),
    };
    if let Err(refusal) = head::check(parts.version, &parts.method, &parts.headers) {
        return Box::pin(std::future::ready(*refusal));
    }
    parts.extensions.insert(info.clone());
    handler.clone().handle(Request::from_parts(parts, body))
}
