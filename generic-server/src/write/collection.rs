//! DELETE on a collection: one by one, in pages, so that it makes progress on huge collections.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use machinery::{ApiError, Reason};

use super::{DeleteOptions, WriteCall, delete};
use crate::registry::cache::Entry;

/// How many deletions are under way at once: they share group commits.
const CONCURRENCY: usize = 32;
/// How many are prepared at once, so that memory does not grow with the collection.
const PAGE: usize = 1024;

/// Deletes these objects as [`delete`] does. Objects that are gone meanwhile are fine; the first other failure ends it, with
/// everything before it deleted.
pub async fn delete_collection(
    call: &WriteCall<'_>,
    entries: &[Arc<Entry>],
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    for page in entries.chunks(PAGE) {
        let deletions: Vec<_> = page
            .iter()
            .map(|entry| delete_one(call, entry, options))
            .collect();
        stream::iter(deletions)
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
    }
    Ok(())
}

/// Boxed, because the compiler cannot see that the unboxed futures of a stream are `Send` for every lifetime.
fn delete_one<'a>(
    call: &'a WriteCall<'a>,
    entry: &'a Entry,
    options: &'a DeleteOptions,
) -> BoxFuture<'a, Result<(), ApiError>> {
    Box::pin(async move {
        let call = WriteCall {
            namespace: entry.namespace(),
            ..*call
        };
        match delete(&call, entry.name(), options).await {
            Err(error) if error.reason() != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}
