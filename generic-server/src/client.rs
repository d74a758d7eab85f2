//! The client side: how other servers are reached and trusted, and a TLS connection as hyper's client reads and
//! writes it.

mod bearer;
mod connect;
mod deprecated;
pub mod egress;
mod outgoing;
mod tcp;
pub mod trust;
mod wire;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as PooledConnection};
use hyper_util::rt::TokioIo;
use tokio_rustls::client::TlsStream;

pub(crate) use bearer::BearerToken;
pub(crate) use connect::refusal_of;
pub use connect::{connect, dial, fault_of, secure};
pub use deprecated::DeprecatedCertificates;
pub use outgoing::{Answer, Outgoing, SendError, late};
pub use tcp::{Fault, authority, is_forbidden};
pub use wire::{Connection, Io, Wire};

/// A connection that knows whether it speaks HTTP/2.
#[derive(Debug)]
pub struct TlsIo {
    stream: TokioIo<TlsStream<Wire>>,
    h2: bool,
}

impl TlsIo {
    /// Of a connection whose handshake is done.
    pub fn new(stream: TlsStream<Wire>) -> Self {
        let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        TlsIo {
            stream: TokioIo::new(stream),
            h2,
        }
    }
}

impl PooledConnection for TlsIo {
    fn connected(&self) -> Connected {
        if self.h2 {
            Connected::new().negotiated_h2()
        } else {
            Connected::new()
        }
    }
}

impl Read for TlsIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for TlsIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
