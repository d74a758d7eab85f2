//! Answers: from an object (cached bytes or a value) in a negotiated form to a response.
//!
//! Cached bytes are sent as they are: the served version, the metadata view and the items of lists are slices of the entry's
//! JSON. Only Tables, YAML, protobuf and kinds with a converter that does more than rename the version look inside.

pub(crate) mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::StatusCode;
use machinery::ApiError;
use serde_json::Value;
use storage::Revision;

use super::table;
use crate::cpu;
use crate::negotiate::{Media, MetaVersion, Negotiated, View};
use crate::registry::cache::Entry;
use crate::request::Response;
use crate::resource::ServedResource;
use crate::respond::{finish, json};
use crate::write::Stored;

/// The content of an answer.
#[derive(Debug)]
pub(crate) enum Source {
    /// The object of a read or write.
    Stored(Stored),
    /// An object of the resource, in the served version.
    Value(Value),
    /// An object of another kind (Scale).
    Other(Value),
}

impl From<Arc<Entry>> for Source {
    fn from(entry: Arc<Entry>) -> Self {
        Source::Stored(Stored::Entry(entry))
    }
}

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

/// `{"kind":K,"apiVersion":V,`: the text before an entry's untyped JSON in the served version.
pub(crate) fn typed_head(resource: &ServedResource) -> Vec<u8> {
    json::type_head(&resource.gvk.kind, &resource.gvk.api_version())
}

/// An entry's object as it is served, parsed. Fails for resources whose converter has to be asked: [`converted`] asks.
pub(crate) fn served(resource: &ServedResource, entry: &Entry) -> Result<Value, ApiError> {
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

fn decorate(resource: &ServedResource, object: &mut Value) {
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
async fn converted(resource: &ServedResource, entry: &Arc<Entry>) -> Result<Value, ApiError> {
    let Some(remote) = resource.remote() else {
        return served(resource, entry);
    };
    let json = remote.from_stored(std::slice::from_ref(entry)).await?;
    answered(resource, json.first().map(|b| &b[..]).unwrap_or_default())
}

/// Answers one object. 406 for views that are of lists.
pub(crate) async fn object(
    resource: &ServedResource,
    negotiated: &Negotiated,
    source: Source,
    code: StatusCode,
) -> Result<Response, ApiError> {
    if let Source::Stored(Stored::Entry(entry)) = &source
        && (negotiated.media != Media::Json || negotiated.gzip || negotiated.pretty || !plain(resource))
    {
        cpu::heavy_answer(entry.json.len()).await;
    }
    let text = match negotiated.view {
        View::Object => match source {
            Source::Stored(Stored::Entry(entry)) if plain_at(resource, entry.revision) => {
                let head = typed_head(resource);
                let untyped = entry.untyped();
                let mut out = Vec::with_capacity(head.len() + untyped.len() + 1);
                out.extend_from_slice(&head);
                out.extend_from_slice(untyped);
                out
            }
            source => json::object(&value(resource, source).await?),
        },
        View::Partial(version) => partial(resource, version, source).await?,
        View::Table(version, include) => {
            let default = match source {
                Source::Other(_) if resource.custom => Some(table::DEFAULT),
                Source::Other(_) => Some(table::SCALE),
                Source::Stored(_) | Source::Value(_) => None,
            };
            let row = match source {
                Source::Stored(Stored::Entry(entry)) if plain_at(resource, entry.revision) => {
                    table::RowOf::Entry(entry)
                }
                source => table::RowOf::Value(value(resource, source).await?),
            };
            table::single(resource, default, version, include, &row)?
        }
        View::PartialList(_) => {
            return Err(not_acceptable(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(resource, "")
            )));
        }
    };
    finish(negotiated, text, code)
}

/// Upstream's name for the type of an object, or with the suffix `List` that of a list.
pub(crate) fn go_type(resource: &ServedResource, suffix: &str) -> String {
    if resource.custom {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = match resource.gvk.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    format!("*{package}.{}{suffix}", resource.gvk.kind)
}

/// 406 for a view that does not suit the object.
pub(crate) fn not_acceptable(message: String) -> ApiError {
    ApiError::new(406, machinery::Reason::NotAcceptable, message)
}

async fn value(resource: &ServedResource, source: Source) -> Result<Value, ApiError> {
    match source {
        Source::Stored(Stored::Entry(entry)) => converted(resource, &entry).await,
        Source::Stored(Stored::Value(mut value)) => {
            decorate(resource, &mut value);
            Ok(value)
        }
        Source::Value(value) | Source::Other(value) => Ok(value),
    }
}

async fn partial(
    resource: &ServedResource,
    version: MetaVersion,
    source: Source,
) -> Result<Vec<u8>, ApiError> {
    let mut out = Vec::with_capacity(512);
    match source {
        Source::Stored(Stored::Entry(entry)) if plain_at(resource, entry.revision) => {
            json::partial(&mut out, version, entry.metadata());
        }
        source => json::partial_of(&mut out, version, &value(resource, source).await?),
    }
    Ok(out)
}
