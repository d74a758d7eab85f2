//! From gRPC's statuses to this crate's errors. etcd's errors are distinguished by their texts.

use tonic::{Code, Status};

use crate::{Revision, StorageError};

/// The possible effect of a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It never reached a member, or the member did not take it.
    No,
    /// Unknown.
    Perhaps,
}

/// Whether another member, or the same one later, may answer; and what the call may have done meanwhile.
pub(super) fn retry(status: &Status) -> Option<Sent> {
    if never_connected(status) {
        return Some(Sent::No);
    }
    let message = status.message();
    match status.code() {
        Code::Unavailable if message.contains("etcdserver: no leader") => Some(Sent::No),
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => Some(Sent::Perhaps),
        // A broken connection shows up under either code.
        Code::Unknown | Code::Internal if !message.contains("etcdserver:") => Some(Sent::Perhaps),
        _ => None,
    }
}

fn never_connected(status: &Status) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message, and the innermost cause where the message does not tell it: which of a refused connection, an unknown host and a wrong
/// certificate it was.
fn with_cause(status: &Status) -> String {
    let mut innermost: Option<String> = None;
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    let message = status.message();
    match innermost.filter(|cause| !message.contains(cause.as_str())) {
        Some(cause) => format!("{message}: {cause}"),
        None => message.to_owned(),
    }
}

/// The error for the caller. `asked` is the revision of the call, `oldest` the oldest one not known to be compacted,
/// `newest` the newest one known.
pub(super) fn translate(status: Status, asked: u64, oldest: u64, newest: u64) -> StorageError {
    let message = status.message();
    if message.contains("required revision has been compacted") {
        // Which revision is the oldest the error does not say: it is at least the next.
        return StorageError::Compacted {
            asked: Revision(asked),
            oldest: Revision(oldest.max(asked + 1)),
        };
    }
    if message.contains("required revision is a future revision") {
        return StorageError::FutureRevision {
            asked: Revision(asked),
            newest: Revision(newest.min(asked.saturating_sub(1))),
        };
    }
    if message.contains("database space exceeded") {
        return StorageError::NoSpace(message.to_owned());
    }
    let too_large = [
        "request is too large",
        "too many operations",
        "message larger than max",
    ];
    if too_large.iter().any(|text| message.contains(text)) {
        return StorageError::TooLarge(message.to_owned());
    }
    if retry(&status).is_some() {
        return StorageError::Unavailable {
            message: format!("etcd does not answer: {}", with_cause(&status)),
            source: Some(Box::new(status)),
        };
    }
    StorageError::Engine {
        message: format!("etcd refused: {message}"),
        source: Some(Box::new(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_errors_are_distinguished() {
        #[track_caller]
        fn check(code: Code, message: &str, expected: fn(&StorageError) -> bool) {
            let error = translate(Status::new(code, message), 7, 3, 20);
            assert!(expected(&error), "{error:?}");
        }
        check(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
            |error| {
                matches!(
                    error,
                    StorageError::Compacted {
                        asked: Revision(7),
                        oldest: Revision(8)
                    }
                )
            },
        );
        check(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision is a future revision",
            |error| {
                matches!(
                    error,
                    StorageError::FutureRevision {
                        asked: Revision(7),
                        newest: Revision(6)
                    }
                )
            },
        );
        check(
            Code::InvalidArgument,
            "etcdserver: request is too large",
            |error| matches!(error, StorageError::TooLarge(_)),
        );
        check(
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
            |error| matches!(error, StorageError::NoSpace(_)),
        );
        check(Code::Unavailable, "etcdserver: leader changed", |error| {
            matches!(error, StorageError::Unavailable { .. })
        });
        check(
            Code::InvalidArgument,
            "etcdserver: duplicate key given in txn request",
            |error| matches!(error, StorageError::Engine { .. }),
        );
        check(Code::PermissionDenied, "etcdserver: permission denied", |error| {
            matches!(error, StorageError::Engine { .. })
        });
    }
}
