//! Requests that last: watches, logs, execs. They are exempt from deadlines and limits, and end when the server does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::Body as _;
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;

use crate::request::{Body, RequestInfo, Response, Wrapped};

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
    let mut end = Box::pin(end.clone().cancelled_owned());
    response.map(|body| {
        Wrapped::new(body, move |body: Pin<&mut Body>, cx: &mut Context<'_>| {
            let _guard = &guard;
            // Ready bytes are sent first, so that the end never cuts an event that was there before it.
            match body.poll_frame(cx) {
                Poll::Pending => end.as_mut().poll(cx).map(|()| None),
                ready => ready,
            }
        })
        .boxed_unsync()
    })
}
