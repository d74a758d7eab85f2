//! Watches over WebSocket, for clients that cannot read a body as it comes: browsers and the Java clients. Mirrors
//! `WatchServer.HandleWS`, and what Go's `websocket.Handler` wants of a handshake.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Uri, header};
use machinery::limits;
use tokio_util::sync::CancellationToken;

use crate::filters::long_running;
use crate::request::{Request, RequestInfo, Response, empty};
use crate::serve::ConnectionInfo;
use crate::spawn::Tasks;
use crate::streaming::{ClientSide, Framing, messages, websocket};

/// A watch that is to be sent over WebSocket.
pub(crate) struct WatchSocket {
    client: ClientSide,
    /// The 101, or the refusal of the handshake.
    answer: Result<Response, Response>,
    /// Fires when the server gives the connection up.
    closing: CancellationToken,
}

impl WatchSocket {
    /// Of a request that asks for one.
    ///
    /// Few requests do, so that the others do not hold its room.
    pub(crate) fn of(info: &RequestInfo, request: &Request) -> Option<Box<Self>> {
        let asked = &*info.verb == "watch"
            && request.method() == Method::GET
            && websocket::is_asked(request.headers());
        asked.then(|| {
            Box::new(WatchSocket {
                client: ClientSide::of(request.extensions()),
                answer: handshake(request.headers()),
                closing: request
                    .extensions()
                    .get::<Arc<ConnectionInfo>>()
                    .map(|connection| connection.closing.clone())
                    .unwrap_or_default(),
            })
        })
    }

    /// Sends a watch's events as messages, until it or all watches end; what is no watch is answered as it is.
    pub(crate) fn send(self, watch: Response, tasks: &Tasks, end: &CancellationToken) -> Response {
        if watch.status() != StatusCode::OK {
            return watch;
        }
        let answer = match self.answer {
            Ok(answer) => answer,
            Err(refusal) => return refusal,
        };
        let media = watch.headers().get(header::CONTENT_TYPE);
        let framing = match media.map(|media| media.as_bytes()) {
            Some(b"application/json") => Framing::Lines,
            Some(b"application/cbor-seq") => Framing::Documents,
            _ => Framing::Frames,
        };
        let events = long_running::bind(watch, end, ()).into_body();
        tasks.spawn("watch over WebSocket", async move {
            let Some(client) = self.client.ready().await else {
                return;
            };
            // The end of all watches comes first, and is said to the client.
            let cut = async {
                self.closing.cancelled().await;
                tokio::time::sleep(limits::LINGER).await;
            };
            tokio::select! {
                () = messages(client, events, framing) => {}
                () = cut => {}
            }
        });
        answer
    }
}

/// The answer to a handshake. Browsers say where they come from, and so has everybody.
#[expect(clippy::result_large_err, reason = "the refusal is an answer, sent as it is")]
fn handshake(headers: &HeaderMap) -> Result<Response, Response> {
    let refusal = |code: StatusCode| {
        let mut response = Response::new(empty());
        *response.status_mut() = code;
        response
    };
    let offered: Vec<&str> = websocket::offered(headers).collect();
    let answer = websocket::accept(headers, offered.first().copied())?;
    let origin = headers
        .get(header::ORIGIN)
        .and_then(|origin| origin.to_str().ok());
    if origin.is_none_or(|origin| !is_request_uri(origin)) {
        return Err(refusal(StatusCode::FORBIDDEN));
    }
    if offered.len() > 1 {
        // The server would have to choose, and knows none of them.
        return Err(refusal(StatusCode::BAD_REQUEST));
    }
    Ok(answer)
}

/// Whether Go's `url.ParseRequestURI` takes it: an absolute URI or an absolute path.
fn is_request_uri(text: &str) -> bool {
    text.starts_with('/') || text.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn handshakes_of_watches() {
        let check = |more: &[(&'static str, &'static str)], expected: u16| {
            let base = [
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-version", "13"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ];
            let mut headers = HeaderMap::new();
            for (name, value) in base.iter().chain(more) {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let (Ok(answer) | Err(answer)) = handshake(&headers);
            assert_eq!(answer.status(), expected, "{more:?}");
        };
        check(&[("origin", "https://console.example")], 101);
        check(&[("origin", "https://127.0.0.1:6443")], 101);
        check(&[("origin", "/")], 101);
        check(&[], 403);
        check(&[("origin", "null")], 403);
        check(&[("origin", "")], 403);
        check(
            &[("origin", "https://a.example"), ("sec-websocket-protocol", "x")],
            101,
        );
        check(
            &[
                ("origin", "https://a.example"),
                ("sec-websocket-protocol", "x, y"),
            ],
            400,
        );
        check(
            &[("origin", "https://a.example"), ("sec-websocket-version", "8")],
            400,
        );
    }
}
