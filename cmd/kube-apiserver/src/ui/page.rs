//! Serves the page's files with the headers that keep a browser from doing anything else with them.

use bytes::Bytes;
use generic_server::endpoint::Endpoint;
use generic_server::negotiate::takes_gzip;
use generic_server::request::{Authorized, Request, Response, empty, full};
use generic_server::{ApiError, filters, respond};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::files::File;

/// Scripts, styles, images and requests of this origin alone; no frames, forms or plugins.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    // A server of another version has other files under the same names.
    (header::CACHE_CONTROL, "no-cache"),
];

/// The endpoint of all files.
#[derive(Debug)]
pub(super) struct Page;

#[async_trait::async_trait]
impl Endpoint for Page {
    fn is_static(&self) -> bool {
        true
    }

    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        let path = request.uri().path();
        let below = path.strip_prefix(super::PATH).unwrap_or(path);
        let mut response = match (request.method(), below) {
            (&(Method::GET | Method::HEAD), "") => moved(),
            (&(Method::GET | Method::HEAD), _) => match below.strip_prefix('/').and_then(File::find) {
                Some(file) => answer(file, request.headers()),
                None => filters::not_found(),
            },
            _ => respond::error(&ApiError::method_not_allowed()),
        };
        for (name, value) in HEADERS {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// To the path with a slash, which the names in the page are relative to. Relative itself, since a proxy may serve it below a prefix.
fn moved() -> Response {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_static("ui/");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response {
    let forms = file.forms();
    let gzip = forms.gzip.as_ref().filter(|_| takes_gzip(asked));
    let tag = match gzip {
        Some(_) => format!("\"{}-gzip\"", forms.hash),
        None => format!("\"{}\"", forms.hash),
    };
    let body = match gzip {
        Some(bytes) => bytes.clone(),
        None => Bytes::from_static(file.content),
    };
    let mut response = Response::new(empty());
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media));
    if let Ok(value) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, value);
    }
    if is_known(asked, &tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    if gzip.is_some() {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    // An answer to HEAD has no body that the length could be taken from.
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    response.map(|_| full(body))
}

/// Whether the client has this form already.
fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|one| one.trim().trim_start_matches("W/"))
        .any(|one| one == "*" || one == tag)
}
