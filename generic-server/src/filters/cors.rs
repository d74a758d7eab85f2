//! Cross-origin requests of browsers (`--cors-allowed-origins`).

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use regex::Regex;

use crate::request::{Request, Response, empty};

/// The allowed origins, compiled once. Without patterns nothing is added to any answer.
#[derive(Debug, Default)]
pub struct Cors(Vec<Regex>);

/// The headers for an allowed origin.
#[derive(Debug)]
pub(crate) struct Allowed(HeaderValue);

impl Cors {
    /// From patterns, as the flag has them.
    ///
    /// # Errors
    /// A pattern that is no regular expression.
    pub fn new(patterns: &[String]) -> Result<Self, regex::Error> {
        Ok(Cors(
            patterns.iter().map(|p| Regex::new(p)).collect::<Result<_, _>>()?,
        ))
    }

    /// The origin, when the request has one and it is allowed.
    pub(crate) fn check(&self, request: &Request) -> Option<Allowed> {
        if self.0.is_empty() {
            return None;
        }
        let origin = request.headers().get(header::ORIGIN)?;
        let text = origin.to_str().ok().filter(|text| !text.is_empty())?;
        self.0
            .iter()
            .any(|pattern| pattern.is_match(text))
            .then(|| Allowed(origin.clone()))
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
