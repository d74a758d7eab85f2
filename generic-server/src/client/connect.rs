//! Reaching another server: by a route, with TLS; and what went wrong in the words of Go's client. Called by the webhook clients, by the
//! aggregator's proxy and by streams to nodes.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use machinery::meta;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TlsIo;
use super::egress::Route;
use super::tcp::{Fault, tls_fault};
use super::wire::Wire;

/// The most text of an answer that is repeated in an error.
const QUOTED: usize = 2048;

/// Connects to `authority` (`host:port`) by `route` and does the TLS handshake with a peer that must be `name`, all `within` this time. Addresses
/// that the host resolves to and that are not `permitted` are passed over.
///
/// # Errors
/// Why not, as upstream says it.
pub async fn connect(
    route: &Route,
    tls: &TlsConnector,
    name: &ServerName<'static>,
    authority: &str,
    permitted: fn(IpAddr) -> bool,
    within: Duration,
) -> Result<TlsIo, Fault> {
    let until = Instant::now() + within;
    let stream = dial_until(route, authority, permitted, until).await?;
    Ok(TlsIo::new(secure_until(tls, name, stream, until).await?))
}

/// Connects to `authority` by `route` in plain text, in `within` this time.
///
/// # Errors
/// Why not, as upstream says it.
pub async fn dial(
    route: &Route,
    authority: &str,
    permitted: fn(IpAddr) -> bool,
    within: Duration,
) -> Result<Wire, Fault> {
    dial_until(route, authority, permitted, Instant::now() + within).await
}

/// Does the TLS handshake on a connection with a peer that must be `name`, in `within` this time.
///
/// # Errors
/// Why not, as upstream says it.
pub async fn secure<C: AsyncRead + AsyncWrite + Unpin>(
    tls: &TlsConnector,
    name: &ServerName<'static>,
    stream: C,
    within: Duration,
) -> Result<TlsStream<C>, Fault> {
    secure_until(tls, name, stream, Instant::now() + within).await
}

async fn dial_until(
    route: &Route,
    authority: &str,
    permitted: fn(IpAddr) -> bool,
    until: Instant,
) -> Result<Wire, Fault> {
    let late = |_| Fault(format!("dial tcp {authority}: i/o timeout"));
    timeout_at(until, route.dial(authority, permitted))
        .await
        .map_err(late)?
}

async fn secure_until<C: AsyncRead + AsyncWrite + Unpin>(
    tls: &TlsConnector,
    name: &ServerName<'static>,
    stream: C,
    until: Instant,
) -> Result<TlsStream<C>, Fault> {
    timeout_at(until, tls.connect(name.clone(), stream))
        .await
        .map_err(|_| Fault("net/http: TLS handshake timeout".into()))?
        .map_err(|error| Fault(tls_fault(&error, name)))
}

/// The cause of a request's failure: of the errors behind it the first that upstream has words for, else the innermost.
pub fn fault_of(error: &(dyn Error + 'static)) -> String {
    let mut at = Some(error);
    let mut last = String::new();
    while let Some(error) = at {
        if let Some(Fault(text)) = error.downcast_ref() {
            return text.clone();
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_incomplete_message() {
                return "EOF".into();
            }
            if error.is_timeout() {
                return "http2: client connection lost".into();
            }
            if error.is_parse_too_large() {
                return "net/http: server response headers exceeded the limit; aborted".into();
            }
            if error.is_parse() {
                return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".into();
            }
        }
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionReset) => return "read: connection reset by peer".into(),
            Some(io::ErrorKind::UnexpectedEof) => return "EOF".into(),
            _ => {}
        }
        last = error.to_string();
        at = error.source();
    }
    last
}

/// The error text of upstream's client for an unsuccessful answer.
pub(crate) fn refusal_of(code: u16, body: &[u8]) -> String {
    if let Ok(status) = serde_json::from_slice::<Value>(body)
        && status.get("kind").and_then(Value::as_str) == Some("Status")
    {
        return meta::dig_str(&status, &["message"]).to_string();
    }
    let text: String = String::from_utf8_lossy(body)
        .trim()
        .chars()
        .take(QUOTED)
        .collect();
    match code {
        401 => "the server has asked for the client to provide credentials".into(),
        403 => "the server does not allow access to the requested resource".into(),
        404 => "the server could not find the requested resource".into(),
        400..=499 => "the server rejected our request for an unknown reason".into(),
        _ => format!(
            "an error on the server ({}) has prevented the request from succeeding",
            machinery::go::quote(if text.is_empty() { "unknown" } else { &text })
        ),
    }
}
