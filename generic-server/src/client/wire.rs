//! The bytes below TLS: a TCP connection to the peer itself, or a connection through a proxy that joins it with the peer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Anything that is read and written.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// A connection of any kind.
pub type Io = Box<dyn Connection>;

/// A connection to a peer, in plain text.
pub enum Wire {
    /// To the peer's own address.
    Direct(TcpStream),
    /// Through a proxy.
    Proxied(Io),
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wire::Direct(stream) => f.debug_tuple("Direct").field(stream).finish(),
            Wire::Proxied(_) => f.write_str("Proxied"),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Proxied(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Direct(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Proxied(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Direct(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Wire::Proxied(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Direct(stream) => stream.is_write_vectored(),
            Wire::Proxied(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Direct(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Proxied(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Proxied(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
