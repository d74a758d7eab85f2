//! Auditing: the seam to audit backends, and the `Audit-Id` header.

use std::fmt::Debug;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri};
use machinery::limits;

use crate::request::{Request, RequestContext, Response, User};

/// The header that carries a request's id.
pub(crate) const AUDIT_ID: &str = "audit-id";

/// Where a request is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The user is known; nothing was done yet.
    RequestReceived,
    /// The head of a long-running answer is sent.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The handler panicked.
    Panic,
}

/// The state of the request at a stage.
#[derive(Debug)]
pub struct Record<'a> {
    /// The request; its user is the one after impersonation once that is known, its annotations are those so far.
    pub context: &'a RequestContext,
    /// The impersonating user, if any.
    pub impersonator: Option<&'a User>,
    /// The method.
    pub method: &'a Method,
    /// The path and query.
    pub uri: &'a Uri,
    /// The status code, once there is one.
    pub code: Option<u16>,
}

/// Takes audit records. Must not block: a backend that is behind sheds.
pub trait AuditSink: Send + Sync + Debug {
    /// Whether anything is recorded at all; asked once per request.
    fn enabled(&self) -> bool;
    /// Takes a record.
    fn record(&self, stage: Stage, record: &Record<'_>);
}

/// Records nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAudit;

impl AuditSink for NoAudit {
    fn enabled(&self) -> bool {
        false
    }

    fn record(&self, _stage: Stage, _record: &Record<'_>) {}
}

/// The records of one request. It ends with an answer, or when it is dropped: in a panic, or at its deadline.
pub(crate) struct Recording<'a> {
    sink: &'a dyn AuditSink,
    context: Arc<RequestContext>,
    impersonator: Option<User>,
    method: Method,
    uri: Uri,
    long_running: bool,
    ended: bool,
}

impl<'a> Recording<'a> {
    /// Records that a request was received.
    pub(crate) fn begin(
        sink: &'a dyn AuditSink,
        context: Arc<RequestContext>,
        head: &Parts,
        long_running: bool,
    ) -> Self {
        let recording = Recording {
            sink,
            context,
            impersonator: None,
            method: head.method.clone(),
            uri: head.uri.clone(),
            long_running,
            ended: false,
        };
        recording.record(Stage::RequestReceived, None);
        recording
    }

    /// From here on the request runs as the impersonated user.
    pub(crate) fn impersonates(&mut self, context: Arc<RequestContext>, impersonator: User) {
        self.context = context;
        self.impersonator = Some(impersonator);
    }

    fn record(&self, stage: Stage, code: Option<StatusCode>) {
        let record = Record {
            context: &self.context,
            impersonator: self.impersonator.as_ref(),
            method: &self.method,
            uri: &self.uri,
            code: code.map(|code| code.as_u16()),
        };
        self.sink.record(stage, &record);
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        match std::thread::panicking() {
            true => self.record(Stage::Panic, Some(StatusCode::INTERNAL_SERVER_ERROR)),
            false => self.record(Stage::ResponseComplete, Some(StatusCode::GATEWAY_TIMEOUT)),
        }
    }
}

/// Records the answer of a request that was recorded.
pub(crate) fn end(recording: Option<Recording<'_>>, response: &Response) {
    if let Some(mut recording) = recording {
        let stage = match recording.long_running {
            true => Stage::ResponseStarted,
            false => Stage::ResponseComplete,
        };
        recording.record(stage, Some(response.status()));
        recording.ended = true;
    }
}

/// Records the refusal of an unauthenticated request, as upstream does: at one stage.
pub(crate) fn unauthenticated(
    sink: &dyn AuditSink,
    context: &RequestContext,
    head: &Parts,
    response: &Response,
) {
    let record = Record {
        context,
        impersonator: None,
        method: &head.method,
        uri: &head.uri,
        code: Some(response.status().as_u16()),
    };
    sink.record(Stage::ResponseStarted, &record);
}

fn is_id(text: &[u8]) -> bool {
    !text.is_empty() && text.len() <= limits::AUDIT_ID_BYTES && text.iter().all(u8::is_ascii_graphic)
}

/// The client's id for the request as it is, or a new one. It goes into answers, logs and other servers' requests, so one that
/// is long or not visible ASCII is not taken.
pub(crate) fn id_of(request: &Request) -> HeaderValue {
    match request.headers().get(AUDIT_ID) {
        Some(given) if is_id(given.as_bytes()) => given.clone(),
        _ => {
            let id = uuid::Uuid::new_v4();
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            HeaderValue::from_str(id.hyphenated().encode_lower(&mut text)).expect("a UUID is ASCII")
        }
    }
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
