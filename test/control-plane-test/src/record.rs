//! What was asked of a plane: a line for each of the latest requests.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use generic_server::chain::OuterService;
use generic_server::request::{Body, full};
use generic_server::{Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tower::{Layer, Service};

/// The lines that are kept. Older ones are counted.
const LINES: usize = 200;
/// The longest line.
const LINE_BYTES: usize = 500;
/// The largest refusal whose message is read; a larger one ends there.
const REFUSAL_BYTES: usize = 1 << 20;

/// The latest requests.
#[derive(Debug, Default)]
pub(crate) struct Record {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    dropped: usize,
}

impl Record {
    fn push(&self, mut line: String) {
        let end = (0..=LINE_BYTES.min(line.len()))
            .rev()
            .find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or_default());
        let mut lines = self.lines.lock();
        if lines.kept.len() == LINES {
            lines.kept.pop_front();
            lines.dropped += 1;
        }
        lines.kept.push_back(line);
    }

    /// Oldest first, with a line that says how many are missing.
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock();
        let before = (lines.dropped > 0).then(|| format!("({} requests before these)", lines.dropped));
        before.into_iter().chain(lines.kept.iter().cloned()).collect()
    }
}

/// The layer that records.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    record: Arc<Record>,
}

impl Recorded {
    pub(crate) fn by(record: Arc<Record>) -> Self {
        Recorded { record }
    }
}

impl Layer<OuterService> for Recorded {
    type Service = Recording;

    fn layer(&self, inner: OuterService) -> Recording {
        Recording {
            record: self.record.clone(),
            inner,
        }
    }
}

/// A service that records.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    record: Arc<Record>,
    inner: OuterService,
}

impl Service<Request> for Recording {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let asked = format!("{} {}", request.method(), request.uri());
        let (record, answer) = (self.record.clone(), self.inner.call(request));
        Box::pin(async move {
            let Ok(response) = answer.await;
            let status = response.status();
            if !status.is_client_error() && !status.is_server_error() {
                record.push(format!("{} {asked}", status.as_u16()));
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let bytes = read(body).await;
            let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
            let message = answer
                .as_ref()
                .and_then(|answer| answer["message"].as_str())
                .unwrap_or_default();
            record.push(format!("{} {asked}: {message}", status.as_u16()));
            Ok(Response::from_parts(parts, full(bytes)))
        })
    }
}

/// The body of a refusal.
async fn read(mut body: Body) -> Bytes {
    let mut whole = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        let data = frame.into_data().unwrap_or_default();
        if whole.len() + data.len() > REFUSAL_BYTES {
            break;
        }
        whole.extend_from_slice(&data);
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_lines_are_kept_and_cut_between_characters() {
        let record = Record::default();
        for number in 0..=LINES {
            record.push(number.to_string());
        }
        let lines = record.lines();
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[1].as_str()),
            (LINES + 1, "(1 requests before these)", "1")
        );
        record.push("ä".repeat(LINE_BYTES));
        assert_eq!(record.lines().last().map(String::len), Some(LINE_BYTES));
        record.push(format!("a{}", "ä".repeat(LINE_BYTES)));
        assert_eq!(record.lines().last().map(String::len), Some(LINE_BYTES - 1));
    }
}
