//! Absolute URLs, as Go's `url.ParseRequestURI` accepts them.

use std::collections::BTreeMap;

use go_text::Quoted;
use go_text::url::{bad_escape, check_host, scheme};

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    query: String,
}

/// Parses an absolute URI or absolute path. The error is Go's.
pub(crate) fn parse(raw: &str) -> Result<Url, String> {
    let refuse = |why: &str| Err(format!("parse {}: {why}", Quoted(raw)));
    if raw.bytes().any(|b| b < b' ' || b == 0x7f) {
        return refuse("net/url: invalid control character in URL");
    }
    if raw.is_empty() {
        return refuse("empty url");
    }
    let (scheme, rest) = match scheme(raw) {
        Ok(split) => split,
        Err(why) => return refuse(why),
    };
    let body = rest.split('#').next().unwrap_or(rest);
    let (body, query) = body.split_once('?').unwrap_or((body, ""));
    if !body.starts_with('/') {
        if scheme.is_empty() {
            return refuse("invalid URI for request");
        }
        // Opaque, as in `mailto:a@b`.
        return Ok(Url {
            text: raw.to_string(),
            scheme,
            host: String::new(),
            path: String::new(),
            query: query.to_string(),
        });
    }
    let (host, path) = match body.strip_prefix("//") {
        Some(body) if !scheme.is_empty() || !body.starts_with('/') => {
            let (authority, path) = body.split_at(body.find('/').unwrap_or(body.len()));
            (
                authority.rsplit_once('@').map_or(authority, |(_, host)| host),
                path,
            )
        }
        _ => ("", body),
    };
    if let Err(why) = check_host(host) {
        return refuse(&why);
    }
    if let Some(escape) = bad_escape(path) {
        return refuse(&format!("invalid URL escape {}", Quoted(escape)));
    }
    Ok(Url {
        text: raw.to_string(),
        scheme,
        host: unescape(host, false).unwrap_or_else(|| host.to_string()),
        path: path.to_string(),
        query: query.to_string(),
    })
}

pub(crate) fn unescape(text: &str, plus: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        match b {
            b'%' => {
                let pair = [bytes.next()?, bytes.next()?];
                out.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
            }
            b'+' if plus => out.push(b' '),
            b => out.push(b),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Percent-encodes what a path cannot hold as it is.
pub(crate) fn escaped_path(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@/[]%".contains(&b);
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        if plain(b) {
            out.push(b as char);
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

impl Url {
    pub(crate) fn split_host(&self) -> (&str, &str) {
        let end = self.host.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match self.host[end..].rfind(':') {
            Some(at) => (&self.host[..end + at], &self.host[end + at + 1..]),
            None => (&self.host[..], ""),
        };
        (
            host.strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .unwrap_or(host),
            port,
        )
    }

    pub(crate) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'))
        {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (unescape(key, true), unescape(value, true)) {
                out.entry(key).or_default().push(value);
            }
        }
        out
    }
}
