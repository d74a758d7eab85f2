//! The one translation from storage errors to API errors. Internal detail goes to the log.

use machinery::{ApiError, Cause, GroupResource, Reason};
use storage::StorageError;

/// The cause that clients look for.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// A storage failure as the client sees it. `verb` is what was being done: `get`, `list`, `create`...
pub fn from_storage(error: &StorageError, resource: &GroupResource, verb: &str) -> ApiError {
    match error {
        StorageError::Compacted { .. } => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        StorageError::FutureRevision { asked, newest } => too_large(asked.0, newest.0),
        StorageError::TooLarge(why) => ApiError::too_large(why),
        StorageError::NoSpace(why) => {
            tracing::error!(resource.gvr = %resource, verb, error = %why, "the store is out of space");
            ApiError::new(
                507,
                Reason::InternalError,
                "Internal error occurred: the store has too little free space",
            )
        }
        StorageError::Unavailable { .. } => {
            tracing::warn!(resource.gvr = %resource, verb, %error, "storage is unavailable");
            ApiError::server_timeout(resource, verb, 2)
        }
        StorageError::Uncertain(_) => {
            tracing::warn!(resource.gvr = %resource, verb, %error, "the outcome of a write is unknown");
            ApiError::server_timeout(resource, verb, 2)
        }
        other => {
            tracing::error!(resource.gvr = %resource, verb, error = %other, source = ?std::error::Error::source(other), "storage failed");
            ApiError::internal("the storage operation failed")
        }
    }
}

/// Whether this is [`too_large`]: the cache does not reach a revision in time.
pub(crate) fn is_too_large(error: &ApiError) -> bool {
    let causes = error.details().map(|details| &details.causes);
    causes.is_some_and(|causes| causes.iter().any(|cause| cause.reason == TOO_LARGE))
}

/// 504 `Too large resource version: X, current: Y`, with the cause that clients look for.
pub(crate) fn too_large(asked: u64, current: u64) -> ApiError {
    ApiError::timeout(
        format_args!("Too large resource version: {asked}, current: {current}"),
        1,
    )
    .with_cause(Cause {
        reason: TOO_LARGE.into(),
        message: "Too large resource version".into(),
        field: String::new(),
    })
}
