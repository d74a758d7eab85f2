//! The layers of the handler chain, one file each. Their order, and why, is in [`crate::chain`].

pub mod audit;
pub(crate) mod authentication;
pub mod cors;
pub(crate) mod cross_site;
pub(crate) mod deadline;
mod fairness;
pub(crate) mod headers;
pub(crate) mod impersonation;
pub(crate) mod labels;
pub(crate) mod long_running;
pub mod max_in_flight;
pub(crate) mod sending;

use http::{HeaderValue, StatusCode, Uri, header};

use crate::authz::sanitize;
use crate::request::{Response, full};

/// The 500 that upstream answers in plain text, with the request's URI and nothing that looks like HTML.
pub(crate) fn internal_error(uri: &Uri, error: &str) -> Response {
    // As `RequestURI` of Go's server: without the authority that HTTP/2 puts before it.
    let uri = uri.path_and_query().map_or("", |uri| uri.as_str());
    let uri = machinery::go::quote(uri);
    let text = format!("Internal Server Error: {uri}: {error}");
    text_error(StatusCode::INTERNAL_SERVER_ERROR, &sanitize(&text))
}

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

/// The answer for an unknown path.
pub fn not_found() -> Response {
    text_error(StatusCode::NOT_FOUND, "404 page not found")
}
