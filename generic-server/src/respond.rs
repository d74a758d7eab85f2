//! The only place where an [`ApiError`] becomes a Status on the wire.

use machinery::ApiError;

use crate::negotiate::{ErrorForm, Media};
use crate::request::Response;

/// The error as a JSON Status, whatever the client takes.
pub fn error(error: &ApiError) -> Response {
    negotiated(
        error,
        ErrorForm {
            media: Media::Json,
            pretty: false,
        },
    )
}

/// The error in the form that the client takes.
pub(crate) fn negotiated(error: &ApiError, form: ErrorForm) -> Response {
    crate::handlers::output::error(form, error)
}
