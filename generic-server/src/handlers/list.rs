//! LIST: a concatenation of what is cached.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use machinery::ApiError;
use serde_json::{Value, json};

use super::output::{self, json as text, stream};
use super::table::{self, RowOf};
use crate::negotiate::{Media, Negotiated, View, negotiate_stream};
use crate::registry::cache::Entry;
use crate::registry::list::{self, ListOptions, Page};
use crate::request::{Authorized, Response};
use crate::resource::ServedResource;

/// What a list found.
#[derive(Debug)]
pub(crate) struct Listed {
    /// In key order.
    pub(crate) entries: Vec<Arc<Entry>>,
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
    let negotiated = negotiate_stream(head, resource)?;
    let listed = select(resource, authorized, head).await?;
    answer(resource, &negotiated, listed).await
}

/// What the request's query selects.
pub(crate) async fn select(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
) -> Result<Listed, ApiError> {
    let store = resource.store().ok_or_else(ApiError::method_not_allowed)?;
    let info = authorized.info();
    let options = ListOptions::parse(head.uri.query(), resource, info, false)?;
    let selection = options.selection(store, &info.namespace);
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
    let of = resource.clone();
    let items: Items = match resource.remote() {
        Some(remote) => {
            let converted = remote.from_stored(&listed.entries).await?;
            let row = move |json: Bytes| output::answered(&of, &json).map(RowOf::Value);
            Box::new(converted.into_iter().map(row))
        }
        None => {
            let row = move |entry: Arc<Entry>| match output::plain_at(&of, entry.revision) {
                true => Ok(RowOf::Entry(entry)),
                false => output::served(&of, &entry).map(RowOf::Value),
            };
            Box::new(listed.entries.into_iter().map(row))
        }
    };
    write(resource, negotiated, &listed.metadata, items)
}

/// Answers a list of computed objects. Selectors are applied here.
pub(crate) fn of_values(
    resource: &Arc<ServedResource>,
    authorized: &Authorized,
    head: &Parts,
    items: Vec<Value>,
) -> Result<Response, ApiError> {
    let negotiated = negotiate_stream(head, resource)?;
    let options = ListOptions::parse(head.uri.query(), resource, authorized.info(), false)?;
    let selected = move |object: &Value| {
        let field = |name: &str| match name {
            "metadata.name" => machinery::meta::name(object),
            "metadata.namespace" => machinery::meta::namespace(object),
            _ => "",
        };
        options.fields.matches(field) && options.labels.matches(&machinery::meta::labels(object))
    };
    let items = items
        .into_iter()
        .filter(selected)
        .map(|object| Ok(RowOf::Value(object)));
    write(resource, &negotiated, &ListMeta::default(), Box::new(items))
}

type Items = Box<dyn Iterator<Item = Result<RowOf, ApiError>> + Send>;

fn write(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    metadata: &ListMeta,
    items: Items,
) -> Result<Response, ApiError> {
    if negotiated.media == Media::Protobuf {
        return write_protobuf(resource, negotiated, metadata, items);
    }
    let mut head = Vec::with_capacity(512);
    let custom = resource.custom && negotiated.view == View::Object;
    let content = metadata.content(custom);
    let item_head = match negotiated.view {
        View::Object => {
            head.extend(text::type_head(
                &resource.names.list_kind,
                &resource.gvk.api_version(),
            ));
            open(&mut head, &content);
            if resource.custom {
                output::typed_head(resource)
            } else {
                b"{".to_vec()
            }
        }
        View::PartialList(version) => {
            head.extend(text::type_head(
                "PartialObjectMetadataList",
                version.api_version(),
            ));
            open(&mut head, &content);
            Vec::new()
        }
        View::Table(version, _) => {
            table::begin(&mut head, &*resource.table, version, &content, true);
            Vec::new()
        }
        View::Partial(_) => return Err(is_a_list(resource)),
    };
    let filler = ListFill {
        resource: resource.clone(),
        view: negotiated.view,
        head: Some(head),
        item_head,
        items,
        first: true,
    };
    stream::respond(negotiated, filler)
}

