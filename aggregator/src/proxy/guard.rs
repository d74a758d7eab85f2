//! A backend's body on its way to the client: it holds the request's seat, and ends when the request's time is over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use generic_server::request::BoxError;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;

use crate::backend::Seat;

/// What a body that stalls ends with: the client sees it cut, not complete.
#[derive(Debug, thiserror::Error)]
#[error("the backend did not finish its answer in time")]
struct Stalled;

/// A body with what must end when it does.
#[derive(Debug)]
pub(super) struct Guarded {
    body: Incoming,
    deadline: Option<Pin<Box<Sleep>>>,
    _place: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

impl Guarded {
    /// Of a watch: it may last, and holds nothing but its place on a connection.
    pub(super) fn plain(body: Incoming, place: OwnedSemaphorePermit) -> Self {
        Guarded {
            body,
            deadline: None,
            _place: place,
            _seat: None,
        }
    }

    pub(super) fn until(
        body: Incoming,
        place: OwnedSemaphorePermit,
        deadline: Option<Instant>,
        seat: Seat,
    ) -> Self {
        let deadline = deadline.map(|at| Box::pin(tokio::time::sleep_until(at.into())));
        Guarded {
            body,
            deadline,
            _place: place,
            _seat: Some(seat),
        }
    }
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => match &mut self.deadline {
                Some(deadline) => deadline.as_mut().poll(cx).map(|()| Some(Err(Stalled.into()))),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
