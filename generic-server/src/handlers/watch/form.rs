//! How a watch's events are written. Watches of the same form give the same bytes.

use std::sync::Arc;

use bytes::Bytes;
use machinery::ApiError;
use serde_json::{Value, json};
use storage::Revision;

use crate::handlers::message::Messages;
use crate::handlers::served;
use crate::handlers::table::{self, RowOf, RowWriter};
use crate::negotiate::{IncludeObject, Media, Negotiated, View};
use crate::registry::cache::{Change, ChangeKind, Entry};
use crate::registry::forms::FormId;
use crate::resource::{RemoteConverter, ServedResource};
use crate::respond::json;

/// The annotation of the bookmark that ends the initial events (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The object of an event.
#[derive(Debug)]
pub(super) enum Subject {
    /// As it is cached, and the resourceVersion of its event.
    Entry(Arc<Entry>, Revision),
    /// In the served version, by a converter that was asked, likewise.
    Converted(Bytes, Revision),
}

/// The form of a watch's events.
#[derive(Debug)]
pub(super) struct Form {
    resource: Arc<ServedResource>,
    view: View,
    media: Media,
    /// Identifies the form among all watchers of the resource, in all versions and definitions.
    id: u64,
    head: Vec<u8>,
    /// Where events are encoded as protobuf.
    messages: Option<Messages>,
}

impl Form {
    pub(super) fn new(resource: Arc<ServedResource>, negotiated: &Negotiated) -> Self {
        let view = match negotiated.view {
            // No event is a list: upstream falls back to the object.
            View::PartialList(_) => View::Object,
            view => view,
        };
        // The output of a converter may change with its definition: frames of another definition are not the same.
        let id = resource.store().map(|store| {
            served::form(
                &resource,
                store.forms(),
                served::Form::Frame(negotiated.media, view),
            )
        });
        let messages = match negotiated.media {
            Media::Protobuf => Messages::new(&resource, view).ok(),
            Media::Json | Media::Yaml | Media::Cbor => None,
        };
        Form {
            head: served::typed_head(&resource),
            id: id.map_or(0, FormId::number),
            messages,
            resource,
            view,
            media: negotiated.media,
        }
    }

    /// The converter to call before events can be written, where objects are converted by a webhook.
    pub(super) fn remote(&self) -> Option<&Arc<dyn RemoteConverter>> {
        self.resource.remote()
    }

    /// The event of an object, without sharing: the first one of a Table watch, which has the headers.
    pub(super) fn event(&self, kind: ChangeKind, of: &Subject, headers: bool) -> Result<Bytes, ApiError> {
        let mut out = Vec::with_capacity(1024);
        match self.message(of, |messages, entry| messages.once(entry))? {
            Some(object) => encode_frame(&mut out, kind.as_str(), &object),
            None => self.write_event_anew(&mut out, kind, of, headers)?,
        }
        Ok(out.into())
    }

    /// The same of an initial event, appended. What is encoded for it is kept for other readers of the object.
    pub(super) fn write_event(
        &self,
        out: &mut Vec<u8>,
        kind: ChangeKind,
        of: &Subject,
        headers: bool,
    ) -> Result<(), ApiError> {
        match self.message(of, |messages, entry| Ok(messages.of(entry)?.0))? {
            Some(object) => encode_frame(out, kind.as_str(), &object),
            None => self.write_event_anew(out, kind, of, headers)?,
        }
        Ok(())
    }

    /// The object in its envelope, where its message can be one that is kept.
    fn message(
        &self,
        of: &Subject,
        find: impl FnOnce(&Messages, &Entry) -> Result<Bytes, ApiError>,
    ) -> Result<Option<Vec<u8>>, ApiError> {
        match (&self.messages, of) {
            // The last state of an object has another resourceVersion in the event of its end.
            (Some(messages), Subject::Entry(entry, revision)) if entry.revision == *revision => {
                Ok(Some(messages.seal(&find(messages, entry)?)))
            }
            _ => Ok(None),
        }
    }

    fn write_event_anew(
        &self,
        out: &mut Vec<u8>,
        kind: ChangeKind,
        of: &Subject,
        headers: bool,
    ) -> Result<(), ApiError> {
        if self.media != Media::Json {
            let mut object = Vec::new();
            self.write_object(&mut object, of, headers)?;
            return self.frame(out, kind.as_str(), &object);
        }
        open(out, kind.as_str());
        self.write_object(out, of, headers)?;
        close(out);
        Ok(())
    }

