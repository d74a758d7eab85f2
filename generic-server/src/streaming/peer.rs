//! The server at the other end, and connections to it: one for each request, so that either side's end is the other's at once.

use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use machinery::limits;
use rustix::net::sockopt;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::client::egress::Route;
use crate::client::{self, Fault, Io, Wire, fault_of};
use crate::request::{Body, BoxError};
use crate::spawn::Tasks;

/// A node that is silent for this long is asked whether it is there, and so often before it counts as gone: 30 seconds in all. Upstream
/// needs 150.
const SILENCE: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// A server to connect to.
#[derive(Debug, Clone)]
pub struct Peer {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How TLS is spoken; `None` for plain text.
    pub tls: Option<Arc<ClientConfig>>,
    /// The addresses that the host may resolve to.
    pub permitted: fn(IpAddr) -> bool,
    /// The way there.
    pub route: Route,
    /// How long a connection may take to come about.
    pub within: Duration,
    /// Held for as long as a connection lasts.
    pub seat: Option<Arc<dyn Debug + Send + Sync>>,
}

/// A connection, and what is held until it is dropped.
pub(super) struct Held<C> {
    io: C,
    _held: Option<Arc<dyn Debug + Send + Sync>>,
}

impl<C> Held<C> {
    pub(super) fn new(io: C, held: Option<Arc<dyn Debug + Send + Sync>>) -> Self {
        Held { io, _held: held }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Held<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Held<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Peer {
    /// `host:port`.
    pub fn authority(&self) -> String {
        client::authority(&self.host, self.port)
    }

    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Connects.
    ///
    /// # Errors
    /// Why not, as upstream says it.
    pub async fn connect(&self) -> Result<Io, Fault> {
        let authority = self.authority();
        let stream = client::dial(&self.route, &authority, self.permitted, self.within).await?;
        if let Wire::Direct(stream) = &stream
            && let Err(error) = keep_alive(stream)
        {
            tracing::debug!(%error, "cannot set options of a connection");
        }
        let stream = Held::new(stream, self.seat.clone());
        let Some(config) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(self.host.clone()).map_err(|_| {
            Fault(format!(
                "tls: {} is no name of a server",
                machinery::go::quote(&self.host)
            ))
        })?;
        let connector = TlsConnector::from(config.clone());
        Ok(Box::new(
            client::secure(&connector, &name, stream, self.within).await?,
        ))
    }
}

/// Lets the operating system find out about a node that is gone.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

/// The task that drives a connection; it ends with its owner.
#[derive(Debug)]
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    pub(super) fn new(task: JoinHandle<()>) -> Self {
        Driver(task)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A body that owns its connection.
#[derive(Debug)]
struct Owned {
    body: Incoming,
    _driver: Driver,
}

impl HttpBody for Owned {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer whose body ends its connection when it is dropped.
pub(super) fn owned(response: http::Response<Incoming>, driver: Driver) -> http::Response<Body> {
    response.map(|body| {
        Owned {
            body,
            _driver: driver,
        }
        .boxed_unsync()
    })
}

/// The settings of every connection.
pub(super) fn settings() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(limits::HEADER_BYTES);
    builder
}

/// Sends a request, whose URI is path and query, on a connection of its own.
///
/// # Errors
/// Why there is no answer, as upstream says it.
pub async fn exchange(
    tasks: &Tasks,
    peer: &Peer,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, Fault> {
    let fault = |error: hyper::Error| Fault(fault_of(&error));
    let io = peer.connect().await?;
    let (mut sender, connection) = settings().handshake(TokioIo::new(io)).await.map_err(fault)?;
    let driver = Driver::new(tasks.spawn("node connection", async move {
        // Its failure reaches the request that waits on it.
        let _ = connection.await;
    }));
    let response = sender.send_request(request).await.map_err(fault)?;
    let status = response.status();
    if status.is_informational() {
        // It is no answer, and nobody asked for another protocol.
        return Err(Fault(format!("unexpected status code {}", status.as_u16())));
    }
    Ok(owned(response, driver))
}
