//! Requests that another site makes a browser send.
//!
//! A browser adds a client certificate to whatever request a page makes, and `kubectl proxy` adds a token. A request that the browser takes for simple
//! (a POST without a media type among them) it sends without asking the server before, and it asks for WebSockets never. Of a request it says in
//! `Sec-Fetch-Site` where the page is from; not every browser does so for a WebSocket, where the page is known by `Origin`. No page can change
//! `User-Agent` or `Sec-Fetch-Site` of such requests.
//!
//! Pages that pods or aggregated servers answer through this server have its origin. They may not install a service worker, which would
//! answer for all pages of the origin from then on.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method};
use machinery::{ApiError, GroupResource};

use crate::request::Response;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-for");
const SERVICE_WORKER: HeaderName = HeaderName::from_static("service-worker");
/// What a token's WebSocket protocol begins with.
const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Refuses a script that is to become a service worker.
pub(crate) fn service_worker_refusal(headers: &HeaderMap) -> Option<Response> {
    headers
        .contains_key(SERVICE_WORKER)
        .then(|| forbidden("no service workers are served"))
}

/// Refuses a request that may change something, or that switches protocols, when a page of another site has made a browser send it, with credentials
/// that the page does not have: pages whose origin is allowed are let past before this. A page that opens a WebSocket with a token of its own is
/// let past, unless other credentials come with it.
pub(crate) fn refusal(method: &Method, headers: &HeaderMap, has_certificate: bool) -> Option<Response> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let switches = headers.contains_key(header::UPGRADE);
    if reads && !switches || !is_of_browser(headers) {
        return None;
    }
    let foreign = headers.get_all(SITE).iter().any(is_foreign) || switches && is_of_another_origin(headers);
    let has_own_token =
        switches && !has_certificate && !headers.contains_key(header::AUTHORIZATION) && has_token(headers);
    let why = "cross-site request of a browser: allow its origin with --cors-allowed-origins";
    (foreign && !has_own_token).then(|| forbidden(why))
}

fn forbidden(why: &str) -> Response {
    let error = ApiError::forbidden(&GroupResource::new("", ""), "", why);
    super::headers::no_sniff(crate::respond::error(&error))
}

/// Every browser's name begins like this. Clients that pass on the headers of a browser name themselves.
fn is_of_browser(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT);
    agent.is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

fn is_foreign(site: &HeaderValue) -> bool {
    !matches!(site.as_bytes(), b"same-origin" | b"none")
}

fn has_token(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    offered
        .filter_map(|offered| offered.to_str().ok())
        .flat_map(|offered| offered.split(','))
        .any(|protocol| protocol.trim().starts_with(BEARER_PROTOCOL))
}

/// Whether a browser's page is of another host than the one that it asks. A proxy may have changed the host; it says so by
/// `X-Forwarded-For`, which a page cannot add to a WebSocket.
fn is_of_another_origin(headers: &HeaderMap) -> bool {
    if headers.contains_key(FORWARDED) || headers.contains_key(SITE) {
        return false;
    }
    let text = |name: HeaderName| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    let origin = text(header::ORIGIN);
    let (host, port) = match origin.strip_prefix(b"https://") {
        Some(host) => (host, &b":443"[..]),
        None => (origin.strip_prefix(b"http://").unwrap_or(origin), &b":80"[..]),
    };
    let asked = text(header::HOST);
    !origin.is_empty() && host != asked && Some(host) != asked.strip_suffix(port)
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
        let found = refusal(&method, &map, false).is_some();
        assert_eq!(found, refused, "{method} {headers:?}");
    }

    const BROWSER: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11)");

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let site = |value| ("sec-fetch-site", value);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            check(method.clone(), &[BROWSER], false);
            check(method.clone(), &[BROWSER, site("same-origin")], false);
            check(method.clone(), &[BROWSER, site("none")], false);
            check(method.clone(), &[BROWSER, site("cross-site")], true);
            check(method.clone(), &[BROWSER, site("same-site")], true);
            let both = [BROWSER, site("same-origin"), site("cross-site")];
            check(method.clone(), &both, true);
            // `kubectl proxy` adds the token.
            let token = ("authorization", "Bearer x");
            check(method.clone(), &[BROWSER, site("cross-site"), token], true);
            // A program that passes on what a browser sent to it.
            let program = ("user-agent", "Headlamp 0.30");
            check(method, &[program, site("cross-site")], false);
        }
        check(Method::GET, &[BROWSER, site("cross-site")], false);
    }

    #[test]
    fn pages_of_other_origins_open_no_sockets() {
        let upgrade = ("upgrade", "websocket");
        let host = ("host", "api.example:6443");
        let origin = |value| ("origin", value);
        let site = ("sec-fetch-site", "cross-site");
        check(Method::GET, &[upgrade], false);
        check(Method::GET, &[BROWSER, upgrade, site], true);
        let own = origin("https://api.example:6443");
        check(Method::GET, &[upgrade, BROWSER, host, own], false);
        let default_port = [("host", "api.example:443"), origin("https://api.example")];
        check(
            Method::GET,
            &[&[upgrade, BROWSER][..], &default_port].concat(),
            false,
        );
        for foreign in ["https://evil.example", "https://api.example", "null"] {
            let foreign = origin(foreign);
            let all = [upgrade, BROWSER, host, foreign];
            check(Method::GET, &all, true);
            check(Method::GET, &[BROWSER, host, foreign], false);
            check(Method::GET, &[upgrade, host, foreign], false);
            let with = |more| [&all[..], &[more]].concat();
            check(Method::GET, &with(("x-forwarded-for", "127.0.0.1")), false);
            check(Method::GET, &with(("authorization", "Bearer x")), true);
        }
    }

    #[test]
    fn a_page_with_a_token_of_its_own_opens_sockets() {
        let mut headers = HeaderMap::new();
        let token = "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.eHg";
        for (name, value) in [
            BROWSER,
            ("upgrade", "websocket"),
            ("sec-fetch-site", "cross-site"),
            ("sec-websocket-protocol", token),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert!(refusal(&Method::GET, &headers, false).is_none());
        assert!(refusal(&Method::GET, &headers, true).is_some());
        headers.insert("authorization", HeaderValue::from_static("Bearer x"));
        assert!(refusal(&Method::GET, &headers, false).is_some());
    }

    #[test]
    fn nothing_becomes_a_service_worker() {
        let mut headers = HeaderMap::new();
        assert!(service_worker_refusal(&headers).is_none());
        headers.insert(SERVICE_WORKER, HeaderValue::from_static("script"));
        let refused = service_worker_refusal(&headers).expect("a refusal");
        assert_eq!(refused.status(), http::StatusCode::FORBIDDEN);
    }
}
