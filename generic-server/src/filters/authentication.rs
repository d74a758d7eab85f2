//! Requests after authentication: credentials are removed, so that no handler, proxy or log sees them.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::authn::bearer::WEBSOCKET_TOKEN;
use crate::authn::request_header::{FrontProxyHeaders, has_prefix};

/// Removes credentials and front-proxy identity headers (the standard ones and the configured ones).
pub(crate) fn strip_credentials(headers: &mut HeaderMap, front_proxy: &FrontProxyHeaders) {
    headers.remove(header::AUTHORIZATION);
    let doomed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("x-remote-")
                && (matches!(name, "x-remote-user" | "x-remote-uid" | "x-remote-group")
                    || name.starts_with("x-remote-extra-"))
                || front_proxy
                    .names
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(name))
                || front_proxy.prefixes.iter().any(|prefix| has_prefix(name, prefix))
        })
        .cloned()
        .collect();
    for name in doomed {
        headers.remove(name);
    }
    strip_websocket_token(headers);
}

fn strip_websocket_token(headers: &mut HeaderMap) {
    let carries = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.contains(WEBSOCKET_TOKEN)));
    if !carries {
        return;
    }
    let kept: Vec<String> = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty() && !protocol.starts_with(WEBSOCKET_TOKEN))
        .map(str::to_string)
        .collect();
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = HeaderValue::from_str(&kept.join(","))
        && !kept.is_empty()
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
}
