//! Lists as CBOR, item by item. The number of items comes before them, so the rows are counted first.

use std::sync::Arc;

use machinery::codec::cbor;
use machinery::schema::KindSchema;
use machinery::{ApiError, limits};
use serde_json::{Map, Value};

use super::ListMeta;
use super::rows::Rows;
use super::text::Layout;
use crate::cpu;
use crate::handlers::output::stream::{Fill, Filled};
use crate::negotiate::View;
use crate::resource::{Decoding, ServedResource};

/// The member that holds the items.
const ITEMS: &str = "items";
/// To count an item costs this part of what it costs to encode it, at most.
const COUNTED: usize = 64;

/// Writes a list, whose members are sorted by their length and then by their bytes.
pub(super) struct Cbor {
    layout: Layout,
    rows: Rows,
    /// Where items are of a built-in kind.
    schema: Option<KindSchema>,
    /// The members before the items and the head of these.
    before: Vec<u8>,
    after: Vec<u8>,
    scratch: Vec<u8>,
}

impl Cbor {
    pub(super) async fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
        rows: Rows,
    ) -> Result<Self, ApiError> {
        let layout = Layout::new(resource, view, metadata)?;
        let (mut counted, mut count, mut worked) = (rows.clone(), 0, 0);
        while let Some((_, size)) = counted.take() {
            count += 1;
            worked += size / COUNTED;
            if worked >= limits::SLICE_BYTES {
                worked = 0;
                cpu::pause(cpu::Lane::Answers).await;
            }
        }
        let mut empty = layout.head().to_vec();
        empty.extend_from_slice(b"]}");
        let members: Map<String, Value> = serde_json::from_slice(&empty).map_err(ApiError::internal)?;
        let mut before = cbor::PREFIX.to_vec();
        cbor::map_head(&mut before, members.len());
        let mut after = Vec::new();
        let rank = |key: &str| (key.len(), key.to_owned());
        let mut members: Vec<(String, Value)> = members.into_iter().filter(|(key, _)| key != ITEMS).collect();
        members.sort_by_cached_key(|(key, _)| rank(key));
        for (key, value) in members {
            let out = match rank(&key) < rank(ITEMS) {
                true => &mut before,
                false => &mut after,
            };
            cbor::write_key(out, &key);
            cbor::write(out, None, &value);
        }
        cbor::write_key(&mut before, ITEMS);
        cbor::array_head(&mut before, count);
        let schema = match (&resource.decoding, view) {
            (Decoding::Builtin(schema), View::Object) => Some(schema.clone()),
            _ => None,
        };
        Ok(Cbor {
            layout,
            rows,
            schema,
            before,
            after,
            scratch: Vec::new(),
        })
    }
}

impl Fill for Cbor {
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError> {
        out.append(&mut self.before);
        let Some((item, size)) = self.rows.take() else {
            out.append(&mut self.after);
            return Ok(Filled::End);
        };
        self.scratch.clear();
        let row = item.row(self.rows.resource())?;
        self.layout.item(&mut self.scratch, &row)?;
        let item: Value = serde_json::from_slice(&self.scratch).map_err(ApiError::internal)?;
        cbor::write(out, self.schema.as_ref().map(KindSchema::root), &item);
        Ok(Filled::Item(size))
    }
}