fn is_a_list(resource: &ServedResource) -> ApiError {
    output::not_acceptable(format!(
        "you requested PartialObjectMetadata, but the requested object is a list ({})",
        output::go_type(resource, "List")
    ))
}

fn write_protobuf(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    metadata: &ListMeta,
    items: Items,
) -> Result<Response, ApiError> {
    let mut meta = json!({"resourceVersion": metadata.version});
    if !metadata.next.is_empty() {
        meta["continue"] = metadata.next.as_str().into();
    }
    if let Some(remaining) = metadata.remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    let object = |item: Result<RowOf, ApiError>| match item? {
        RowOf::Entry(entry) => output::served(resource, &entry),
        RowOf::Value(value) => Ok(value),
    };
    let body = match negotiated.view {
        View::Object => {
            let typed = items.map(|item| {
                let mut value = object(item)?;
                // Only kinds that were renamed lack their type here; the others have it already.
                value["kind"] = (*resource.gvk.kind).into();
                value["apiVersion"] = resource.gvk.api_version().into();
                Ok(value)
            });
            let api_version = resource.gvk.api_version();
            output::protobuf::list(&api_version, &resource.names.list_kind, &meta, typed)?
        }
        View::PartialList(version) => {
            let partial = items.map(|item| {
                let mut value = object(item)?;
                let metadata = value["metadata"].take();
                let kind = "PartialObjectMetadata";
                Ok(json!({"apiVersion": version.api_version(), "kind": kind, "metadata": metadata}))
            });
            output::protobuf::list(version.api_version(), "PartialObjectMetadataList", &meta, partial)?
        }
        View::Partial(_) => return Err(is_a_list(resource)),
        View::Table(..) => return Err(ApiError::not_acceptable(crate::negotiate::BUILTIN_TYPES)),
    };
    Ok(output::ready(negotiated, body, StatusCode::OK))
}

/// `"metadata":{...},"items":[`.
fn open(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(b"\"metadata\":{");
    out.extend_from_slice(content);
    out.extend_from_slice(b"},\"items\":[");
}

impl ListMeta {
    /// The members of the list's metadata. Lists of custom kinds always say `continue`.
    fn content(&self, custom: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut member = |name: &str, text: &str| {
            if !out.is_empty() {
                out.push(b',');
            }
            text::text(&mut out, name);
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
        // What is computed for each request has none.
        if !self.version.is_empty() {
            member("resourceVersion", &format!("\"{}\"", self.version));
        }
        out
    }
}

struct ListFill {
    resource: Arc<ServedResource>,
    view: View,
    head: Option<Vec<u8>>,
    /// What comes before an entry's untyped JSON.
    item_head: Vec<u8>,
    items: Items,
    first: bool,
}

impl stream::Fill for ListFill {
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError> {
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        let Some(item) = self.items.next() else {
            out.extend_from_slice(b"]}");
            return Ok(false);
        };
        if !std::mem::take(&mut self.first) {
            out.push(b',');
        }
        match (self.view, item?) {
            (View::Table(version, include), item) => {
                table::row(
                    out,
                    &self.resource,
                    &*self.resource.table,
                    version,
                    include,
                    &item,
                )?;
            }
            (View::Partial(version) | View::PartialList(version), RowOf::Entry(entry)) => {
                text::partial(out, version, entry.metadata());
            }
            (View::Partial(version) | View::PartialList(version), RowOf::Value(value)) => {
                text::partial_of(out, version, &value);
            }
            (View::Object, RowOf::Entry(entry)) => {
                out.extend_from_slice(&self.item_head);
                out.extend_from_slice(entry.untyped());
            }
            (View::Object, RowOf::Value(value)) if self.resource.custom => text::write_object(out, &value),
            (View::Object, RowOf::Value(value)) => text::write_untyped(out, &value),
        }
        Ok(true)
    }
}
