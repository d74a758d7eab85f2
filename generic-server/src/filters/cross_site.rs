//! Requests that another site makes a browser send.
//!
//! A browser adds a client certificate to whatever request a page makes, and one that it takes for simple (a POST without a media type among
//! them) it sends without asking the server before. It says in `Sec-Fetch-Site` where the page is from; other clients do not send that header.

use http::{HeaderMap, Method, header};
use machinery::{ApiError, GroupResource};

use crate::request::Response;

const SITE: &str = "sec-fetch-site";

/// Refuses a request that may change something, or that switches protocols, when a page of another site has made it with credentials that
/// the browser added. A page cannot add `Authorization` unless its origin is allowed.
pub(crate) fn refusal(method: &Method, headers: &HeaderMap) -> Option<Response> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if reads && !headers.contains_key(header::UPGRADE) || headers.contains_key(header::AUTHORIZATION) {
        return None;
    }
    let foreign = headers
        .get_all(SITE)
        .iter()
        .any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    foreign.then(|| {
        let why = "cross-site request of a browser: allow its origin with --cors-allowed-origins";
        let error = ApiError::forbidden(&GroupResource::new("", ""), "", why);
        super::headers::no_sniff(crate::respond::error(&error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, headers: &[(&'static str, &'static str)], refused: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_static(value));
        }
        assert_eq!(refusal(&method, &map).is_some(), refused, "{method} {headers:?}");
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            check(method.clone(), &[], false);
            check(method.clone(), &[(SITE, "same-origin")], false);
            check(method.clone(), &[(SITE, "none")], false);
            check(method.clone(), &[(SITE, "cross-site")], true);
            check(method.clone(), &[(SITE, "same-site")], true);
            check(method.clone(), &[(SITE, "same-origin"), (SITE, "cross-site")], true);
            check(
                method,
                &[(SITE, "cross-site"), ("authorization", "Bearer x")],
                false,
            );
        }
        check(Method::GET, &[(SITE, "cross-site")], false);
        check(
            Method::GET,
            &[(SITE, "cross-site"), ("upgrade", "websocket")],
            true,
        );
        check(Method::GET, &[("upgrade", "websocket")], false);
    }
}
