//! LIST: a concatenation of what is cached, written piece by piece in every form.

mod cbor;
mod compressed;
mod protobuf;
mod rows;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use http::request::Parts;
use machinery::{ApiError, limits};
use serde_json::{Value, json};

use super::options::parse_list;
use super::output::{self, stream};
use crate::negotiate::{Media, Negotiated, negotiate_stream};
use crate::registry::list::{self, Entries, Page};
use crate::request::audit::ResponseObject;
use crate::request::{Authorized, Response};
use crate::resource::ServedResource;
use crate::respond::json::text as json_text;
use rows::Rows;

/// The result of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    /// In key order.
    pub(crate) entries: Entries,
    /// The content of the list's metadata.
    metadata: ListMeta,
}

#[derive(Debug, Default)]
struct ListMeta {
    version: String,
    next: String,
    remaining: Option<u64>,
}

/// Answers a list.
pub(crate) async fn handle(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
) -> Result<Response, ApiError> {
    let negotiated = negotiate_stream(head, resource.custom)?;
    let listed = select(resource, authorized, head).await?;
    answer(resource, &negotiated, listed).await
}

/// The selection of the request's query.
pub(crate) async fn select(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
) -> Result<Listed, ApiError> {
    let store = resource
        .store()
        .ok_or_else(ApiError::method_not_allowed)?
        .view(authorized);
    let info = authorized.info();
    let options = parse_list(head.uri.query(), resource, info, false)?;
    let selection = options.selection(&store, &info.namespace);
    let Page {
        entries,
        revision,
        next,
        remaining,
    } = list::list(store, &selection, &options).await?;
    Ok(Listed {
        entries,
        metadata: ListMeta {
            version: revision.to_string(),
            next,
            remaining,
        },
    })
}

/// Answers what a list found.
pub(crate) async fn answer(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    listed: Listed,
) -> Result<Response, ApiError> {
    let rows = Rows::cached(resource, listed.entries).await?;
    write(resource, negotiated, &listed.metadata, rows).await
}

/// Answers a list of computed objects. Selectors are applied here.
pub(crate) async fn of_values(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
    items: Vec<Value>,
) -> Result<Response, ApiError> {
    let negotiated = negotiate_stream(head, resource.custom)?;
    let options = parse_list(head.uri.query(), resource, authorized.info(), false)?;
    let selected = move |object: &Value| {
        let field = |name: &str| match name {
            "metadata.name" => machinery::meta::name(object),
            "metadata.namespace" => machinery::meta::namespace(object),
            _ => "",
        };
        options.fields.matches(field) && options.labels.matches(&machinery::meta::labels(object))
    };
    let rows = Rows::computed(resource, items.into_iter().filter(selected).collect());
    write(resource, &negotiated, &ListMeta::default(), rows).await
}

async fn write(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    metadata: &ListMeta,
    rows: Rows,
) -> Result<Response, ApiError> {
    let view = negotiated.view;
    if negotiated.recorded {
        let list = text::Json::new(resource, view, metadata, rows.clone())?;
        let object = stream::beginning(list, limits::AUDIT_OBJECT_BYTES).await?;
        let unrecorded = Negotiated {
            recorded: false,
            ..*negotiated
        };
        let mut response = Box::pin(write(resource, &unrecorded, metadata, rows)).await?;
        response.extensions_mut().insert(ResponseObject(object.into()));
        return Ok(response);
    }
    if let Some(response) = compressed::respond(resource, negotiated, metadata, &rows).await? {
        return Ok(response);
    }
    match negotiated.media {
        Media::Json => {
            let list = text::Json::new(resource, view, metadata, rows)?;
            let heavy = list.is_heavy();
            stream::respond(negotiated, list, heavy).await
        }
        Media::Yaml => {
            let list = text::Yaml::new(resource, view, metadata, rows)?;
            stream::respond(negotiated, list, true).await
        }
        Media::Cbor => {
            let list = cbor::Cbor::new(resource, view, metadata, rows).await?;
            stream::respond(negotiated, list, true).await
        }
        Media::Protobuf => {
            let list = protobuf::Protobuf::new(resource, view, metadata, rows).await?;
            let heavy = list.is_heavy();
            stream::respond(negotiated, list, heavy).await
        }
    }
}

fn is_a_list(resource: &ServedResource) -> ApiError {
    output::not_acceptable(format!(
        "you requested PartialObjectMetadata, but the requested object is a list ({})",
        output::go_type(resource, "List")
    ))
}

impl ListMeta {
    /// The list's metadata as an object.
    fn value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.version});
        if !self.next.is_empty() {
            meta["continue"] = self.next.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }

    /// The members of the list's metadata. Lists of custom kinds always say `continue`.
    fn content(&self, custom: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut member = |name: &str, text: &str| {
            if !out.is_empty() {
                out.push(b',');
            }
            json_text(&mut out, name);
            out.push(b':');
            out.extend_from_slice(text.as_bytes());
        };
        if custom || !self.next.is_empty() {
            // A token is base64: it needs no escapes.
            member("continue", &format!("\"{}\"", self.next));
        }
        if let Some(remaining) = self.remaining {
            member("remainingItemCount", &remaining.to_string());
        }
        // Virtual resources have none.
        if !self.version.is_empty() {
            member("resourceVersion", &format!("\"{}\"", self.version));
        }
        out
    }
}
