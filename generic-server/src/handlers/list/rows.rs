//! The items of a list, looked at one by one while the list is written.

use std::sync::Arc;
use std::vec::IntoIter;

use bytes::Bytes;
use machinery::ApiError;
use serde_json::Value;

use crate::handlers::served;
use crate::handlers::table::RowOf;
use crate::registry::cache::Entry;
use crate::registry::list::Entries;
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
    Entries(Entries),
    /// The answers of a remote converter.
    Converted(IntoIter<Bytes>),
    /// Objects that were computed for the request.
    Computed(IntoIter<Value>),
}

/// An item before it is looked at.
#[derive(Debug)]
pub(super) enum Item {
    /// A cached object.
    Entry(Arc<Entry>),
    /// The answer of a remote converter.
    Converted(Bytes),
    /// An object that was computed for the request.
    Computed(Value),
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
    pub(super) async fn cached(resource: &Arc<ServedResource>, entries: Entries) -> Result<Self, ApiError> {
        let source = match resource.remote() {
            Some(remote) => {
                let entries: Vec<_> = entries.collect();
                Source::Converted(remote.from_stored(&entries).await?.into_iter())
            }
            None => Source::Entries(entries),
        };
        Ok(Rows {
            resource: resource.clone(),
            source,
        })
    }

    /// The first item that was not taken, with the bytes that are gone through to get and encode it.
    pub(super) fn take(&mut self) -> Option<(Item, usize)> {
        let item = match &mut self.source {
            Source::Entries(entries) => Item::Entry(entries.next()?),
            Source::Converted(answers) => Item::Converted(answers.next()?),
            Source::Computed(objects) => Item::Computed(objects.next()?),
        };
        let size = item.size();
        Some((item, size))
    }

    /// The cached objects, if that is what the items are.
    pub(super) fn entries(&self) -> Option<&Entries> {
        match &self.source {
            Source::Entries(entries) => Some(entries),
            Source::Converted(_) | Source::Computed(_) => None,
        }
    }

    /// What the items are objects of.
    pub(super) fn resource(&self) -> &Arc<ServedResource> {
        &self.resource
    }

    /// Whether all items are slices of what is cached.
    pub(super) fn are_plain(&self) -> bool {
        matches!(self.source, Source::Entries(_)) && served::plain(&self.resource)
    }
}

impl Item {
    fn size(&self) -> usize {
        match self {
            Item::Entry(entry) => entry.json.len(),
            Item::Converted(answer) => answer.len(),
            Item::Computed(_) => COMPUTED,
        }
    }

    /// The object as it is served.
    pub(super) fn row(self, resource: &ServedResource) -> Result<RowOf, ApiError> {
        match self {
            Item::Entry(entry) if served::plain_at(resource, entry.revision) => Ok(RowOf::Entry(entry)),
            Item::Entry(entry) => served::parsed(resource, &entry).map(RowOf::Value),
            Item::Converted(answer) => served::answered(resource, &answer).map(RowOf::Value),
            Item::Computed(object) => Ok(RowOf::Value(object)),
        }
    }
}
