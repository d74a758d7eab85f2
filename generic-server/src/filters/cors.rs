//! Cross-origin requests of browsers (`--cors-allowed-origins`).

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use machinery::go::quote;
use regex::Regex;

use crate::request::{Response, empty};

/// The allowed origins, compiled once. Without patterns nothing is added to any answer.
#[derive(Debug, Default)]
pub struct Cors(Vec<Regex>);

/// The headers for an allowed origin.
#[derive(Debug)]
pub(crate) struct Allowed(HeaderValue);

impl Cors {
    /// From patterns, as the flag has them. A pattern has to pin both ends of the host, as upstream demands since
    /// CVE-2022-1996: `example[.]com` alone would allow `example.com.attacker.net` too.
    ///
    /// # Errors
    /// One text for each pattern that is empty, no regular expression, or not pinned.
    pub fn new(patterns: &[String]) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let mut compiled = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            match compile(pattern) {
                _ if pattern.is_empty() => faults.push("empty value in --cors-allowed-origins".to_string()),
                Ok(regex) => compiled.push(regex),
                Err(reason) => faults.push(format!(
                    "--cors-allowed-origins has an invalid regular expression {}: {reason}",
                    quote(pattern)
                )),
            }
        }
        if faults.is_empty() {
            Ok(Cors(compiled))
        } else {
            Err(faults)
        }
    }

    /// The origin, when the head has one and it is allowed.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Option<Allowed> {
        if self.0.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok().filter(|text| !text.is_empty())?;
        self.0
            .iter()
            .any(|pattern| pattern.is_match(text))
            .then(|| Allowed(origin.clone()))
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = Regex::new(pattern).map_err(|error| {
        // The last line names the fault, those before it show where.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        last.strip_prefix("error: ").unwrap_or(last).to_string()
    })?;
    let pinned = [["^", "//"], ["$", ":"]]
        .iter()
        .all(|marks| marks.iter().any(|mark| pattern.contains(mark)));
    if pinned {
        Ok(compiled)
    } else {
        Err("regular expression does not pin to start/end of host in the origin header".to_string())
    }
}

impl Allowed {
    /// Adds the headers to an answer.
    pub(crate) fn decorate(self, headers: &mut HeaderMap) {
        let fixed = [
            (
                "access-control-allow-methods",
                "POST, GET, OPTIONS, PUT, DELETE, PATCH",
            ),
            (
                "access-control-allow-headers",
                "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
            ),
            ("access-control-expose-headers", "Date"),
            ("access-control-allow-credentials", "true"),
        ];
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }

    /// The answer to a preflight request; anything else goes on.
    pub(crate) fn preflight(&self, method: &Method) -> Option<Response> {
        (*method == Method::OPTIONS).then(|| {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }
}
