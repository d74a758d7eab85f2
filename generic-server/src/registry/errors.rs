//! The one translation from storage errors to API errors. Internal detail goes to the log.

use std::sync::Arc;

use machinery::status::Details;
use machinery::{ApiError, Cause, GroupResource, Reason};
use storage::StorageError;

use crate::registry::cache::{Unreadable, ValueError};

/// The cause that clients look for.
const TOO_LARGE: &str = "ResourceVersionTooLarge";
/// Objects that a failed list names at most.
const NAMED: usize = 100;

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

/// 500 for an object that is there and cannot be read. `detailed`: in the words of upstream's handling of corrupt objects.
pub(crate) fn unreadable(object: &Unreadable, detailed: bool) -> ApiError {
    if detailed {
        // Upstream prints the key without the prefix of the whole store here.
        let key = object
            .key
            .get(1..)
            .and_then(|key| Some(&object.key[key.find('/')? + 1..]));
        return ApiError::internal(object.corruption(key.unwrap_or(&object.key)));
    }
    match &object.error {
        ValueError::Untransformable(why) => ApiError::internal(why),
        ValueError::Undecodable(why) => ApiError::raw_internal(why.clone()),
    }
}

/// 500 for a list with objects that cannot be read; with `detailed` it names them.
pub(crate) fn unreadable_list(
    objects: &[Arc<Unreadable>],
    resource: &GroupResource,
    detailed: bool,
) -> ApiError {
    let Some(first) = objects.first() else {
        return ApiError::internal("the list cannot be read");
    };
    if !detailed {
        return match &first.error {
            ValueError::Untransformable(why) => {
                ApiError::internal(format_args!("unable to transform key \"{}\": {why}", first.key))
            }
            ValueError::Undecodable(why) => ApiError::raw_internal(why.clone()),
        };
    }
    let message = format!("failed to read one or more {resource} from the storage");
    let details = Details {
        group: resource.group.to_string(),
        kind: resource.resource.to_string(),
        name: "list".into(),
        ..Details::default()
    };
    let mut error = ApiError::new(500, Reason::StorageReadError, message).with_details(details);
    for object in objects.iter().take(NAMED) {
        error = error.with_cause(Cause {
            reason: "UnexpectedServerResponse".into(),
            message: object.corruption(&object.key),
            field: object.key.to_string(),
        });
    }
    if objects.len() > NAMED {
        error = error.with_cause(Cause {
            reason: "FieldValueTooMany".into(),
            message: "too many errors, the list is truncated".into(),
            field: String::new(),
        });
    }
    error
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
