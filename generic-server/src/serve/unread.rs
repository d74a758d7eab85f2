//! What a client still sends of a request that was answered before all of it was read.
//!
//! On HTTP/1.1 a socket that is closed with unread bytes is reset, and the reset can overtake the answer. So a short rest of a body is read and
//! dropped before the answer, and the connection goes on; with a longer one the answer says `Connection: close`, and the connection
//! lingers: its write side is shut, and what still comes is dropped. Go's net/http does the same. A head that is refused before its end
//! is such a rest, too.
//!
//! On HTTP/2 a stream is reset without an error once its answer is out. As some clients (curl 7.88) look at the reset before the answer that
//! came with it, it follows after a moment, in which nothing more is read of the stream.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use machinery::limits;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::clock::Protocol;
use crate::request::{BoxError, Response};
use crate::spawn::Tasks;

/// What is unread of one connection's requests.
#[derive(Debug)]
pub(super) struct Unread {
    protocol: Protocol,
    rest: Mutex<Rest>,
    /// Whether bytes may be on their way that belong to no request to come.
    some: AtomicBool,
    /// Whether the connection has gone over to another protocol.
    upgraded: AtomicBool,
    /// Where streams wait for their reset, and how many of this connection do.
    tasks: Tasks,
    waiting: AtomicUsize,
}

/// The body of the request that is being answered.
#[derive(Debug, Default)]
enum Rest {
    /// It was read, or its handler has it.
    #[default]
    Held,
    /// Its handler left it.
    Left(Tracked),
    /// Its handler has it beyond the head of the answer.
    Answered,
}

/// A body and what is known of it.
#[derive(Debug)]
struct Tracked {
    body: Incoming,
    /// Its client sends it after a `100 Continue`, which goes out when the body is read for the first time.
    awaited: bool,
    /// Nothing more comes of it: its end, or an error.
    ended: bool,
}

/// A request's body. When it is dropped before its end, its connection learns of the rest.
#[derive(Debug)]
pub(super) struct Watched {
    tracked: Option<Tracked>,
    unread: Arc<Unread>,
}

impl Watched {
    pub(super) fn new(body: Incoming, head: &HeaderMap, unread: Arc<Unread>) -> Self {
        let tracked = Tracked {
            body,
            awaited: head.contains_key(header::EXPECT),
            ended: false,
        };
        if unread.protocol == Protocol::Http1 {
            *unread.rest.lock() = Rest::Held;
        }
        Watched {
            tracked: Some(tracked),
            unread,
        }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(tracked) = &mut self.tracked else {
            return Poll::Ready(None);
        };
        tracked.awaited = false;
        let polled = Pin::new(&mut tracked.body).poll_frame(cx);
        tracked.ended |= matches!(polled, Poll::Ready(None | Some(Err(_))));
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.tracked
            .as_ref()
            .is_none_or(|tracked| tracked.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let tracked = self.tracked.as_ref();
        tracked
            .map(|tracked| tracked.body.size_hint())
            .unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Some(tracked) = self.tracked.take() else {
            return;
        };
        if tracked.ended || tracked.body.is_end_stream() {
            return;
        }
        if self.unread.protocol == Protocol::Http2 {
            return self.unread.clone().reset_later(tracked.body);
        }
        let mut rest = self.unread.rest.lock();
        match *rest {
            Rest::Answered => self.unread.some.store(true, Ordering::Relaxed),
            Rest::Held | Rest::Left(_) => *rest = Rest::Left(tracked),
        }
    }
}

impl Unread {
    /// Of a connection that has had no request.
    pub(super) fn new(protocol: Protocol, tasks: Tasks) -> Arc<Self> {
        Arc::new(Unread {
            protocol,
            rest: Mutex::default(),
            some: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            tasks,
            waiting: AtomicUsize::new(0),
        })
    }

    /// Bytes have come: a head or a part of it, or of a body.
    pub(super) fn arrived(&self) {
        self.some.store(true, Ordering::Relaxed);
    }

    /// A request begins: its head is there.
    pub(super) fn begin(&self) {
        self.some.store(false, Ordering::Relaxed);
    }

    /// Deals with what is left of the request before its answer is sent.
    pub(super) async fn settle(&self, has_body: bool, answer: &mut Response) {
        // The bytes that follow are another protocol's.
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.upgraded.store(true, Ordering::Relaxed);
        }
        if !has_body || self.protocol == Protocol::Http2 {
            return;
        }
        let left = std::mem::replace(&mut *self.rest.lock(), Rest::Answered);
        let rest_is_read = match left {
            Rest::Left(tracked) => drop_rest(tracked).await,
            Rest::Held | Rest::Answered => true,
        };
        self.some.store(!rest_is_read, Ordering::Relaxed);
        if !rest_is_read {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
    }

    /// Whether the connection has to linger at its end.
    pub(super) fn lingers(&self) -> bool {
        self.protocol == Protocol::Http1
            && self.some.load(Ordering::Relaxed)
            && !self.upgraded.load(Ordering::Relaxed)
    }

    /// Keeps a stream for a moment before it is reset, of no more streams than a client may have open.
    fn reset_later(self: Arc<Self>, body: Incoming) {
        let most = usize::try_from(limits::STREAMS).unwrap_or(usize::MAX);
        if Handle::try_current().is_err() || self.waiting.load(Ordering::Relaxed) >= most {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let tasks = self.tasks.clone();
        tasks.spawn("reset of a stream", async move {
            tokio::time::sleep(limits::LINGER).await;
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            drop(body);
        });
    }
}

/// Reads a short rest of a body to its end. Says whether it could.
async fn drop_rest(mut left: Tracked) -> bool {
    let bound = u64::try_from(limits::DROPPED_BODY_BYTES).unwrap_or(u64::MAX);
    if left.awaited || left.body.size_hint().lower() > bound {
        return false;
    }
    let reading = async {
        let mut count = 0;
        while let Some(frame) = left.body.frame().await {
            count += frame.ok()?.data_ref().map_or(0, Bytes::len);
            if count > limits::DROPPED_BODY_BYTES {
                return None;
            }
        }
        Some(())
    };
    matches!(tokio::time::timeout(limits::LINGER, reading).await, Ok(Some(())))
}

/// Reads and drops what comes on a stream whose write side is shut, within bounds.
#[derive(Debug)]
pub(super) struct Linger {
    quiet: Pin<Box<Sleep>>,
    until: Instant,
    left: usize,
}

impl Linger {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Linger {
            quiet: Box::pin(tokio::time::sleep_until(now + limits::LINGER)),
            until: now + limits::LINGER_IN_ALL,
            left: limits::LINGER_BYTES,
        }
    }

    /// Ready when nothing more comes or a bound is reached.
    pub(super) fn poll<S: AsyncRead + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
        let mut space = [0; 16 * 1024];
        let mut arrived = false;
        loop {
            let mut dropped = ReadBuf::new(&mut space);
            let read = Pin::new(&mut *stream).poll_read(cx, &mut dropped);
            let count = dropped.filled().len();
            match read {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if count > 0 && count <= self.left => self.left -= count,
                Poll::Ready(_) => return Poll::Ready(()),
            }
            arrived = true;
        }
        if arrived {
            let quiet = Instant::now() + limits::LINGER;
            self.quiet.as_mut().reset(quiet.min(self.until));
        }
        self.quiet.as_mut().poll(cx)
    }
}
