//! The layers of the handler chain, one file each. Their order, and why, is in [`crate::chain`].

pub mod audit;
pub(crate) mod authentication;
pub mod authorization;
pub mod cors;
pub(crate) mod deadline;
pub(crate) mod headers;
pub(crate) mod impersonation;
pub(crate) mod long_running;
pub mod max_in_flight;
pub(crate) mod sending;

use http::{HeaderValue, StatusCode, header};

use crate::request::{Response, full};

/// A plain text answer, as Go's `http.Error` gives it: a line break at the end and no sniffing.
pub fn text_error(code: StatusCode, text: &str) -> Response {
    let mut response = Response::new(full(format!("{text}\n")));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// The answer for a path that nobody serves.
pub fn not_found() -> Response {
    text_error(StatusCode::NOT_FOUND, "404 page not found")
}

/// A string as Go's `%q` prints it.
pub fn quote(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let _ = match c {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{7}' => out.write_str("\\a"),
            '\u{8}' => out.write_str("\\b"),
            '\u{b}' => out.write_str("\\v"),
            '\u{c}' => out.write_str("\\f"),
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
            c if c.is_control() => write!(out, "\\u{:04x}", u32::from(c)),
            c => out.write_char(c),
        };
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_go() {
        assert_eq!(quote("a\"b\\c\n\u{1}é\u{85}"), r#""a\"b\\c\n\x01é\u0085""#);
    }
}
