//! Auditing: the events of a request's stages, and the `Audit-Id` header.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use machinery::limits;

use crate::audit::Auditor;
use crate::cpu;
use crate::request::audit::{Capture, Layer, Level, RecordsObjects, ResponseObject, Stage, StatusText};
use crate::request::{Body, Request, Response, User, Wrapped};

/// The header that carries a request's id.
pub(crate) static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The events of one request. The last is recorded with the answer, or when this is dropped: in a panic, or at the deadline.
pub(crate) struct Recording {
    auditor: Arc<Auditor>,
    capture: Arc<Capture>,
    long_running: bool,
    /// When its time is over.
    deadline: Option<Instant>,
    ended: bool,
}

impl Recording {
    /// Records that a request was received. `None` when that was lost and must not be: the request is to be refused.
    pub(crate) async fn begin(
        auditor: &Arc<Auditor>,
        capture: Arc<Capture>,
        long_running: bool,
        deadline: Option<Instant>,
    ) -> Option<Self> {
        let mut recording = Recording {
            auditor: auditor.clone(),
            capture,
            long_running,
            deadline,
            ended: false,
        };
        if auditor
            .record(&recording.capture, Stage::RequestReceived, None)
            .await
        {
            return Some(recording);
        }
        recording.ended = true;
        auditor.rejected();
        None
    }

    /// What is gathered of the request.
    pub(crate) fn capture(&self) -> &Arc<Capture> {
        &self.capture
    }

    /// Marks a request whose answer is to be recorded.
    pub(crate) fn mark(&self, extensions: &mut http::Extensions) {
        if self.capture.level() >= Level::RequestResponse {
            extensions.insert(RecordsObjects);
        }
    }

    /// A layer of the chain took this time.
    pub(crate) fn took(&self, layer: Layer, time: Duration) {
        self.capture.took(layer, time);
    }

    /// From here on the request runs as another user.
    pub(crate) fn impersonates(&self, user: &User, constraint: Option<String>) {
        self.capture.impersonates(user.clone(), constraint);
    }

    /// Records the answer. That of a long-running request is complete when its body is.
    pub(crate) async fn end(mut self, response: Response) -> Response {
        let response = gather(&self.capture, response).await;
        let code = Some(response.status().as_u16());
        self.ended = true;
        if !self.long_running {
            self.capture.note_latencies();
            self.auditor
                .record(&self.capture, Stage::ResponseComplete, code)
                .await;
            return response;
        }
        self.auditor
            .record(&self.capture, Stage::ResponseStarted, code)
            .await;
        let open = Open {
            auditor: self.auditor.clone(),
            capture: self.capture.clone(),
            code,
        };
        response.map(|body| {
            Wrapped::new(
                body,
                move |body: Pin<&mut Body>, cx: &mut Context<'_>| -> Poll<_> {
                    let _open = &open;
                    body.poll_frame(cx)
                },
            )
            .boxed_unsync()
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if std::thread::panicking() {
            let code = StatusCode::INTERNAL_SERVER_ERROR.as_u16();
            self.capture
                .failure("InternalError", "APIServer panic'd", Some(code));
            return self.auditor.offer(&self.capture, Stage::Panic, Some(code));
        }
        let is_late = self
            .deadline
            .is_some_and(|deadline| tokio::time::Instant::now() >= deadline.into());
        let code = is_late.then(|| StatusCode::GATEWAY_TIMEOUT.as_u16());
        if code.is_none() {
            // What was under way may be done all the same.
            let message = "Connection closed early, the outcome is unknown";
            self.capture.failure("", message, None);
        }
        self.capture.note_latencies();
        self.auditor.offer(&self.capture, Stage::ResponseComplete, code);
    }
}

/// A long-running answer, until it is complete.
struct Open {
    auditor: Arc<Auditor>,
    capture: Arc<Capture>,
    code: Option<u16>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.auditor
            .offer(&self.capture, Stage::ResponseComplete, self.code);
    }
}

/// Records the answer to a request that is refused before its user is known, as upstream does: at one stage.
pub(crate) async fn unidentified(
    auditor: &Arc<Auditor>,
    capture: &Arc<Capture>,
    response: Response,
) -> Response {
    let response = gather(capture, response).await;
    let code = Some(response.status().as_u16());
    auditor.record(capture, Stage::ResponseStarted, code).await;
    response
}

/// Takes what is recorded of an answer from it.
async fn gather(capture: &Capture, mut response: Response) -> Response {
    let object = response.extensions_mut().remove();
    if let Some(StatusText(status)) = response.extensions_mut().remove() {
        capture.status(&status);
        return response;
    }
    if let Some(ResponseObject(object)) = object {
        cpu::heavy(object.len()).await;
        capture.response_object(object);
        return response;
    }
    response
}

fn is_id(text: &[u8]) -> bool {
    !text.is_empty() && text.len() <= limits::AUDIT_ID_BYTES && text.iter().all(u8::is_ascii_graphic)
}

/// The client's id for the request as it is, or a new one. It goes into answers, logs and other servers' requests, so one that
/// is long or not visible ASCII is not taken.
pub(crate) fn id_of(request: &Request) -> HeaderValue {
    match request.headers().get(&AUDIT_ID) {
        Some(given) if is_id(given.as_bytes()) => given.clone(),
        _ => {
            let id = uuid::Uuid::new_v4();
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is ASCII")
        }
    }
}

/// An id of [`id_of`], for the log.
pub(crate) fn shown(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_clients() {
        let check = |id: &[u8], expected: bool| assert_eq!(is_id(id), expected, "{id:?}");
        check(b"0a-1", true);
        check(&[b'a'; limits::AUDIT_ID_BYTES], true);
        check(&[b'a'; limits::AUDIT_ID_BYTES + 1], false);
        check(b"", false);
        check(b"a b", false);
        check(b"a\tb", false);
        check("ä".as_bytes(), false);
    }
}
