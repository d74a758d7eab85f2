//! What pages about the server itself (`/statusz`, `/flagz`) have in common: text for people, or an object for those who ask for it by its type.
//! Mirrors `apiserver/pkg/server/{statusz,flagz}`.

use http::{HeaderValue, StatusCode, header};
use machinery::ApiError;
use serde_json::Value;

use crate::negotiate::{Page, page};
use crate::request::{Authorized, Request, Response, full};
use crate::respond;

/// The name of the component, as upstream's server gives it.
pub(crate) const COMPONENT: &str = "apiserver";

/// Begins the text of a page.
pub(crate) fn heading(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"
    )
}

/// Answers a request for a page: `kind` is that of its object, which has the version asked for.
pub(crate) fn answer(
    authorized: &Authorized,
    request: Request,
    kind: &str,
    text: impl FnOnce() -> String,
    object: impl FnOnce(&str) -> Value,
) -> Response {
    let (media, version) = match page(request.headers(), kind) {
        Err(error) => return respond::error(&error),
        Ok(Page::Text) => {
            let mut response = Response::new(full(text()));
            let plain = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, plain);
            return response;
        }
        Ok(Page::Object(media, version)) => (media, version),
    };
    if version == "v1alpha1" {
        let page = kind.to_ascii_lowercase();
        authorized.context().warn(format!(
            "This version of the {page} endpoint is deprecated. Please use a newer version."
        ));
    }
    let (head, _) = request.into_parts();
    let object = object(version).to_string();
    let mut response = respond::object(&head, media, object.into_bytes())
        .unwrap_or_else(|error: ApiError| respond::error(&error));
    let media = format!("{};g=config.k8s.io;v={version};as={kind}", media.content_type());
    if response.status() == StatusCode::OK
        && let Ok(media) = HeaderValue::from_str(&media)
    {
        response.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    response
}
