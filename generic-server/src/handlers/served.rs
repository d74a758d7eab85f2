//! Objects as they are served: an entry's JSON as it is, or parsed, converted and decorated.

use std::sync::Arc;

use machinery::ApiError;
use serde_json::Value;
use storage::Revision;

use crate::negotiate::{IncludeObject, Media, MetaVersion, View};
use crate::registry::cache::Entry;
use crate::registry::forms::{FormCache, FormId, Owner};
use crate::resource::ServedResource;
use crate::respond::json;

/// Whether the JSON of entries is what is served, but for the `apiVersion`.
pub(crate) fn plain(resource: &ServedResource) -> bool {
    resource.served_as_stored() && resource.strategy.decorate().is_none()
}

/// The same of an object written at a revision, which may be as decoration would have it already.
pub(crate) fn plain_at(resource: &ServedResource, revision: Revision) -> bool {
    let strategy = &resource.strategy;
    resource.served_as_stored()
        && (strategy.decorate().is_none()
            || strategy.decorated_since().is_some_and(|since| revision >= since))
}

/// What is kept of cached objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The protobuf message of an object, or of its metadata.
    Message { metadata_only: bool },
    /// The cells of a Table, with marks for ages.
    Cells,
    /// Frames of a watch in this media type and view.
    Frame(Media, View),
    /// Compressed items of a list likewise.
    Items(Media, View),
}

/// The identity of a form of a resource's objects. Another definition of the resource is another resource, so that its forms are others.
pub(crate) fn form(resource: &Arc<ServedResource>, forms: &FormCache, form: Form) -> FormId {
    let owner: Owner = resource.clone();
    forms.id(&owner, form.number())
}

impl Form {
    fn number(self) -> u16 {
        let viewed = |media: Media, view: View| {
            let version = |version: MetaVersion| match version {
                MetaVersion::V1 => 0,
                MetaVersion::V1Beta1 => 1,
            };
            let view = match view {
                View::Object => 0,
                View::Partial(v) => 2 + version(v),
                View::PartialList(v) => 4 + version(v),
                View::Table(v, IncludeObject::None) => 6 + version(v),
                View::Table(v, IncludeObject::Metadata) => 8 + version(v),
                View::Table(v, IncludeObject::Object) => 10 + version(v),
            };
            view << 2 | media as u16
        };
        match self {
            Form::Message { metadata_only } => u16::from(metadata_only),
            Form::Cells => 2,
            Form::Frame(media, view) => 1 << 8 | viewed(media, view),
            Form::Items(media, view) => 2 << 8 | viewed(media, view),
        }
    }
}

/// `{"kind":K,"apiVersion":V,`: what comes before an entry's untyped JSON in the served version.
pub(crate) fn typed_head(resource: &ServedResource) -> Vec<u8> {
    json::type_head(&resource.gvk.kind, &resource.gvk.api_version())
}

/// An entry's object as it is served, parsed. Fails for resources whose converter has to be asked: [`converted`] asks.
pub(crate) fn parsed(resource: &ServedResource, entry: &Entry) -> Result<Value, ApiError> {
    if resource.remote().is_some() {
        return Err(ApiError::internal("the object has not been converted"));
    }
    let mut object = entry.value();
    if let Some(converter) = resource.rule() {
        object = converter.from_stored(object)?;
    }
    decorate(resource, &mut object);
    Ok(object)
}

pub(super) fn decorate(resource: &ServedResource, object: &mut Value) {
    if let Some(decorate) = resource.strategy.decorate() {
        decorate(object);
    }
}

/// The answer of a remote converter about an object, as it is served.
pub(crate) fn answered(resource: &ServedResource, json: &[u8]) -> Result<Value, ApiError> {
    let mut object = machinery::codec::json::value(json).map_err(ApiError::internal)?;
    decorate(resource, &mut object);
    Ok(object)
}

/// An entry's object as it is served, parsed, converted by a rule or by a webhook.
pub(super) async fn converted(resource: &ServedResource, entry: &Arc<Entry>) -> Result<Value, ApiError> {
    let Some(remote) = resource.remote() else {
        return parsed(resource, entry);
    };
    let json = remote.from_stored(std::slice::from_ref(entry)).await?;
    answered(resource, json.first().map(|b| &b[..]).unwrap_or_default())
}