    fn row(&self, of: &Subject) -> Result<RowOf, ApiError> {
        match of {
            Subject::Entry(entry, revision) => {
                let shown = match entry.revision == *revision {
                    true => entry.clone(),
                    false => Arc::new(entry.at_revision(*revision)),
                };
                match served::plain_at(&self.resource, entry.revision) {
                    true => Ok(RowOf::Entry(shown)),
                    false => served::parsed(&self.resource, &shown).map(RowOf::Value),
                }
            }
            Subject::Converted(json, revision) => {
                let mut object = served::answered(&self.resource, json)?;
                machinery::meta::set(&mut object, "resourceVersion", revision.to_string());
                Ok(RowOf::Value(object))
            }
        }
    }

    /// The object as it is viewed, as JSON.
    fn write_object(&self, out: &mut Vec<u8>, of: &Subject, headers: bool) -> Result<(), ApiError> {
        match (self.view, self.row(of)?) {
            (View::Table(version, include), row) => {
                let rows = RowWriter::new(&self.resource, None, version, include);
                let table = table::single(&rows, &row, headers)?;
                out.extend_from_slice(&table);
            }
            (View::Partial(version), RowOf::Entry(entry)) => json::partial(out, version, entry.metadata()),
            (View::Partial(version), RowOf::Value(object)) => json::partial_of(out, version, &object),
            (_, RowOf::Entry(entry)) => {
                out.extend_from_slice(&self.head);
                out.extend_from_slice(entry.untyped());
            }
            (_, RowOf::Value(object)) => json::write_object(out, &object),
        }
        Ok(())
    }

    /// An event of an object that is there as JSON, in the form's encoding.
    fn frame(&self, out: &mut Vec<u8>, kind: &str, object: &[u8]) -> Result<(), ApiError> {
        match self.media {
            Media::Protobuf => encode_frame(out, kind, &crate::respond::protobuf::of_json(object)?),
            Media::Cbor => crate::respond::cbor::event(out, kind, object)?,
            Media::Json | Media::Yaml => {
                open(out, kind);
                out.extend_from_slice(object);
                close(out);
            }
        }
        Ok(())
    }

    /// The event that a change is to a watcher, encoded by the first that asks. `kind` is the change as the watcher sees it,
    /// `of` its object.
    pub(super) fn shared(&self, change: &Change, kind: ChangeKind, of: &Subject) -> Result<Bytes, ApiError> {
        let slot = (self.id << 2) | kind as u64;
        change.frame(slot, || self.event(kind, of, false))
    }

    /// A bookmark. `end` marks the end of the initial events.
    pub(super) fn bookmark(&self, revision: Revision, end: bool, headers: bool) -> Result<Bytes, ApiError> {
        let mut object = json!({"metadata": {"resourceVersion": revision.to_string()}});
        if end {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let mut text = Vec::with_capacity(256);
        match self.view {
            View::Table(version, include) => {
                // The annotation has to get through even when no objects are wanted.
                let include = match include {
                    IncludeObject::None if end => IncludeObject::Metadata,
                    other => other,
                };
                let row = RowOf::Value(self.typed(object));
                let rows = RowWriter::new(&self.resource, None, version, include);
                text = table::single(&rows, &row, headers)?;
            }
            View::Partial(version) => json::partial_of(&mut text, version, &object),
            _ => json::write_object(&mut text, &self.typed(object)),
        }
        let mut out = Vec::with_capacity(text.len() + 64);
        self.frame(&mut out, "BOOKMARK", &text)?;
        Ok(out.into())
    }

    fn typed(&self, mut object: Value) -> Value {
        object["kind"] = (*self.resource.gvk.kind).into();
        object["apiVersion"] = self.resource.gvk.api_version().into();
        object
    }

    /// An error, after which the stream ends.
    pub(super) fn error(&self, error: &ApiError) -> Bytes {
        let mut out = Vec::with_capacity(256);
        let status = json::status(&error.to_value());
        if let Err(error) = self.frame(&mut out, "ERROR", &status) {
            // A Status has a message; without one the end of the stream has to do.
            tracing::error!(%error, "an error event cannot be encoded");
        }
        out.into()
    }

    /// Whether objects are parsed or encoded for their events, rather than copied.
    pub(super) fn encodes(&self) -> bool {
        matches!(self.media, Media::Protobuf | Media::Cbor)
            || matches!(self.view, View::Table(..))
            || !served::plain(&self.resource)
    }

    /// Whether the first event differs from the later ones.
    pub(super) fn has_headers(&self) -> bool {
        matches!(self.view, View::Table(..))
    }
}

/// An event of an object in its envelope.
fn encode_frame(out: &mut Vec<u8>, kind: &str, object: &[u8]) {
    out.extend_from_slice(&machinery::codec::protobuf::encode_watch_frame(kind, object));
}

fn open(out: &mut Vec<u8>, kind: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}
