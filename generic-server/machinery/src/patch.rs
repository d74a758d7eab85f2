//! The three classic forms of PATCH: JSON patch, JSON merge patch and strategic merge patch. Server-side apply is
//! [`crate::apply`].
//!
//! Each takes the object and the patch as values and gives the patched object, not yet decoded, defaulted or validated.
//! Objects and patches come from the decoder, which bounds their depth; only a JSON patch can nest deeper, and is stopped.

pub mod json;
pub mod merge;
pub mod strategic;

use crate::ApiError;
use crate::status::{Details, Reason};

/// Why a patch does not apply. Turns into the [`ApiError`] that upstream answers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400 with this text.
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not fit the object: 422. Upstream does not show the client why.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch asks for too much: 413 with this text.
    #[error("{0}")]
    TooLarge(String),
    /// Upstream answers its bare text with 500.
    #[error("{0}")]
    Internal(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::BadRequest(text) => ApiError::bad_request(text),
            PatchError::Unprocessable(_) => {
                let text = "the server rejected our request due to an error in our request";
                ApiError::new(422, Reason::Invalid, text).with_details(Details::default())
            }
            PatchError::TooLarge(text) => ApiError::too_large(text),
            PatchError::Internal(text) => ApiError::raw_internal(text),
        }
    }
}
