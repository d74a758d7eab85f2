//! What a request says when it is passed on: who asks, where it came from, and nothing that was meant for this hop alone.

use std::net::IpAddr;

use generic_server::User;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Names the aggregators that a request came through, so that one that comes back is not passed on again.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-kubernetes-aggregated-by");
const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

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
/// As Go's `URL.EscapedPath`.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');
/// As Go's `url.QueryEscape`, but for the space.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b' ');

/// What RFC 3986 calls reserved, and everything else but letters, digits and `-._~`.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Text as one segment of a path, or as one value of a query.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// Removes what concerns one connection alone, and what `Connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Says who asks; what the client said of that is gone.
pub(crate) fn set_identity(headers: &mut HeaderMap, user: &User) {
    let doomed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| **name == USER || **name == UID || **name == GROUP || name.as_str().starts_with(EXTRA))
        .cloned()
        .collect();
    for name in doomed {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
    insert(headers, USER, &user.name);
    if !user.uid.is_empty() {
        insert(headers, UID, &user.uid);
    }
    for group in &user.groups {
        append(headers, GROUP, group);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", utf8_percent_encode(key, KEY)).to_ascii_lowercase();
        let Ok(name) = HeaderName::try_from(name) else {
            continue;
        };
        for value in values {
            append(headers, name.clone(), value);
        }
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.insert(name, value);
    }
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
        headers.append(name, value);
    }
}

/// Says where the request came from and where it goes.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, client: Option<IpAddr>, authority: &str, path: &str) {
    let name = HeaderName::from_static("x-forwarded-for");
    if let Some(client) = client {
        let mut chain: Vec<String> = headers
            .get_all(&name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(str::to_string)
            .collect();
        chain.push(client.to_string());
        insert(headers, name, &chain.join(", "));
    }
    insert(headers, HeaderName::from_static("x-forwarded-uri"), path);
    insert(headers, HeaderName::from_static("x-forwarded-host"), authority);
    insert(headers, HeaderName::from_static("x-forwarded-proto"), "https");
    insert(headers, header::HOST, authority);
}

/// Path and query as they are passed on: the path decoded and encoded anew, the query sorted by key.
pub(crate) fn location(path: &str, query: Option<&str>) -> String {
    let mut out = utf8_percent_encode(path, PATH).to_string();
    let query = sorted_query(query.unwrap_or_default());
    if !query.is_empty() {
        out.push('?');
        out.push_str(&query);
    }
    out
}

fn sorted_query(query: &str) -> String {
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key)?, decode(value)?))
        })
        .collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = String::with_capacity(query.len());
    for (key, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        encode(&key, &mut out);
        out.push('=');
        encode(&value, &mut out);
    }
    out
}

/// `None` for an escape that is none: such a pair is dropped.
fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    let bad = bytes.iter().enumerate().any(|(at, byte)| {
        *byte == b'%'
            && !bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    });
    if bad {
        return None;
    }
    Some(percent_decode_str(&text.replace('+', " ")).collect())
}

fn encode(bytes: &[u8], out: &mut String) {
    for part in percent_encoding::percent_encode(bytes, QUERY) {
        out.extend(part.chars().map(|c| if c == ' ' { '+' } else { c }));
    }
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
    fn identity_replaces_what_the_client_said() {
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
        set_identity(&mut headers, &user);
        let mut told: Vec<String> = headers
            .iter()
            .map(|(k, v)| format!("{k}={}", v.to_str().unwrap_or_default()))
            .collect();
        told.sort();
        assert_eq!(
            told,
            [
                "x-remote-extra-a.b%2fc%25d=v",
                "x-remote-group=g",
                "x-remote-group=h",
                "x-remote-user=amy"
            ]
        );
    }

    #[test]
    fn headers_of_one_hop_stay_here() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("x-kept", "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        strip_hop_by_hop(&mut headers);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-kept"]
        );
    }
}
