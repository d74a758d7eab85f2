//! Upgrades (WebSocket, SPDY): a connection of its own over HTTP/1.1, joined with the client's once both have switched.

use std::sync::Arc;
use std::time::Duration;

use generic_server::Response;
use generic_server::client::fault_of;
use generic_server::filters::text_error;
use generic_server::request::empty;
use generic_server::streaming::ClientSide;
use generic_server::streaming::headers::{asks_upgrade, strip_hop_by_hop};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::Call;
use crate::backend::Backend;
use crate::transport::{Held, Transport};

/// How long a backend may take to switch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Taken from the connection to the backend at once.
const BUFFER: usize = 32 * 1024;

/// The protocols that the client asks for instead, when it does.
pub(super) fn protocols(headers: &HeaderMap) -> Option<Vec<HeaderValue>> {
    asks_upgrade(headers).then(|| headers.get_all(header::UPGRADE).iter().cloned().collect())
}

fn refused(why: &str) -> Response {
    text_error(StatusCode::SERVICE_UNAVAILABLE, why)
}

pub(super) async fn serve(
    call: Call<'_>,
    protocols: &[HeaderValue],
    backend: &Arc<Backend>,
    transport: &Transport,
    targets: &[Box<str>],
) -> Response {
    let in_flight = backend.begin_request();
    let answer = tokio::time::timeout(RESPONSE_TIMEOUT, ask(&call, protocols, transport, targets)).await;
    let mut response = match answer.unwrap_or_else(|_| Err("timed out waiting for the upgrade".into())) {
        Ok(response) => response,
        Err(why) => {
            in_flight.failed();
            return refused(&why);
        }
    };
    let code = response.status();
    in_flight.answered(code.as_u16());
    if code != StatusCode::SWITCHING_PROTOCOLS {
        if code.as_u16() < 400 {
            return refused(&format!(
                "invalid upgrade response: status code {}",
                code.as_u16()
            ));
        }
        let (mut head, body) = response.into_parts();
        strip_hop_by_hop(&mut head.headers);
        return Response::from_parts(head, body.map_err(Into::into).boxed_unsync());
    }
    let theirs = hyper::upgrade::on(&mut response);
    let client = ClientSide::of(&call.head.extensions);
    call.proxy.tasks.spawn("upgrade", async move {
        // The client's side switches when the answer below has been written.
        if let (Some(mut ours), Ok(theirs)) = tokio::join!(client.ready(), theirs) {
            let mut theirs = TokioIo::new(theirs);
            // Either side going away ends it: their business.
            let _ = tokio::io::copy_bidirectional_with_sizes(&mut ours, &mut theirs, BUFFER, BUFFER).await;
        }
    });
    let mut answer = Response::new(empty());
    *answer.status_mut() = code;
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    answer
}

async fn ask(
    call: &Call<'_>,
    protocols: &[HeaderValue],
    transport: &Transport,
    targets: &[Box<str>],
) -> Result<http::Response<hyper::body::Incoming>, String> {
    let mut why = String::from("no address");
    let mut reached = None;
    // Another address is asked as long as none could be reached.
    for authority in targets.iter().take(super::ATTEMPTS) {
        match transport.connect(authority).await {
            Ok(stream) => {
                reached = Some((authority, stream));
                break;
            }
            Err(fault) => why = fault.0,
        }
    }
    let (authority, stream) = reached.ok_or(why)?;
    let (mut sender, connection) = http1::handshake(stream).await.map_err(|error| fault_of(&error))?;
    call.proxy.tasks.spawn("upgrade connection", async move {
        // Its failure reaches the request that waits on it.
        let _ = connection.with_upgrades().await;
    });
    let mut request = call.request(authority, Held::empty())?;
    *request.uri_mut() = call.location.parse().map_err(|error| format!("{error}"))?;
    let own = request.headers_mut();
    let host = HeaderValue::from_str(authority).map_err(|error| error.to_string())?;
    own.insert(header::HOST, host);
    own.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    for protocol in protocols {
        own.append(header::UPGRADE, protocol.clone());
    }
    if let Some(client) = call.client() {
        let name = HeaderName::from_static("x-forwarded-for");
        if let Ok(value) = HeaderValue::from_str(&client.to_string()) {
            own.append(name, value);
        }
    }
    sender
        .send_request(request)
        .await
        .map_err(|error| fault_of(&error))
}
