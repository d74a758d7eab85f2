//! A request's body on its way to a backend: taken back when no byte of it was read, so that the request can go to another
//! endpoint.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use generic_server::Body;
use generic_server::request::BoxError;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

/// A body that two owners know of: the client that sends it, and the retry that may have to send it again.
#[derive(Debug, Clone)]
pub(crate) struct Held(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    body: Mutex<Body>,
    touched: AtomicBool,
}

impl Held {
    pub(crate) fn new(body: Body) -> Self {
        Held(Arc::new(Shared {
            body: Mutex::new(body),
            touched: AtomicBool::new(false),
        }))
    }

    pub(crate) fn empty() -> Self {
        Held::new(generic_server::request::empty())
    }

    /// Whether any of it was read: then it cannot be sent again.
    pub(crate) fn is_touched(&self) -> bool {
        self.0.touched.load(Ordering::Acquire)
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.touched.store(true, Ordering::Release);
        let mut body = self.0.body.lock();
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                // Trailers would be headers to some backends, and could name another user.
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {}
                other => return other,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.body.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.body.lock().size_hint()
    }
}
