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

use super::message::Messages;
use super::served;
use super::table::{self, RowWriter};
use crate::cpu;
use crate::negotiate::{Media, MetaVersion, Negotiated, View};
use crate::registry::cache::Entry;
use crate::request::Response;
use crate::resource::{ServedResource, TableConvertor};
use crate::respond::{finish, json, ready};
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

/// Answers one object. 406 for views that are of lists.
pub(crate) async fn object(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    source: Source,
    code: StatusCode,
) -> Result<Response, ApiError> {
    if let Source::Stored(Stored::Entry(entry)) = &source
        && (negotiated.media != Media::Json
            || negotiated.gzip
            || negotiated.pretty
            || !served::plain(resource))
    {
        cpu::heavy_answer(entry.json.len()).await;
    }
    if let Source::Stored(Stored::Entry(entry)) = &source
        && let Some(message) = message(resource, negotiated, entry)?
    {
        return Ok(ready(negotiated, message, code));
    }
    let text = match negotiated.view {
        View::Object => match source {
            Source::Stored(Stored::Entry(entry)) if served::plain_at(resource, entry.revision) => {
                let head = served::typed_head(resource);
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
            let default: Option<&'static dyn TableConvertor> = match source {
                Source::Other(_) if resource.custom => Some(table::DEFAULT),
                Source::Other(_) => Some(table::SCALE),
                Source::Stored(_) | Source::Value(_) => None,
            };
            let row = match source {
                Source::Stored(Stored::Entry(entry)) if served::plain_at(resource, entry.revision) => {
                    table::RowOf::Entry(entry)
                }
                source => table::RowOf::Value(value(resource, source).await?),
            };
            table::single(&RowWriter::new(resource, default, version, include), &row, true)?
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

/// A cached object, or its metadata, as protobuf in its envelope, of the message that is kept. `None` where the answer is another one, or its
/// JSON is needed too.
fn message(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    entry: &Entry,
) -> Result<Option<Vec<u8>>, ApiError> {
    let is_kept = matches!(negotiated.view, View::Object | View::Partial(_)) && resource.remote().is_none();
    if negotiated.media != Media::Protobuf || negotiated.recorded || !is_kept {
        return Ok(None);
    }
    let messages = Messages::new(resource, negotiated.view)?;
    let (message, _) = messages.of(entry)?;
    Ok(Some(messages.seal(&message)))
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
        Source::Stored(Stored::Entry(entry)) => served::converted(resource, &entry).await,
        Source::Stored(Stored::Value(mut value)) => {
            served::decorate(resource, &mut value);
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
        Source::Stored(Stored::Entry(entry)) if served::plain_at(resource, entry.revision) => {
            json::partial(&mut out, version, entry.metadata());
        }
        source => json::partial_of(&mut out, version, &value(resource, source).await?),
    }
    Ok(out)
}
