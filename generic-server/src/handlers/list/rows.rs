//! The items of a list, looked at one by one while the list is written.

use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use machinery::ApiError;
use serde_json::Value;

use crate::handlers::served;
use crate::handlers::table::RowOf;
use crate::registry::cache::Entry;
use crate::resource::ServedResource;

/// Bytes that an object which was computed is taken for.
const COMPUTED: usize = 4 * 1024;

/// The items of a list, in its order.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    resource: Arc<ServedResource>,
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// Cached objects.
    Entries(IntoIter<Arc<Entry>>),
    /// The answers of a remote converter.
    Converted(IntoIter<Bytes>),
    /// Objects that were computed for the request.
    Computed(IntoIter<Value>),
}

impl Rows {
    pub(super) fn computed(resource: &Arc<ServedResource>, objects: Vec<Value>) -> Self {
        Rows {
            resource: resource.clone(),
            source: Source::Computed(objects.into_iter()),
        }
    }

    /// The rows of cached objects. Where a converter has to be asked, it is asked about all of them: a list is answered as a
    /// whole or with an error.
    pub(super) async fn cached(
        resource: &Arc<ServedResource>,
        entries: Vec<Arc<Entry>>,
    ) -> Result<Self, ApiError> {
        let source = match resource.remote() {
            Some(remote) => Source::Converted(remote.from_stored(&entries).await?.into_iter()),
            None => Source::Entries(entries.into_iter()),
        };
        Ok(Rows {
            resource: resource.clone(),
            source,
        })
    }

    /// The first item that was not taken, with the bytes that are gone through to get and encode it.
    pub(super) fn take(&mut self) -> Option<(Result<RowOf, ApiError>, usize)> {
        let resource = &self.resource;
        Some(match &mut self.source {
            Source::Entries(entries) => {
                let entry = entries.next()?;
                let size = entry.json.len();
                (cached(resource, entry), size)
            }
            Source::Converted(answers) => converted(resource, &answers.next()?),
            Source::Computed(objects) => (Ok(RowOf::Value(objects.next()?)), COMPUTED),
        })
    }

    /// The same of the item that far behind it, which is not taken.
    pub(super) fn get(&self, index: usize) -> Option<(Result<RowOf, ApiError>, usize)> {
        let resource = &self.resource;
        Some(match &self.source {
            Source::Entries(entries) => {
                let entry = entries.as_slice().get(index)?;
                (cached(resource, entry.clone()), entry.json.len())
            }
            Source::Converted(answers) => converted(resource, answers.as_slice().get(index)?),
            Source::Computed(objects) => {
                let object = objects.as_slice().get(index)?;
                (Ok(RowOf::Value(object.clone())), COMPUTED)
            }
        })
    }

    /// Whether all items are slices of what is cached.
    pub(super) fn are_plain(&self) -> bool {
        matches!(self.source, Source::Entries(_)) && served::plain(&self.resource)
    }
}

fn cached(resource: &ServedResource, entry: Arc<Entry>) -> Result<RowOf, ApiError> {
    match served::plain_at(resource, entry.revision) {
        true => Ok(RowOf::Entry(entry)),
        false => served::parsed(resource, &entry).map(RowOf::Value),
    }
}

fn converted(resource: &ServedResource, answer: &[u8]) -> (Result<RowOf, ApiError>, usize) {
    (served::answered(resource, answer).map(RowOf::Value), answer.len())
}
