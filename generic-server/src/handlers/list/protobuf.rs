//! Lists as protobuf, item by item.
//!
//! The length of the content comes before the content, so a list is gone through twice: once for the length, keeping the first
//! messages, and once to encode those that were not kept. Lists up to [`limits::KEPT_BYTES`] are encoded once, and a longer
//! one costs time instead of memory.

use std::collections::VecDeque;
use std::sync::Arc;

use machinery::codec::protobuf;
use machinery::schema::KindSchema;
use machinery::{ApiError, limits};
use serde_json::{Value, json};

use super::rows::Rows;
use super::{ListMeta, is_a_list};
use crate::cpu;
use crate::handlers::output::stream::{Fill, Filled};
use crate::handlers::served;
use crate::handlers::table::RowOf;
use crate::negotiate::View;
use crate::resource::ServedResource;

/// The encoding of each item of a list.
struct Layout {
    resource: Arc<ServedResource>,
    /// The kind and version of items; items of a list of metadata have no more than that.
    kind: &'static str,
    api_version: String,
    metadata_only: bool,
    schema: Option<KindSchema>,
}

impl Layout {
    fn message(&self, row: RowOf) -> Result<Vec<u8>, ApiError> {
        let schema = self.schema.as_ref();
        let schema = schema.ok_or_else(|| ApiError::not_acceptable(crate::negotiate::BUILTIN_TYPES))?;
        let object = match row {
            RowOf::Entry(entry) if self.metadata_only => {
                let metadata = [b"{", entry.metadata(), b"}"].concat();
                serde_json::from_slice(&metadata).map_err(ApiError::internal)?
            }
            RowOf::Entry(entry) => served::parsed(&self.resource, &entry)?,
            RowOf::Value(value) => value,
        };
        Ok(protobuf::encode_message(schema.root(), &self.typed(object)))
    }

    fn typed(&self, mut object: Value) -> Value {
        if self.metadata_only {
            let metadata = object["metadata"].take();
            return json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata});
        }
        // Only renamed kinds need their type set here; the others have it already.
        object["kind"] = (*self.resource.gvk.kind).into();
        object["apiVersion"] = self.api_version.as_str().into();
        object
    }
}

/// Writes a list in its envelope.
pub(super) struct Protobuf {
    layout: Layout,
    rows: Rows,
    head: Vec<u8>,
    /// The first messages, not written yet.
    kept: VecDeque<Vec<u8>>,
    /// Bytes of items that the head announces and that are not written yet.
    announced: usize,
}

impl Protobuf {
    /// Goes through the rows to know their length.
    pub(super) async fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
        mut rows: Rows,
    ) -> Result<Self, ApiError> {
        let (api_version, list_kind, kind, metadata_only) = match view {
            View::Object => (resource.gvk.api_version(), &*resource.names.list_kind, "", false),
            View::PartialList(version) => {
                let list = "PartialObjectMetadataList";
                (
                    version.api_version().to_string(),
                    list,
                    "PartialObjectMetadata",
                    true,
                )
            }
            View::Partial(_) => return Err(is_a_list(resource)),
            View::Table(..) => return Err(ApiError::not_acceptable(crate::negotiate::BUILTIN_TYPES)),
        };
        let own = &*resource.gvk.kind;
        let schema = crate::respond::protobuf::schema(&api_version, if metadata_only { kind } else { own });
        let layout = Layout {
            resource: resource.clone(),
            kind,
            api_version,
            metadata_only,
            schema,
        };
        let (mut kept, mut announced, mut worked) = (VecDeque::new(), 0, 0);
        let mut beyond = 0;
        loop {
            // Rows whose messages are kept are taken out, so that only rows to be encoded again are left.
            let keep = announced <= limits::KEPT_BYTES;
            let next = match keep {
                true => rows.take(),
                false => rows.get(beyond),
            };
            let Some((row, size)) = next else { break };
            let message = layout.message(row?)?;
            announced += protobuf::list_item_len(message.len());
            match keep {
                true => kept.push_back(message),
                false => beyond += 1,
            }
            worked += size;
            if worked >= limits::SLICE_BYTES {
                worked = 0;
                cpu::pause(cpu::Lane::Answers).await;
            }
        }
        let meta = crate::respond::protobuf::list_meta(&metadata.value())?;
        let head = protobuf::begin_list(&layout.api_version, list_kind, &meta, announced);
        Ok(Protobuf {
            layout,
            rows,
            head,
            kept,
            announced,
        })
    }
}

impl Fill for Protobuf {
    fn held(&self) -> usize {
        self.kept.iter().map(Vec::len).sum()
    }

    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError> {
        out.append(&mut self.head);
        let (message, worked) = match self.kept.pop_front() {
            Some(message) => (message, 0),
            None => match self.rows.take() {
                Some((row, size)) => (self.layout.message(row?)?, size),
                None if self.announced == 0 => {
                    out.extend_from_slice(protobuf::LIST_END);
                    return Ok(Filled::End);
                }
                None => return Err(ApiError::internal("a list is shorter than announced")),
            },
        };
        let announced = self.announced.checked_sub(protobuf::list_item_len(message.len()));
        self.announced = announced.ok_or_else(|| ApiError::internal("a list is longer than announced"))?;
        protobuf::encode_list_item(out, &message);
        Ok(Filled::Item(worked))
    }
}
