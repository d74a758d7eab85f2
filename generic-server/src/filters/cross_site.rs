//! Requests that another site makes a browser send.
//!
//! A browser adds a client certificate to whatever request a page makes. One that it takes for simple (a POST without a media type among them) it
//! sends without asking the server before, and it asks for WebSockets never. Of a request it says in `Sec-Fetch-Site` where the page is from;
//! not every browser does so for a WebSocket, where the page is known by `Origin`.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method};
use machinery::{ApiError, GroupResource};

use crate::request::Response;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Refuses a request that may change something, or that switches protocols, when a page of another site has made it with credentials that
/// the browser added. A page cannot add `Authorization` unless its origin is allowed.
pub(crate) fn refusal(method: &Method, headers: &HeaderMap) -> Option<Response> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let switches = headers.contains_key(header::UPGRADE);
    if reads && !switches || headers.contains_key(header::AUTHORIZATION) {
        return None;
    }
    let foreign = headers.get_all(SITE).iter().any(is_foreign) || switches && is_of_another_origin(headers);
    foreign.then(|| {
        let why = "cross-site request of a browser: allow its origin with --cors-allowed-origins";
        let error = ApiError::forbidden(&GroupResource::new("", ""), "", why);
        super::headers::no_sniff(crate::respond::error(&error))
    })
}

fn is_foreign(site: &HeaderValue) -> bool {
    !matches!(site.as_bytes(), b"same-origin" | b"none")
}

/// Whether a browser's page is of another host than the one that it asks. A proxy may have changed the host; it says so by
/// `X-Forwarded-For`, which a page cannot add to a WebSocket. Clients that are no browsers name any origin.
fn is_of_another_origin(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    let agent = text(header::USER_AGENT);
    if !agent.starts_with(b"Mozilla/") || headers.contains_key(FORWARDED) || headers.contains_key(SITE) {
        return false;
    }
    let origin = text(header::ORIGIN);
    let host = origin
        .strip_prefix(b"https://")
        .or_else(|| origin.strip_prefix(b"http://"))
        .unwrap_or(origin);
    !origin.is_empty() && host != text(header::HOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, headers: &[(&'static str, &'static str)], refused: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(refusal(&method, &map).is_some(), refused, "{method} {headers:?}");
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let site = |value| ("sec-fetch-site", value);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            check(method.clone(), &[], false);
            check(method.clone(), &[site("same-origin")], false);
            check(method.clone(), &[site("none")], false);
            check(method.clone(), &[site("cross-site")], true);
            check(method.clone(), &[site("same-site")], true);
            check(method.clone(), &[site("same-origin"), site("cross-site")], true);
            check(
                method,
                &[site("cross-site"), ("authorization", "Bearer x")],
                false,
            );
        }
        check(Method::GET, &[site("cross-site")], false);
    }

    #[test]
    fn pages_of_other_origins_open_no_sockets() {
        let upgrade = ("upgrade", "websocket");
        let browser = ("user-agent", "Mozilla/5.0 (X11)");
        let host = ("host", "api.example:6443");
        let origin = |value| ("origin", value);
        check(Method::GET, &[upgrade], false);
        check(Method::GET, &[upgrade, ("sec-fetch-site", "cross-site")], true);
        let own = origin("https://api.example:6443");
        check(Method::GET, &[upgrade, browser, host, own], false);
        for foreign in ["https://evil.example", "https://api.example", "null"] {
            let foreign = origin(foreign);
            check(Method::GET, &[upgrade, browser, host, foreign], true);
            check(Method::GET, &[browser, host, foreign], false);
            check(Method::GET, &[upgrade, host, foreign], false);
            check(
                Method::GET,
                &[upgrade, browser, host, foreign, ("x-forwarded-for", "127.0.0.1")],
                false,
            );
            check(
                Method::GET,
                &[upgrade, browser, host, foreign, ("authorization", "Bearer x")],
                false,
            );
        }
    }
}
