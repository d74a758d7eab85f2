//! Queries as Go's `net/url` reads them: one parser for deciding on a request, for serving it and for passing it on.
//!
//! A pair with a semicolon or with a malformed escape does not exist for any layer. Were it there for authorization and gone for
//! the server behind, a request could be allowed for what it does not ask for.

use std::borrow::Cow;

use machinery::limits;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// As Go's `url.QueryEscape`, but for the space.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b' ');

/// The parameters of a query string, decoded, in order. Pairs that Go's `url.ParseQuery` reports as errors are left out.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.filter(|pair| !pair.contains(';')).filter_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(key)?, decode(value)?))
    })
}

/// The first value of a query parameter, decoded.
pub fn query_value<'a>(query: &'a str, key: &str) -> Option<Cow<'a, str>> {
    query_pairs(query).find(|(k, _)| k == key).map(|(_, v)| v)
}

/// A boolean query parameter as upstream reads it: present and neither `false` nor `0`.
pub fn query_bool(value: Option<&str>) -> bool {
    value.is_some_and(|v| !v.eq_ignore_ascii_case("false") && v != "0")
}

/// The query with exactly the parameters that [`query_pairs`] gives, sorted by key as Go's `Values.Encode` sorts them.
pub fn encode_query(query: &str) -> String {
    let mut pairs: Vec<_> = query_pairs(query).collect();
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

/// Whether a query has more pairs than one may have, counted as Go counts them.
pub(super) fn is_too_long(query: &str) -> bool {
    query.len() >= limits::QUERY_PAIRS && query.bytes().filter(|b| *b == b'&').count() >= limits::QUERY_PAIRS
}

/// Whether every percent sign begins an escape.
pub(super) fn is_escaped_well(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| {
        *byte != b'%'
            || bytes
                .get(at + 1..at + 3)
                .is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    })
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|b| b == b'+' || b == b'%') {
        return Some(Cow::Borrowed(text));
    }
    if !is_escaped_well(text) {
        return None;
    }
    let spaced = text.replace('+', " ");
    Some(Cow::Owned(
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned(),
    ))
}

fn encode(text: &str, out: &mut String) {
    for part in utf8_percent_encode(text, ESCAPED) {
        out.extend(part.chars().map(|c| if c == ' ' { '+' } else { c }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the pairs read from a query, as `key=value` joined by spaces, and the query that is passed on.
    #[track_caller]
    fn check(query: &str, read: &str, passed_on: &str) {
        let got: Vec<String> = query_pairs(query).map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(got.join(" "), read, "{query}");
        assert_eq!(encode_query(query), passed_on, "{query}");
        // The next server must read the very query that was authorized.
        let mut sorted: Vec<_> = query_pairs(query).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(query_pairs(passed_on).eq(sorted), "{query}");
    }

    #[test]
    fn pairs_are_gos() {
        check("", "", "");
        check("&&", "", "");
        check("a", "a=", "a=");
        check("=", "=", "=");
        check("=a&b", "=a b=", "=a&b=");
        check("x=1&y=%20z&x=2&e=", "x=1 y= z x=2 e=", "e=&x=1&x=2&y=+z");
        check("a=b=c", "a=b=c", "a=b%3Dc");
        check("a+b=c%2Bd", "a b=c+d", "a+b=c%2Bd");
        check("A=1&a=2", "A=1 a=2", "A=1&a=2");
        check("k=%C3%A9!", "k=é!", "k=%C3%A9%21");
        // Pairs that do not exist.
        check("watch=1;", "", "");
        check("watch=1;&limit=5", "limit=5", "limit=5");
        check("a;b=1&c", "c=", "c=");
        check("a=%zz&b=%4&c=%&%zz=1&d=%41", "d=A", "d=A");
        // Bytes that are no text are replaced before anything is decided, and passed on as replaced.
        check("a=%ff", "a=\u{fffd}", "a=%EF%BF%BD");
        check("a=%00%0A", "a=\0\n", "a=%00%0A");
    }

    #[test]
    fn the_first_value_counts() {
        assert_eq!(query_value("a=1&a=2", "a").as_deref(), Some("1"));
        assert_eq!(query_value("a=%zz&a=2", "a").as_deref(), Some("2"));
        assert_eq!(query_value("A=1", "a"), None);
    }

    #[test]
    fn pairs_are_bounded() {
        let query = |pairs: usize| vec!["a"; pairs].join("&");
        assert!(!is_too_long(&query(limits::QUERY_PAIRS)));
        assert!(is_too_long(&query(limits::QUERY_PAIRS + 1)));
    }
}
