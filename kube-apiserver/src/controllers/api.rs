//! The API of the process as a client has it, for controllers whose writes are applies.

use std::sync::Arc;

use generic_server::Authorized;
use generic_server::delegate::{Delegate, Handled};
use generic_server::request::{ReadError, full, read_bounded};
use http::StatusCode;
use serde_json::Value;

use crate::json::Json;

/// The largest answer of a write that is looked at.
const MAX_ANSWER: usize = 4 << 20;

/// The servers of the process, asked in its own name.
#[derive(Clone)]
pub(super) struct Api(Arc<dyn Delegate>);

/// A write that was not done.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The code of the answer; `None` when there was none.
    pub(super) code: Option<StatusCode>,
    /// Why.
    pub(super) message: String,
}

impl Refusal {
    fn unanswered(why: impl ToString) -> Self {
        Refusal {
            code: None,
            message: why.to_string(),
        }
    }

    /// Whether the same write may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        self.code
            .is_none_or(|code| matches!(code.as_u16(), 409 | 429 | 500 | 503 | 504))
    }
}

impl Api {
    pub(super) fn new(api: Arc<dyn Delegate>) -> Self {
        Api(api)
    }

    /// Applies an object; `path` has the query with the field manager.
    pub(super) async fn apply(&self, path: &str, object: &Value) -> Result<(), Refusal> {
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .header(
                http::header::ACCEPT,
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
            )
            .body(full(object.to_string()))
            .map_err(Refusal::unanswered)?;
        let authorized = Authorized::system_asking(request.method(), request.uri());
        let authorized = authorized.map_err(Refusal::unanswered)?;
        let Handled::Answered(response) = self.0.handle(&authorized, request).await else {
            return Err(Refusal {
                code: Some(StatusCode::NOT_FOUND),
                message: "the server could not find the requested resource".into(),
            });
        };
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let answer: Value = match read_bounded(response.into_body(), MAX_ANSWER).await {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
            // The status alone decides about an answer that is too large to be a message.
            Err(ReadError::TooLarge(_)) => Value::Null,
            Err(ReadError::Failed(error)) => return Err(Refusal::unanswered(error)),
        };
        let message = match answer.text("message") {
            "" => format!("the server answered {status}"),
            message => message.to_string(),
        };
        Err(Refusal {
            code: Some(status),
            message,
        })
    }
}
