//! Protobuf messages of cached objects: encoded for the first reader of an object and kept with its entry for the next ones.

use std::sync::Arc;

use bytes::Bytes;
use machinery::ApiError;
use machinery::codec::protobuf;
use machinery::schema::KindSchema;
use serde_json::{Value, json};

use super::served;
use crate::negotiate::{BUILTIN_TYPES, View};
use crate::registry::cache::Entry;
use crate::registry::forms::{FormCache, FormId};
use crate::resource::ServedResource;

/// The kind of the metadata view.
const PARTIAL: &str = "PartialObjectMetadata";

/// The encoder of one resource's objects, or of their metadata alone.
#[derive(Debug)]
pub(crate) struct Messages {
    resource: Arc<ServedResource>,
    schema: KindSchema,
    api_version: String,
    metadata_only: bool,
    /// Where messages are kept; computed objects have no such place.
    forms: Option<(Arc<FormCache>, FormId)>,
}

impl Messages {
    /// The messages of a view. 406 for views and kinds that have none.
    pub(crate) fn new(resource: &Arc<ServedResource>, view: View) -> Result<Self, ApiError> {
        let not_acceptable = || ApiError::not_acceptable(BUILTIN_TYPES);
        let (api_version, kind, metadata_only) = match view {
            View::Object => (resource.gvk.api_version(), &*resource.gvk.kind, false),
            View::Partial(version) | View::PartialList(version) => {
                (version.api_version().to_string(), PARTIAL, true)
            }
            View::Table(..) => return Err(not_acceptable()),
        };
        let schema = crate::respond::protobuf::schema(&api_version, kind).ok_or_else(not_acceptable)?;
        let forms = resource.store().map(|store| {
            let forms = store.forms();
            (
                forms.clone(),
                served::form(resource, forms, served::Form::Message { metadata_only }),
            )
        });
        Ok(Messages {
            resource: resource.clone(),
            schema,
            api_version,
            metadata_only,
            forms,
        })
    }

    /// `apiVersion` of the objects.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The message of an object, kept for the next reader. True when it had to be encoded.
    pub(crate) fn of(&self, entry: &Entry) -> Result<(Bytes, bool), ApiError> {
        let mut made = false;
        let mut make = || {
            made = true;
            self.encode(entry)
        };
        let message = match &self.forms {
            Some((forms, id)) => entry.forms().get_or_make(forms, *id, make)?,
            None => make()?.into(),
        };
        Ok((message, made))
    }

    /// The same, not kept if it has to be encoded: of an object that few will ask for in this form.
    pub(crate) fn once(&self, entry: &Entry) -> Result<Bytes, ApiError> {
        let known = self.forms.as_ref().and_then(|(_, id)| entry.forms().get(*id));
        match known {
            Some(message) => Ok(message),
            None => self.encode(entry).map(Bytes::from),
        }
    }

    fn encode(&self, entry: &Entry) -> Result<Vec<u8>, ApiError> {
        if self.metadata_only && served::plain_at(&self.resource, entry.revision) {
            let metadata = [b"{", entry.metadata(), b"}"].concat();
            return Ok(self.of_value(serde_json::from_slice(&metadata).map_err(ApiError::internal)?));
        }
        served::parsed(&self.resource, entry).map(|object| self.of_value(object))
    }

    /// The message of an object that is no entry.
    pub(crate) fn of_value(&self, mut object: Value) -> Vec<u8> {
        if self.metadata_only {
            let metadata = object["metadata"].take();
            object = json!({"apiVersion": self.api_version, "kind": PARTIAL, "metadata": metadata});
        } else {
            // Only renamed kinds need their type set here; the others have it already.
            object["kind"] = (*self.resource.gvk.kind).into();
            object["apiVersion"] = self.api_version.as_str().into();
        }
        protobuf::encode_message(self.schema.root(), &object)
    }

    /// A message in its envelope.
    pub(crate) fn seal(&self, message: &[u8]) -> Vec<u8> {
        let kind = match self.metadata_only {
            true => PARTIAL,
            false => &*self.resource.gvk.kind,
        };
        protobuf::seal(&self.api_version, kind, message)
    }
}
