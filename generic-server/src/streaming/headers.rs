//! Headers of requests that are passed on: what concerns one connection alone, and what says who the client is.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
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
/// A decoded path as Go's `URL.EscapedPath` gives it.
pub fn escaped_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Whether a request asks for another protocol on its connection.
pub fn asks_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONNECTION).iter();
    values.any(|value| {
        value
            .to_str()
            .is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade"))
    })
}

/// Removes what concerns one connection alone, and what `Connection` names.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
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

/// Whether a header of this name carries an identity, for any server. Some servers take underscores for hyphens.
fn is_identity(name: &str) -> bool {
    const PREFIXES: [&str; 2] = [EXTRA, "impersonate-"];
    let hyphened = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    let is =
        |known: &str| name.len() == known.len() && name.as_bytes().iter().map(hyphened).eq(known.bytes());
    let begins = |known: &str| {
        name.get(..known.len())
            .is_some_and(|start| start.as_bytes().iter().map(hyphened).eq(known.bytes()))
    };
    [USER, UID, GROUP].into_iter().any(is) || PREFIXES.into_iter().any(begins)
}

/// Removes what says who the client is, and its credentials.
pub fn remove_identity(headers: &mut HeaderMap) {
    let named = headers.keys().filter(|name| is_identity(name.as_str()));
    let named: Vec<HeaderName> = named.cloned().collect();
    for name in named {
        headers.remove(name);
    }
    headers.remove(header::AUTHORIZATION);
}

/// Appends the client to `X-Forwarded-For`.
pub fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let name = HeaderName::from_static("x-forwarded-for");
    let chain = headers
        .get_all(&name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut chain: Vec<String> = chain.map(str::to_string).collect();
    chain.push(client.to_string());
    if let Ok(value) = HeaderValue::from_str(&chain.join(", ")) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn identities_are_removed_however_they_are_written() {
        let names = [
            "authorization",
            "x-remote-user",
            "x_remote_user",
            "x-remote_extra-a",
            "impersonate_user",
        ];
        let mut headers: HeaderMap = (names.iter().chain(&["x-kept"]))
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
            .collect();
        remove_identity(&mut headers);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-kept"]
        );
    }

    #[test]
    fn upgrades_are_asked_for_by_connection() {
        let check = |value: &'static str, expected: bool| {
            let headers = HeaderMap::from_iter([(header::CONNECTION, HeaderValue::from_static(value))]);
            assert_eq!(asks_upgrade(&headers), expected, "{value}");
        };
        check("Upgrade", true);
        check("keep-alive, UPGRADE", true);
        check("keep-alive", false);
    }
}
