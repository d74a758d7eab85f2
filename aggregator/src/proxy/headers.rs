//! The headers of a proxied request: the user, where it came from, and nothing that was meant for this hop alone.

use std::net::IpAddr;

use generic_server::User;
use generic_server::request_info::encode_query;
use generic_server::streaming::headers::{append_forwarded_for, escaped_path, remove_identity};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use machinery::go;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Names the aggregators that a request came through, so that one that comes back is not passed on again.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-kubernetes-aggregated-by");
const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Segments of `apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE`.
const RESOURCE_SEGMENTS: usize = 8;

/// Bytes of an extra key that a header name cannot hold, and the percent sign itself.
const KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');
/// The characters that RFC 3986 calls reserved, and everything else but letters, digits and `-._~`.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Text as one segment of a path, or as one value of a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Sets the headers of the authenticated user in place of the client's own. Comes after `strip_hop_by_hop`, which removes the headers that the client names.
///
/// # Errors
/// When a part of the identity cannot be said in a header as it is: without it the backend would take the request for another
/// user's.
pub(crate) fn set_identity(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    remove_identity(headers);
    headers.insert(USER, identity(&USER, &user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, identity(&UID, &user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, identity(&GROUP, group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(key, KEY)).to_ascii_lowercase();
        let name = HeaderName::try_from(name)
            .map_err(|_| format!("invalid header field name for extra {}", go::quote(key)))?;
        for value in values {
            headers.append(name.clone(), identity(&name, value)?);
        }
    }
    Ok(())
}

/// A part of an identity as a header's value. Whitespace around it would be lost on the way.
fn identity(name: &HeaderName, text: &str) -> Result<HeaderValue, String> {
    let invalid = || format!("invalid header field value for {}", go::quote(name.as_str()));
    if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
        return Err(invalid());
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| invalid())
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}

/// Says where the request came from and where it goes.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, client: Option<IpAddr>, authority: &str, path: &str) {
    if let Some(client) = client {
        append_forwarded_for(headers, client);
    }
    insert(headers, HeaderName::from_static("x-forwarded-uri"), path);
    insert(headers, HeaderName::from_static("x-forwarded-host"), authority);
    insert(headers, HeaderName::from_static("x-forwarded-proto"), "https");
    insert(headers, header::HOST, authority);
}

/// Whether every server reads the path alike: dot segments and empty ones are resolved by some, so that one resource would be
/// authorized here and another served there. The rest after a subresource may have empty segments.
pub(crate) fn is_unambiguous(path: &str) -> bool {
    let segments = || path.trim_matches('/').split('/');
    segments().all(|segment| segment != "." && segment != "..")
        && segments()
            .take(RESOURCE_SEGMENTS)
            .all(|segment| !segment.is_empty())
}

/// Path and query as they are passed on: the authorized ones, encoded again, with the query sorted by key.
pub(crate) fn location(path: &str, query: Option<&str>) -> String {
    let mut out = escaped_path(path);
    let query = encode_query(query.unwrap_or_default());
    if !query.is_empty() {
        out.push('?');
        out.push_str(&query);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_location(path: &str, query: &str, expected: &str) {
        assert_eq!(location(path, Some(query)), expected);
    }

    #[test]
    fn locations_are_gos() {
        check_location("/a/b/c d", "", "/a/b/c%20d");
        check_location("/a", "x=1&y=%20z&x=2&e=", "/a?e=&x=1&x=2&y=+z");
        check_location("/a:b@c;d", "a;b=1&c", "/a:b@c;d?c=");
        check_location("/é!", "k=%zz&l=%C3%A9", "/%C3%A9%21?l=%C3%A9");
    }

    #[test]
    fn identity_replaces_headers_of_the_client() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-a", HeaderValue::from_static("b"));
        headers.insert("authorization", HeaderValue::from_static("Bearer x"));
        let user = User {
            name: "amy".into(),
            groups: vec!["g".into(), "h".into()],
            extra: [("a.b/c%d".to_string(), vec!["v".to_string()])].into(),
            ..User::default()
        };
        headers.insert("x_remote_user", HeaderValue::from_static("root"));
        headers.insert("x-remote_extra-a", HeaderValue::from_static("b"));
        headers.insert("impersonate_user", HeaderValue::from_static("root"));
        set_identity(&mut headers, &user).unwrap();
        let mut actual: Vec<String> = headers
            .iter()
            .map(|(k, v)| format!("{k}={}", v.to_str().unwrap_or_default()))
            .collect();
        actual.sort();
        assert_eq!(
            actual,
            [
                "x-remote-extra-a.b%2fc%25d=v",
                "x-remote-group=g",
                "x-remote-group=h",
                "x-remote-user=amy"
            ]
        );
    }

    #[test]
    fn an_identity_is_said_whole_or_not_at_all() {
        let check = |user: User, expected: Result<(), &str>| {
            let got = set_identity(&mut HeaderMap::new(), &user);
            assert_eq!(got, expected.map_err(str::to_string), "{user:?}");
        };
        let named = |name: &str| User {
            name: name.into(),
            ..User::default()
        };
        let wrong = Err(r#"invalid header field value for "x-remote-user""#);
        check(named("zoë"), Ok(()));
        check(named("a b"), Ok(()));
        check(named("root\r\nx: y"), wrong);
        check(named("root\0"), wrong);
        check(named("root "), wrong);
        check(named("\troot"), wrong);
        let group = User {
            groups: vec!["a".into(), "b\n".into()],
            ..named("amy")
        };
        check(group, Err(r#"invalid header field value for "x-remote-group""#));
        let uid = User {
            uid: "\u{7f}".into(),
            ..named("amy")
        };
        check(uid, Err(r#"invalid header field value for "x-remote-uid""#));
        let extra = User {
            extra: [("k".to_string(), vec!["\n".to_string()])].into(),
            ..named("amy")
        };
        check(extra, Err(r#"invalid header field value for "x-remote-extra-k""#));
    }

    #[test]
    fn paths_that_servers_read_differently() {
        let check = |path: &str, expected: bool| assert_eq!(is_unambiguous(path), expected, "{path}");
        check("/apis/g/v1/pods", true);
        check("/apis/g/v1/pods/", true);
        check("//apis/g/v1/pods", true);
        check("/apis/g/v1/namespaces/a/pods/b/proxy/c//d", true);
        check("/apis/g/v1/namespaces/a/pods/b.../proxy", true);
        check("/apis/g/v1//pods", false);
        check("/apis/g/v1/namespaces//pods", false);
        check("/apis/g/v1/namespaces/a/../b/pods", false);
        check("/apis/g/v1/pods/.", false);
        check("/apis/g/v1/namespaces/a/pods/b/proxy/c/../..", false);
    }
}
