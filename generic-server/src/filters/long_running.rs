//! Requests that last: watches, logs, execs. They are exempt from deadlines and limits, and end when the server does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::request::{Body, BoxError, RequestInfo, Response};

/// Whether a request may last for long.
pub(crate) fn is(info: &RequestInfo) -> bool {
    matches!(&*info.verb, "watch" | "proxy")
        || info.is_resource
            && matches!(
                &*info.subresource,
                "attach" | "exec" | "proxy" | "log" | "portforward"
            )
        || !info.is_resource && info.path.starts_with("/debug/pprof/")
}

/// Whether the answer is as long as the store is large: its head has a deadline, its body has none.
pub(crate) fn is_download(info: &RequestInfo) -> bool {
    !info.is_resource && info.path == "/backup"
}

/// Ends the body when `end` fires, and keeps `guard` until then.
pub(crate) fn bind<G: Send + Unpin + 'static>(
    response: Response,
    end: &CancellationToken,
    guard: G,
) -> Response {
    let end = end.clone().cancelled_owned();
    response.map(|body| {
        Bound {
            body,
            end: Box::pin(end),
            _guard: guard,
        }
        .boxed_unsync()
    })
}

struct Bound<G> {
    body: Body,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    _guard: G,
}

impl<G: Unpin> HttpBody for Bound<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // What is ready is sent first, so that the end never cuts an event that was there before it.
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => self.end.as_mut().poll(cx).map(|()| None),
            ready => ready,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
