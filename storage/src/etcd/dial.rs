//! How members are connected to, where that is not a TCP connection to their address.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

/// A connection to a member.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// Opens connections to `host:port`. TLS is spoken on top of them.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(String) -> Dialled + Send + Sync>);

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dialer")
    }
}

impl Dialer {
    /// Opens connections by a function of `host:port`.
    pub fn new<F, C, O>(open: O) -> Self
    where
        O: Fn(String) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<C>> + Send + 'static,
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Dialer(Arc::new(move |authority| {
            let opened = open(authority);
            Box::pin(async move { opened.await.map(|io| Box::new(io) as Box<dyn Connection>) })
        }))
    }

    /// Opens connections for a gRPC channel.
    pub(super) fn connector(
        &self,
    ) -> impl Service<Uri, Response = TokioIo<Box<dyn Connection>>, Error = io::Error, Future: Send>
    + Send
    + 'static
    + use<> {
        let open = Arc::clone(&self.0);
        tower::service_fn(move |uri: Uri| {
            // 2379 would be a guess: gRPC goes to the scheme's port, too.
            let port = uri.port_u16().unwrap_or(match uri.scheme_str() {
                Some("https") => 443,
                _ => 80,
            });
            let opened = open(format!("{}:{port}", uri.host().unwrap_or_default()));
            async move { opened.await.map(TokioIo::new) }
        })
    }
}
