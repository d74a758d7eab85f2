//! The Table view: rows for people, made by the kind's convertor. Cells need the object parsed, unlike everything else that is read, so they
//! are kept, with marks where ages are.

use std::sync::{Arc, LazyLock};

use machinery::table::{Ages, age_cell, fill_ages};
use machinery::time::Timestamp;
use machinery::{ApiError, meta};
use serde_json::{Value, json};

use super::served;
use crate::negotiate::{IncludeObject, MetaVersion};
use crate::registry::cache::Entry;
use crate::registry::forms::{FormCache, FormId};
use crate::resource::{Column, Converter, ServedResource, TableConvertor};
use crate::respond::json;

/// The convertor of kinds without columns of their own.
pub(crate) const DEFAULT: &dyn TableConvertor = &DefaultTable;

/// The convertor of the scales of built-in kinds.
pub(crate) const SCALE: &dyn TableConvertor = &ScaleTable;

#[derive(Debug)]
struct DefaultTable;

#[derive(Debug)]
struct ScaleTable;

fn described(name: &str, kind: &str, format: &str, description: &str) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        format: format.into(),
        description: description.into(),
        priority: 0,
    }
}

const NAME: &str = "The name, unique among objects of its kind in its namespace.";
const CREATED: &str = "When the object was created.";

impl TableConvertor for DefaultTable {
    fn columns(&self) -> &[Column] {
        static COLUMNS: LazyLock<[Column; 2]> = LazyLock::new(|| {
            [
                described("Name", "string", "name", NAME),
                described("Created At", "date", "", CREATED),
            ]
        });
        &*COLUMNS
    }

    fn cells(&self, object: &Value, _ages: &Ages) -> Vec<Value> {
        let created = meta::metadata(object).and_then(|m| m.get("creationTimestamp"));
        vec![meta::name(object).into(), created.cloned().unwrap_or(Value::Null)]
    }
}

impl TableConvertor for ScaleTable {
    fn columns(&self) -> &[Column] {
        static COLUMNS: LazyLock<[Column; 4]> = LazyLock::new(|| {
            [
                described("Name", "string", "", NAME),
                described("Desired", "integer", "", "How many instances are wanted."),
                described("Available", "integer", "", "How many instances there are."),
                described("Age", "string", "", CREATED),
            ]
        });
        &*COLUMNS
    }

    fn cells(&self, object: &Value, ages: &Ages) -> Vec<Value> {
        let replicas = |of: &str| meta::dig(object, &[of, "replicas"]).cloned().unwrap_or(0.into());
        vec![
            meta::name(object).into(),
            replicas("spec"),
            replicas("status"),
            age_cell(object, ages),
        ]
    }
}

/// The source of a row.
#[derive(Debug)]
pub(crate) enum RowOf {
    /// A cached object whose JSON is served as it is.
    Entry(Arc<Entry>),
    /// An object of the served version.
    Value(Value),
}

/// A Table up to its rows: `{"kind":"Table",...,"rows":[`. `metadata` is the content of the list's metadata; `headers` says whether
/// the columns are described (watches do that once).
fn begin(
    out: &mut Vec<u8>,
    convertor: &dyn TableConvertor,
    version: MetaVersion,
    metadata: &[u8],
    headers: bool,
) {
    out.extend_from_slice(&json::type_head("Table", version.api_version()));
    out.extend_from_slice(b"\"metadata\":{");
    out.extend_from_slice(metadata);
    out.extend_from_slice(b"},\"columnDefinitions\":");
    if headers {
        let columns: Vec<Value> = convertor.columns().iter().map(column).collect();
        json::value(out, &Value::Array(columns));
    } else {
        out.extend_from_slice(b"null");
    }
    out.extend_from_slice(b",\"rows\":[");
}

fn column(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// Writes the rows of one request. The cells of cached objects are kept with them.
#[derive(Debug)]
pub(crate) struct RowWriter {
    resource: Arc<ServedResource>,
    /// The convertor, if it is not the resource's own.
    other: Option<&'static dyn TableConvertor>,
    version: MetaVersion,
    include: IncludeObject,
    /// Ages are those of this second.
    now: Timestamp,
    forms: Option<(Arc<FormCache>, FormId)>,
}

/// How a row was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its cells had to be made: the object was parsed.
    pub(crate) made: bool,
    /// Until when it says the same, in seconds of the epoch, if there are ages in it.
    pub(crate) until: Option<i64>,
}

