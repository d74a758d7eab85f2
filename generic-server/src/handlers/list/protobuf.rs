//! Lists as protobuf, item by item.
//!
//! The length of the content comes before the content, so a list is gone through twice: once for the length, holding on to the first
//! messages, and once to write the others. These are kept with their entries as long as there is room, and encoded again otherwise:
//! a list that is larger costs time instead of memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use machinery::codec::protobuf;
use machinery::{ApiError, limits};

use super::rows::{Item, Rows};
use super::{ListMeta, is_a_list};
use crate::cpu;
use crate::handlers::message::Messages;
use crate::handlers::output::stream::{Fill, Filled};
use crate::handlers::served;
use crate::negotiate::View;
use crate::resource::ServedResource;

/// To find a message that is kept costs this part of what it costs to encode the object, at most.
const FOUND: usize = 64;

/// Writes a list in its envelope.
pub(super) struct Protobuf {
    messages: Messages,
    rows: Rows,
    head: Vec<u8>,
    /// The first messages, not written yet.
    kept: VecDeque<Bytes>,
    /// Bytes of items that the head announces and that are not written yet.
    announced: usize,
    /// Messages had to be encoded to know their length, and may have to be again.
    encoded: bool,
}

impl Protobuf {
    /// Goes through the rows to know their length.
    pub(super) async fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
        mut rows: Rows,
    ) -> Result<Self, ApiError> {
        let list_kind = list_kind(resource, view)?;
        let messages = Messages::new(resource, view)?;
        let (mut kept, mut announced, mut worked) = (VecDeque::new(), 0, 0);
        // The rows behind those whose messages are kept here: they are looked for, or encoded, again.
        let (mut ahead, mut encoded) = (None, false);
        loop {
            let keep = announced <= limits::KEPT_BYTES;
            let next = match keep {
                true => rows.take(),
                false => ahead.get_or_insert_with(|| rows.clone()).take(),
            };
            let Some((item, size)) = next else { break };
            let (message, cost) = message(&messages, resource, item, size)?;
            encoded |= cost >= size;
            announced += protobuf::list_item_len(message.len());
            if keep {
                kept.push_back(message);
            }
            worked += cost;
            if worked >= limits::SLICE_BYTES {
                worked = 0;
                cpu::pause(cpu::Lane::Answers).await;
            }
        }
        let head = begin(&messages, list_kind, metadata, announced)?;
        Ok(Protobuf {
            messages,
            rows,
            head,
            kept,
            announced,
            encoded,
        })
    }

    /// Whether items are encoded rather than copied.
    pub(super) fn is_heavy(&self) -> bool {
        self.encoded
    }
}

/// The kind of the list that a view gives. 406 for views that are not of lists, or have no messages.
pub(super) fn list_kind(resource: &ServedResource, view: View) -> Result<&str, ApiError> {
    match view {
        View::Object => Ok(&resource.names.list_kind),
        View::PartialList(_) => Ok("PartialObjectMetadataList"),
        View::Partial(_) => Err(is_a_list(resource)),
        View::Table(..) => Err(ApiError::not_acceptable(crate::negotiate::BUILTIN_TYPES)),
    }
}

/// The bytes before the items, which take `announced` bytes.
pub(super) fn begin(
    messages: &Messages,
    list_kind: &str,
    metadata: &ListMeta,
    announced: usize,
) -> Result<Vec<u8>, ApiError> {
    let meta = crate::respond::protobuf::list_meta(&metadata.value())?;
    Ok(protobuf::begin_list(
        messages.api_version(),
        list_kind,
        &meta,
        announced,
    ))
}

/// The message of an item, and the bytes that were gone through for it.
fn message(
    messages: &Messages,
    resource: &ServedResource,
    item: Item,
    size: usize,
) -> Result<(Bytes, usize), ApiError> {
    Ok(match item {
        Item::Entry(entry) => match messages.of(&entry)? {
            (message, true) => (message, size),
            (message, false) => (message, size / FOUND),
        },
        Item::Converted(answer) => {
            let object = served::answered(resource, &answer)?;
            (messages.of_value(object).into(), size)
        }
        Item::Computed(object) => (messages.of_value(object).into(), size),
    })
}

impl Fill for Protobuf {
    fn held(&self) -> usize {
        self.kept.iter().map(Bytes::len).sum()
    }

    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError> {
        out.append(&mut self.head);
        let (message, worked) = match self.kept.pop_front() {
            Some(message) => (message, 0),
            None => match self.rows.take() {
                Some((item, size)) => message(&self.messages, self.rows.resource(), item, size)?,
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
