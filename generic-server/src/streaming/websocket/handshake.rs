//! The opening handshake, as a server answers it.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::filters::text_error;
use crate::request::{Response, empty};
use crate::streaming::headers::asks_upgrade;

const KEY: HeaderName = header::SEC_WEBSOCKET_KEY;
const VERSION: HeaderName = header::SEC_WEBSOCKET_VERSION;
const PROTOCOL: HeaderName = header::SEC_WEBSOCKET_PROTOCOL;
/// What every server appends to the client's key.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether the client asks for WebSocket.
pub fn is_asked(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    asks_upgrade(headers) && upgrade.is_some_and(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

/// The subprotocols that the client offers, in its order.
pub fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers
        .get_all(PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

/// The answer to a client's key.
pub fn accept_key(key: &str) -> String {
    let text = format!("{}{MAGIC}", key.trim());
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// The 101 for a client that offers `protocol`; without a name no subprotocol is spoken.
///
/// # Errors
/// The answer to a client whose handshake is wrong.
#[expect(clippy::result_large_err, reason = "the refusal is an answer, sent as it is")]
pub fn accept(headers: &HeaderMap, protocol: Option<&str>) -> Result<Response, Response> {
    let refused = |text: &str| Err(text_error(StatusCode::BAD_REQUEST, text));
    if !is_asked(headers) {
        return refused("not websocket protocol");
    }
    if headers.get(VERSION).is_none_or(|version| version != "13") {
        let mut answer = text_error(StatusCode::BAD_REQUEST, "missing or bad WebSocket Version");
        answer
            .headers_mut()
            .insert(VERSION, HeaderValue::from_static("13"));
        return Err(answer);
    }
    let key = headers
        .get(KEY)
        .and_then(|key| key.to_str().ok())
        .unwrap_or_default();
    if BASE64_STANDARD.decode(key.trim()).map_or(0, |nonce| nonce.len()) != 16 {
        return refused("mismatch challenge/response");
    }
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let own = answer.headers_mut();
    own.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    own.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(value) = HeaderValue::from_str(&accept_key(key)) {
        own.insert(header::SEC_WEBSOCKET_ACCEPT, value);
    }
    if let Some(Ok(value)) = protocol.map(HeaderValue::from_str) {
        own.insert(PROTOCOL, value);
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_example_of_the_rfc() {
        let answer = accept(&headers(&GOOD), Some("chat")).expect("a handshake");
        assert_eq!(answer.status(), 101);
        assert_eq!(
            answer.headers()["sec-websocket-accept"],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
    }

    #[test]
    fn wrong_handshakes_are_refused() {
        for (at, value) in [(0, "close"), (1, "spdy"), (2, "8"), (3, "short"), (3, "")] {
            let mut pairs = GOOD;
            pairs[at].1 = value;
            let answer = accept(&headers(&pairs), None).expect_err("a refusal");
            assert_eq!(answer.status(), 400, "{value}");
        }
    }

    #[test]
    fn protocols_are_offered_in_order() {
        let headers = headers(&[
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io,"),
            ("sec-websocket-protocol", "channel.k8s.io"),
        ]);
        let names: Vec<&str> = offered(&headers).collect();
        // A map that is collected keeps the last value of a name.
        assert_eq!(names.last(), Some(&"channel.k8s.io"));
        let all = HeaderMap::from_iter([(PROTOCOL, HeaderValue::from_static(" a ,b,, c"))]);
        assert_eq!(offered(&all).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
