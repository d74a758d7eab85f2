//! Requests to nodes as they are passed on: heads without what concerns the client alone, and upgrades.

use std::net::IpAddr;
use std::sync::Arc;

use generic_server::request::{empty, full};
use generic_server::serve::ConnectionInfo;
use generic_server::spawn::Tasks;
use generic_server::streaming::headers::{
    append_forwarded_for, asks_upgrade, remove_identity, strip_hop_by_hop,
};
use generic_server::streaming::{ClientSide, Switch, Switched, join, switch};
use generic_server::{ApiError, Body, Request, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::Target;

/// The client's address.
pub(super) fn client_address(request: &Request) -> Option<IpAddr> {
    let connection = request.extensions().get::<Arc<ConnectionInfo>>()?;
    Some(connection.peer.ip())
}

/// A request of the server's own.
pub(super) fn own(method: Method, target: &Target) -> Result<http::Request<Body>, ApiError> {
    let mut request = http::Request::new(empty());
    *request.method_mut() = method;
    *request.uri_mut() = target.location.parse().map_err(ApiError::internal)?;
    let host = HeaderValue::from_str(&target.peer.authority()).map_err(ApiError::internal)?;
    request.headers_mut().insert(header::HOST, host);
    Ok(request)
}

/// GET of the server's own.
pub(super) fn get(target: &Target) -> Result<http::Request<Body>, ApiError> {
    own(Method::GET, target)
}

/// A client's headers as the node gets them: without those of the client's connection, and without what says who the client is.
pub(super) fn passed_on(
    headers: &HeaderMap,
    client: Option<IpAddr>,
    target: &Target,
) -> Result<HeaderMap, ApiError> {
    let mut headers = headers.clone();
    strip_hop_by_hop(&mut headers);
    remove_identity(&mut headers);
    if let Some(client) = client {
        append_forwarded_for(&mut headers, client);
    }
    if !headers.contains_key(header::HOST) {
        let host = HeaderValue::from_str(&target.peer.authority()).map_err(ApiError::internal)?;
        headers.insert(header::HOST, host);
    }
    Ok(headers)
}

/// The request for an upgrade that is passed on. 400 for one that asks for none.
pub(super) fn upgrade(request: &Request, target: &Target) -> Result<http::Request<Body>, ApiError> {
    if !asks_upgrade(request.headers()) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let mut out = own(request.method().clone(), target)?;
    let protocols: Vec<HeaderValue> = request
        .headers()
        .get_all(header::UPGRADE)
        .iter()
        .cloned()
        .collect();
    let headers = out.headers_mut();
    *headers = passed_on(request.headers(), client_address(request), target)?;
    // The body is none: what follows the head is the other protocol.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    for protocol in protocols {
        headers.append(header::UPGRADE, protocol);
    }
    Ok(out)
}

/// Why a node did not switch, in upstream's words.
pub(super) fn not_switched(why: &Switch) -> ApiError {
    match why {
        Switch::Dial(fault) => ApiError::raw_internal(format!("error dialing backend: {fault}")),
        Switch::Answer(fault) => ApiError::raw_internal(fault.0.clone()),
    }
}

/// The answer of a node that did not switch, as the client gets it.
pub(super) fn relay(answer: http::Response<Body>) -> Result<Response, ApiError> {
    let status = answer.status();
    if status.as_u16() < 400 {
        let text = format!("invalid upgrade response: status code {}", status.as_u16());
        return Err(ApiError::raw_internal(text));
    }
    let (head, body) = answer.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = head.headers;
    strip_hop_by_hop(response.headers_mut());
    remove_own(response.headers_mut());
    Ok(response)
}

/// Headers that only this server sets.
const OWN: [&str; 4] = [
    "audit-id",
    "strict-transport-security",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Removes headers by which a server behind the proxy would speak for this one.
pub(super) fn remove_own(headers: &mut HeaderMap) {
    for name in OWN {
        headers.remove(name);
    }
}

/// Passes a request for an upgrade on, and joins the two connections once both have switched.
pub(super) async fn pass(
    tasks: &Tasks,
    target: &Target,
    passed_on: http::Request<Body>,
    request: &mut Request,
) -> Result<Response, ApiError> {
    let client = ClientSide::of(request.extensions());
    let (headers, node) = match switch(tasks, &target.peer, passed_on).await {
        Ok(Switched::Yes(headers, node)) => (headers, node),
        Ok(Switched::No(answer)) => return relay(answer),
        Err(why) => return Err(not_switched(&why)),
    };
    tasks.spawn("joined streams", async move {
        if let Some(client) = client.ready().await {
            join(client, node).await;
        }
    });
    let mut response = Response::new(full(bytes::Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    remove_own(response.headers_mut());
    Ok(response)
}
