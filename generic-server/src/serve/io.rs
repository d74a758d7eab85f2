//! Streams under a connection: one that gives back what was read of it too early, and one that counts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::registry::Place;
use super::unread::{Linger, Unread};

/// A stream whose first bytes may be peeked at before they are read.
#[derive(Debug)]
pub(super) struct Prefixed<S> {
    /// Bytes that were peeked and not read yet.
    seen: Bytes,
    inner: S,
}

impl<S: AsyncRead + Unpin> Prefixed<S> {
    pub(super) fn new(inner: S) -> Self {
        Prefixed {
            seen: Bytes::new(),
            inner,
        }
    }

    /// Reads as long as `more` says so of the bytes so far, and leaves them in front. Gives them; fewer at the stream's end.
    ///
    /// # Errors
    /// The error of reading.
    pub(super) async fn look(&mut self, most: usize, more: impl Fn(&[u8]) -> bool) -> io::Result<&[u8]> {
        let mut seen = Vec::with_capacity(most);
        seen.extend_from_slice(&self.seen);
        while seen.len() < most && more(&seen) {
            let left = u64::try_from(most - seen.len()).unwrap_or(u64::MAX);
            if (&mut self.inner).take(left).read_buf(&mut seen).await? == 0 {
                break;
            }
        }
        self.seen = seen.into();
        Ok(&self.seen)
    }

    pub(super) fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.seen.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let some = self.seen.len().min(buf.remaining());
        buf.put_slice(&self.seen[..some]);
        self.seen.advance(some);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A stream that counts its bytes, and has its connection's place for as long as it is there: an upgraded one too.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    place: Place,
    unread: Arc<Unread>,
    /// Its end, once its write side is shut while a client may be sending.
    linger: Option<Linger>,
}

impl<S> Metered<S> {
    pub(super) fn new(inner: S, place: Place, unread: Arc<Unread>) -> Self {
        Metered {
            inner,
            place,
            unread,
            linger: None,
        }
    }

    fn wrote(&self, count: usize) {
        let count = u64::try_from(count).unwrap_or_default();
        self.place.activity.written.fetch_add(count, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let count = u64::try_from(buf.filled().len() - before).unwrap_or_default();
        self.place.activity.read.fetch_add(count, Ordering::Relaxed);
        if count > 0 {
            self.unread.arrived();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write(cx, buf))?;
        self.wrote(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs))?;
        self.wrote(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(linger) = &mut this.linger {
            return linger.poll(&mut this.inner, cx).map(Ok);
        }
        ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        if !this.unread.lingers() {
            return Poll::Ready(Ok(()));
        }
        let linger = this.linger.insert(Linger::new());
        linger.poll(&mut this.inner, cx).map(Ok)
    }
}