impl RowWriter {
    pub(crate) fn new(
        resource: &Arc<ServedResource>,
        other: Option<&'static dyn TableConvertor>,
        version: MetaVersion,
        include: IncludeObject,
    ) -> Self {
        let store = resource.store().filter(|_| other.is_none());
        let forms = store.map(|store| {
            let forms = store.forms();
            (forms.clone(), served::form(resource, forms, served::Form::Cells))
        });
        RowWriter {
            resource: resource.clone(),
            other,
            version,
            include,
            now: Timestamp::from_unix(Timestamp::now().unix()),
            forms,
        }
    }

    fn convertor(&self) -> &dyn TableConvertor {
        self.other.unwrap_or(&*self.resource.table)
    }

    /// Up to and with the bracket that opens the rows, as [`begin`] has it.
    pub(crate) fn begin(&self, out: &mut Vec<u8>, metadata: &[u8], headers: bool) {
        begin(out, self.convertor(), self.version, metadata, headers);
    }

    /// The second that rows are written in.
    pub(crate) fn now(&self) -> i64 {
        self.now.unix()
    }

    /// One row.
    pub(crate) fn write(&self, out: &mut Vec<u8>, of: &RowOf) -> Result<Row, ApiError> {
        out.extend_from_slice(b"{\"cells\":");
        let row = match of {
            RowOf::Entry(entry) => self.kept_cells(out, entry)?,
            RowOf::Value(object) => {
                let printed = match self.shared_store() {
                    Some(converter) => &converter.to_stored(object.clone())?,
                    None => object,
                };
                self.write_cells(out, printed, &Ages::at(self.now));
                Row {
                    made: true,
                    until: Some(self.now()),
                }
            }
        };
        let version = self.version;
        out.extend_from_slice(b",\"object\":");
        match (self.include, of) {
            (IncludeObject::None, _) => out.extend_from_slice(b"null"),
            (IncludeObject::Metadata, RowOf::Entry(entry)) => json::partial(out, version, entry.metadata()),
            (IncludeObject::Metadata, RowOf::Value(value)) => json::partial_of(out, version, value),
            (IncludeObject::Object, RowOf::Entry(entry)) => {
                out.extend_from_slice(&served::typed_head(&self.resource));
                out.extend_from_slice(entry.untyped());
            }
            (IncludeObject::Object, RowOf::Value(value)) => json::write_object(out, value),
        }
        out.push(b'}');
        Ok(row)
    }

    /// The converter of a built-in version that shares a store with others.
    fn shared_store(&self) -> Option<&dyn Converter> {
        self.resource
            .rule()
            .filter(|_| !self.resource.custom && self.other.is_none())
    }

    /// The cells of a row, and its conditions.
    fn write_cells(&self, out: &mut Vec<u8>, object: &Value, ages: &Ages) {
        let convertor = self.convertor();
        json::value(out, &Value::Array(convertor.cells(object, ages)));
        if let Some(conditions) = convertor.conditions(object) {
            out.extend_from_slice(b",\"conditions\":");
            json::value(out, &conditions);
        }
    }

    fn kept_cells(&self, out: &mut Vec<u8>, entry: &Entry) -> Result<Row, ApiError> {
        let mut made = false;
        let mut make = || {
            made = true;
            let object = match self.shared_store() {
                Some(_) => entry.value(),
                None => served::parsed(&self.resource, entry)?,
            };
            let mut cells = Vec::with_capacity(256);
            self.write_cells(&mut cells, &object, &Ages::marked());
            Ok::<_, ApiError>(cells)
        };
        let cells = match &self.forms {
            Some((forms, id)) => entry.forms().get_or_make(forms, *id, make)?,
            None => make()?.into(),
        };
        let holds = fill_ages(out, &cells, self.now);
        Ok(Row {
            made,
            until: holds.map(|seconds| self.now().saturating_add(seconds)),
        })
    }
}

/// The Table of one object. `headers` says whether the columns are described.
pub(crate) fn single(rows: &RowWriter, of: &RowOf, headers: bool) -> Result<Vec<u8>, ApiError> {
    let revision = match of {
        RowOf::Entry(entry) => entry.revision.to_string(),
        RowOf::Value(value) => meta::resource_version(value).to_string(),
    };
    let mut metadata = Vec::new();
    if !revision.is_empty() {
        metadata.extend_from_slice(b"\"resourceVersion\":");
        json::text(&mut metadata, &revision);
    }
    let mut out = Vec::with_capacity(1024);
    rows.begin(&mut out, &metadata, headers);
    rows.write(&mut out, of)?;
    out.extend_from_slice(b"]}");
    Ok(out)
}
