//! Bodies around bodies: as long as the one within, with something kept or decided on the way.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Body, BoxError};

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body that keeps something until it is dropped: a seat, a counter.
#[derive(Debug)]
pub struct Kept<G> {
    body: Body,
    _guard: G,
}

impl<G> Kept<G> {
    /// This body, with `guard`.
    pub fn new(body: Body, guard: G) -> Self {
        Kept { body, _guard: guard }
    }
}

impl<G: Unpin> HttpBody for Kept<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body whose frames a function takes from the body within. The function's captured state is kept until this is dropped.
pub struct Wrapped<B, F> {
    body: B,
    poll: F,
}

impl<B, F> Wrapped<B, F>
where
    B: HttpBody<Data = Bytes> + Unpin,
    F: FnMut(Pin<&mut B>, &mut Context<'_>) -> Polled + Unpin,
{
    /// A body around this one. The function may end it early, fail it or wait, and may not add to it.
    pub fn new(body: B, poll: F) -> Self {
        Wrapped { body, poll }
    }
}

impl<B: fmt::Debug, F> fmt::Debug for Wrapped<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped")
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl<B, F> HttpBody for Wrapped<B, F>
where
    B: HttpBody<Data = Bytes> + Unpin,
    F: FnMut(Pin<&mut B>, &mut Context<'_>) -> Polled + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = &mut *self;
        (this.poll)(Pin::new(&mut this.body), cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
