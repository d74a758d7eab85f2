//! Lists as JSON and YAML, item by item.

use std::sync::Arc;

use machinery::ApiError;
use machinery::codec::yaml;
use serde_json::{Map, Value};

use super::rows::Rows;
use super::{ListMeta, is_a_list};
use crate::handlers::output::stream::{Fill, Filled};
use crate::handlers::served;
use crate::handlers::table::{Row, RowOf, RowWriter};
use crate::negotiate::View;
use crate::resource::ServedResource;
use crate::respond::json;

/// To find cells that are kept costs this part of what it costs to make them, at most.
const FOUND: usize = 64;

/// The JSON of a list: the text before its items, and each item.
pub(super) struct Layout {
    resource: Arc<ServedResource>,
    view: View,
    /// Up to and with the bracket that opens the items; `]}` closes them.
    head: Vec<u8>,
    /// The type header before an entry's untyped JSON.
    item_head: Vec<u8>,
    /// Where the items are the rows of a Table.
    rows: Option<RowWriter>,
}

/// How an item was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// The object was parsed or encoded rather than copied.
    pub(super) made: bool,
    /// Until when the item is the same, in seconds of the epoch, if it does not only depend on the object.
    pub(super) until: Option<i64>,
}

impl Layout {
    pub(super) fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
    ) -> Result<Self, ApiError> {
        let mut head = Vec::with_capacity(512);
        let custom = resource.custom && view == View::Object;
        let content = metadata.content(custom);
        let mut item_head = Vec::new();
        let mut rows = None;
        match view {
            View::Object => {
                head.extend(json::type_head(
                    &resource.names.list_kind,
                    &resource.gvk.api_version(),
                ));
                open(&mut head, &content);
                item_head = match resource.custom {
                    true => served::typed_head(resource),
                    false => b"{".to_vec(),
                };
            }
            View::PartialList(version) => {
                head.extend(json::type_head(
                    "PartialObjectMetadataList",
                    version.api_version(),
                ));
                open(&mut head, &content);
            }
            View::Table(version, include) => {
                let writer = RowWriter::new(resource, None, version, include);
                writer.begin(&mut head, &content, true);
                rows = Some(writer);
            }
            View::Partial(_) => return Err(is_a_list(resource)),
        }
        Ok(Layout {
            resource: resource.clone(),
            view,
            head,
            item_head,
            rows,
        })
    }

    /// The text before the items.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Appends an item.
    pub(super) fn item(&self, out: &mut Vec<u8>, row: &RowOf) -> Result<Written, ApiError> {
        if let Some(rows) = &self.rows {
            let Row { made, until } = rows.write(out, row)?;
            return Ok(Written { made, until });
        }
        let resource = &self.resource;
        match (self.view, row) {
            (View::Table(..), _) => return Err(ApiError::internal("a table has rows")),
            (View::Partial(version) | View::PartialList(version), RowOf::Entry(entry)) => {
                json::partial(out, version, entry.metadata());
            }
            (View::Partial(version) | View::PartialList(version), RowOf::Value(value)) => {
                json::partial_of(out, version, value);
            }
            (View::Object, RowOf::Entry(entry)) => {
                out.extend_from_slice(&self.item_head);
                out.extend_from_slice(entry.untyped());
            }
            (View::Object, RowOf::Value(value)) if resource.custom => json::write_object(out, value),
            (View::Object, RowOf::Value(value)) => json::write_untyped(out, value),
        }
        Ok(Written {
            made: matches!(row, RowOf::Value(_)),
            until: None,
        })
    }

    /// The second that items are written in, where they depend on it.
    pub(super) fn now(&self) -> i64 {
        self.rows.as_ref().map_or(0, RowWriter::now)
    }
}

/// `"metadata":{...},"items":[`.
fn open(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(b"\"metadata\":{");
    out.extend_from_slice(content);
    out.extend_from_slice(b"},\"items\":[");
}

/// Writes a list as compact JSON.
pub(super) struct Json {
    layout: Layout,
    rows: Rows,
    first: bool,
}

impl Json {
    pub(super) fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
        rows: Rows,
    ) -> Result<Self, ApiError> {
        Ok(Json {
            layout: Layout::new(resource, view, metadata)?,
            rows,
            first: true,
        })
    }

    /// Whether items are looked into rather than copied.
    pub(super) fn is_heavy(&self) -> bool {
        matches!(self.layout.view, View::Table(..)) || !self.rows.are_plain()
    }
}

impl Fill for Json {
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError> {
        let first = std::mem::take(&mut self.first);
        if first {
            out.extend_from_slice(&self.layout.head);
        }
        let Some((item, size)) = self.rows.take() else {
            out.extend_from_slice(b"]}");
            return Ok(Filled::End);
        };
        if !first {
            out.push(b',');
        }
        let written = self.layout.item(out, &item.row(&self.layout.resource)?)?;
        let is_found = self.layout.rows.is_some() && !written.made;
        Ok(Filled::Item(if is_found { size / FOUND } else { size }))
    }
}

/// Writes a list as YAML: its members are sorted, so that some come after the items.
pub(super) struct Yaml {
    layout: Layout,
    rows: Rows,
    first: bool,
    /// The member that holds the items.
    items: &'static str,
    /// The members of the list but for the items.
    members: Map<String, Value>,
    scratch: Vec<u8>,
}

impl Yaml {
    pub(super) fn new(
        resource: &Arc<ServedResource>,
        view: View,
        metadata: &ListMeta,
        rows: Rows,
    ) -> Result<Self, ApiError> {
        let layout = Layout::new(resource, view, metadata)?;
        let items = match view {
            View::Table(..) => "rows",
            _ => "items",
        };
        let mut empty = layout.head.clone();
        empty.extend_from_slice(b"]}");
        let mut members: Map<String, Value> = serde_json::from_slice(&empty).map_err(ApiError::internal)?;
        members.remove(items);
        Ok(Yaml {
            layout,
            rows,
            first: true,
            items,
            members,
            scratch: Vec::new(),
        })
    }

    /// The members before the items, or those after.
    fn members(&self, out: &mut Vec<u8>, before: bool) {
        let chosen = self
            .members
            .iter()
            .filter(|(key, _)| (key.as_str() < self.items) == before);
        let chosen: Map<String, Value> = chosen.map(|(key, value)| (key.clone(), value.clone())).collect();
        if !chosen.is_empty() {
            out.extend_from_slice(yaml::to_string(&Value::Object(chosen)).as_bytes());
        }
    }
}

impl Fill for Yaml {
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError> {
        let first = std::mem::take(&mut self.first);
        if first {
            self.members(out, true);
            out.extend_from_slice(self.items.as_bytes());
            out.push(b':');
        }
        let Some((item, size)) = self.rows.take() else {
            if first {
                out.extend_from_slice(b" []\n");
            }
            self.members(out, false);
            return Ok(Filled::End);
        };
        if first {
            out.push(b'\n');
        }
        self.scratch.clear();
        let row = item.row(&self.layout.resource)?;
        self.layout.item(&mut self.scratch, &row)?;
        let item: Value = serde_json::from_slice(&self.scratch).map_err(ApiError::internal)?;
        // A sequence stands in the same column as the member that holds it.
        out.extend_from_slice(yaml::to_string(&Value::Array(vec![item])).as_bytes());
        Ok(Filled::Item(size))
    }
}
