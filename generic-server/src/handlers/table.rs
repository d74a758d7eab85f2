//! The Table view: rows for people, made by the kind's convertor. Needs the object parsed, unlike everything else that is read.

use std::sync::{Arc, LazyLock};

use machinery::table::age_cell;
use machinery::time::Timestamp;
use machinery::{ApiError, meta};
use serde_json::{Value, json};

use super::served;
use crate::negotiate::{IncludeObject, MetaVersion};
use crate::registry::cache::Entry;
use crate::resource::{Column, ServedResource, TableConvertor};
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

    fn cells(&self, object: &Value) -> Vec<Value> {
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

    fn cells(&self, object: &Value) -> Vec<Value> {
        let replicas = |of: &str| meta::dig(object, &[of, "replicas"]).cloned().unwrap_or(0.into());
        vec![
            meta::name(object).into(),
            replicas("spec"),
            replicas("status"),
            age_cell(object, Timestamp::now()),
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
pub(crate) fn begin(
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

/// One row.
pub(crate) fn row(
    out: &mut Vec<u8>,
    resource: &ServedResource,
    convertor: &dyn TableConvertor,
    version: MetaVersion,
    include: IncludeObject,
    of: &RowOf,
) -> Result<(), ApiError> {
    let parsed;
    let object = match of {
        RowOf::Entry(entry) => {
            parsed = served::parsed(resource, entry)?;
            &parsed
        }
        RowOf::Value(value) => value,
    };
    out.extend_from_slice(b"{\"cells\":");
    json::value(out, &Value::Array(convertor.cells(object)));
    out.extend_from_slice(b",\"object\":");
    match (include, of) {
        (IncludeObject::None, _) => out.extend_from_slice(b"null"),
        (IncludeObject::Metadata, RowOf::Entry(entry)) => json::partial(out, version, entry.metadata()),
        (IncludeObject::Metadata, RowOf::Value(value)) => json::partial_of(out, version, value),
        (IncludeObject::Object, RowOf::Entry(entry)) => {
            out.extend_from_slice(&served::typed_head(resource));
            out.extend_from_slice(entry.untyped());
        }
        (IncludeObject::Object, RowOf::Value(value)) => json::write_object(out, value),
    }
    out.push(b'}');
    Ok(())
}

/// The Table of one object.
pub(crate) fn single(
    resource: &ServedResource,
    convertor: Option<&dyn TableConvertor>,
    version: MetaVersion,
    include: IncludeObject,
    of: &RowOf,
) -> Result<Vec<u8>, ApiError> {
    single_with(resource, convertor, version, include, of, true)
}

/// The same, without describing the columns when `headers` is false.
pub(crate) fn single_with(
    resource: &ServedResource,
    convertor: Option<&dyn TableConvertor>,
    version: MetaVersion,
    include: IncludeObject,
    of: &RowOf,
    headers: bool,
) -> Result<Vec<u8>, ApiError> {
    let convertor = convertor.unwrap_or(&*resource.table);
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
    begin(&mut out, convertor, version, &metadata, headers);
    row(&mut out, resource, convertor, version, include, of)?;
    out.extend_from_slice(b"]}");
    Ok(out)
}
