//! A backend's body on its way to the client: it holds the request's seat, and ends when the request's time is over.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use generic_server::Body;
use generic_server::request::{BoxError, Wrapped};
use http_body::Body as _;
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::Seat;

/// The error that ends a stalled body: the client sees it cut, not complete.
#[derive(Debug, thiserror::Error)]
#[error("the backend did not finish its answer in time")]
struct Stalled;

/// A backend's body with errors as the chain has them.
type Frames = MapErr<Incoming, fn(hyper::Error) -> BoxError>;

fn frames(body: Incoming) -> Frames {
    body.map_err(BoxError::from)
}

/// The body of a watch: it may last, and holds nothing but its place on a connection.
pub(super) fn plain(body: Incoming, place: OwnedSemaphorePermit) -> Body {
    let poll = move |body: Pin<&mut Frames>, cx: &mut Context<'_>| {
        let _place = &place;
        body.poll_frame(cx)
    };
    Wrapped::new(frames(body), poll).boxed_unsync()
}

/// Any other body: it holds its place and the request's seat, and fails at the deadline.
pub(super) fn until(
    body: Incoming,
    place: OwnedSemaphorePermit,
    deadline: Option<Instant>,
    seat: Seat,
) -> Body {
    let mut deadline = deadline.map(|at| Box::pin(tokio::time::sleep_until(at.into())));
    let held = (place, seat);
    let poll = move |body: Pin<&mut Frames>, cx: &mut Context<'_>| {
        let _held = &held;
        match (body.poll_frame(cx), &mut deadline) {
            (Poll::Pending, Some(deadline)) => deadline.as_mut().poll(cx).map(|()| Some(Err(Stalled.into()))),
            (polled, _) => polled,
        }
    };
    Wrapped::new(frames(body), poll).boxed_unsync()
}
