//! Bodies around bodies: as long as the one within, with something kept or decided on the way; and reading one within a bound.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;

use super::{Body, BoxError};

type Polled = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

/// A body that keeps something until it is dropped: a seat, a counter.
#[derive(Debug)]
pub struct GuardedBody<G> {
    body: Body,
    _guard: G,
}

impl<G> GuardedBody<G> {
    /// This body, with `guard`.
    pub fn new(body: Body, guard: G) -> Self {
        GuardedBody { body, _guard: guard }
    }
}

impl<G: Unpin> HttpBody for GuardedBody<G> {
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

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// It is larger than the caller takes.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// It failed before its end.
    #[error("{0}")]
    Failed(E),
}

/// Reads a body to its end.
///
/// # Errors
/// When the body has more than `max_bytes`, which one that announces its length says before anything is read, and when it fails.
pub async fn read_bounded<B>(mut body: B, max_bytes: usize) -> Result<Bytes, ReadError<B::Error>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > max_bytes {
        return Err(ReadError::TooLarge(max_bytes));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(ReadError::Failed)?.data_ref() {
            if data.len() > max_bytes - bytes.len() {
                return Err(ReadError::TooLarge(max_bytes));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[test]
    fn reading_ends_at_the_bound_and_at_failures() {
        #[track_caller]
        fn check(pieces: &[Result<&'static str, &'static str>], expected: Result<&str, &str>) {
            let frames: Vec<Result<Frame<Bytes>, BoxError>> = pieces
                .iter()
                .map(|piece| {
                    (*piece)
                        .map(|text| Frame::data(text.into()))
                        .map_err(BoxError::from)
                })
                .collect();
            let body = StreamBody::new(stream::iter(frames));
            let read = read_bounded(body, 4)
                .now_or_never()
                .expect("it waits for nothing");
            let read = read.map_err(|error| error.to_string());
            assert_eq!(
                read.as_ref().map(|bytes| &bytes[..]).map_err(String::as_str),
                expected.map(str::as_bytes)
            );
        }
        check(&[], Ok(""));
        check(&[Ok("ab"), Ok("cd")], Ok("abcd"));
        check(&[Ok("ab"), Ok("cde")], Err("the body is larger than 4 bytes"));
        check(&[Ok("ab"), Err("reset"), Ok("cd")], Err("reset"));
        let announced = read_bounded(Full::new(Bytes::from("abcde")), 4).now_or_never();
        assert!(matches!(announced, Some(Err(ReadError::TooLarge(4)))));
    }
}
