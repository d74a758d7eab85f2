//! Other views of objects: `Table`, as `kubectl get` asks for it, and `PartialObjectMetadata`.
//!
//! Columns are data: a name, a type and how to make a cell of an object. Rows carry the object, its metadata or nothing,
//! as the request's `includeObject` says.

mod ages;

use serde_json::{Map, Value, json};

use crate::jsonpath::JsonPath;
use crate::meta;
use crate::time::Timestamp;

pub use ages::{Ages, fill_ages};

/// The group and version of tables and partial objects.
pub const META_VERSION: &str = "meta.k8s.io/v1";

/// A column's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub ty: String,
    /// The format, such as `name`; often empty.
    pub format: String,
    /// The explanation.
    pub description: String,
    /// 0 is always shown, more only when asked for.
    pub priority: i32,
}

impl Column {
    /// A column of priority 0 without a format.
    pub fn new(name: &str, ty: &str, description: &str) -> Self {
        Column {
            name: name.into(),
            ty: ty.into(),
            format: String::new(),
            description: description.into(),
            priority: 0,
        }
    }

    /// The same with a format.
    #[must_use]
    pub fn format(mut self, format: &str) -> Self {
        self.format = format.into();
        self
    }

    /// The same with a priority.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The wire form.
    pub fn to_value(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.ty,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// The object that a row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; empty is [`IncludeObject::Metadata`].
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "None" => Some(Self::None),
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// The object with nothing but its metadata, as a `PartialObjectMetadata`.
pub fn partial_object_metadata(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"apiVersion": META_VERSION, "kind": "PartialObjectMetadata", "metadata": metadata})
}

/// A list of them, with the list's own metadata.
pub fn partial_object_metadata_list<'a>(
    list_meta: Value,
    items: impl IntoIterator<Item = &'a Value>,
) -> Value {
    let items: Vec<Value> = items.into_iter().map(partial_object_metadata).collect();
    json!({"apiVersion": META_VERSION, "kind": "PartialObjectMetadataList", "metadata": list_meta, "items": items})
}

/// One row.
pub fn row(cells: Vec<Value>, object: &Value, include: IncludeObject) -> Value {
    let object = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial_object_metadata(object),
        IncludeObject::Object => object.clone(),
    };
    let mut out = Map::new();
    out.insert("cells".into(), Value::Array(cells));
    out.insert("object".into(), object);
    Value::Object(out)
}

/// A table. `columns` is null when no headers are wanted (also in all but the first event of a watch); `list_meta` is the
/// metadata of the list, or the resourceVersion of the single object.
pub fn table(columns: Option<&[Column]>, list_meta: Value, rows: Vec<Value>) -> Value {
    let columns = columns.map(|columns| columns.iter().map(Column::to_value).collect::<Vec<_>>());
    let mut out = Map::new();
    out.insert("apiVersion".into(), META_VERSION.into());
    out.insert("columnDefinitions".into(), columns.into());
    out.insert("kind".into(), "Table".into());
    out.insert("metadata".into(), list_meta);
    out.insert("rows".into(), Value::Array(rows));
    Value::Object(out)
}

/// The `metadata` of a table of one object.
pub fn single_meta(object: &Value) -> Value {
    match meta::resource_version(object) {
        "" => json!({}),
        version => json!({"resourceVersion": version}),
    }
}

/// The cell of an object's age.
pub fn age_cell(object: &Value, ages: &Ages) -> Value {
    let created = meta::metadata(object)
        .and_then(|m| m.get("creationTimestamp"))
        .and_then(Value::as_str);
    ages.of(created).into()
}

/// The cells of a kind without columns of its own: name and time of creation.
pub fn default_cells(object: &Value) -> Vec<Value> {
    let created = meta::metadata(object)
        .and_then(|m| m.get("creationTimestamp"))
        .and_then(Value::as_str);
    vec![
        meta::name(object).into(),
        created.unwrap_or("0001-01-01T00:00:00Z").into(),
    ]
}

/// The printer columns of a custom resource, compiled.
#[derive(Debug, Clone, Default)]
pub struct CustomColumns {
    columns: Vec<Column>,
    paths: Vec<JsonPath>,
}

impl CustomColumns {
    /// Compiles `additionalPrinterColumns`. `name` is the header of the first column, which upstream always puts in front.
    ///
    /// # Errors
    /// `unrecognized column definition "..."`.
    pub fn compile(name: Column, definitions: &[Value]) -> Result<Self, String> {
        let mut columns = vec![name];
        let mut paths = Vec::with_capacity(definitions.len());
        for definition in definitions {
            let text = |key: &str| definition.get(key).and_then(Value::as_str).unwrap_or_default();
            let path = text("jsonPath");
            let compiled = JsonPath::parse(path)
                .map_err(|_| format!("unrecognized column definition {}", crate::go::quote(path)))?;
            paths.push(compiled);
            let description = match text("description") {
                "" => format!("Custom resource definition column (in JSONPath format): {path}"),
                description => description.to_owned(),
            };
            let priority = definition
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or_default();
            columns.push(Column {
                name: text("name").into(),
                ty: text("type").into(),
                format: text("format").into(),
                description,
                priority: i32::try_from(priority).unwrap_or_default(),
            });
        }
        Ok(CustomColumns { columns, paths })
    }

    /// The headers.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The cells of an object.
    pub fn cells(&self, object: &Value, ages: &Ages) -> Vec<Value> {
        let mut cells = Vec::with_capacity(self.columns.len());
        cells.push(meta::name(object).into());
        for (column, path) in self.columns[1..].iter().zip(&self.paths) {
            cells.push(match path.first(object) {
                Some(value) => cell(&column.ty, &value, ages),
                None => Value::Null,
            });
        }
        cells
    }
}

/// A value as a cell of a column's type; null when it does not fit.
fn cell(ty: &str, value: &Value, ages: &Ages) -> Value {
    match (ty, value) {
        ("string", Value::String(_)) => value.clone(),
        // Go's templates print a missing value this way.
        ("string", Value::Null) => "<no value>".into(),
        ("string", value) => value.to_string().into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => integer.into(),
            // Saturates where Go's conversion is undefined.
            (None, Some(float)) => (float.trunc() as i64).into(),
            (None, None) => Value::Null,
        },
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.as_str() {
            "" | "null" => ages.of(None).into(),
            text if Timestamp::parse_rfc3339(text).is_none() => "<invalid>".into(),
            text => ages.of(Some(text)).into(),
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_columns() {
        let definitions = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1, "description": "d"},
            {"name": "Obj", "type": "string", "jsonPath": ".spec"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Bad", "type": "boolean", "jsonPath": ".spec.size"},
            {"name": "Index", "type": "string", "jsonPath": ".spec.none[0]"},
        ]);
        let name = Column::new("Name", "string", "n").format("name");
        let columns = CustomColumns::compile(name, definitions.as_array().unwrap()).unwrap();
        let object = json!({"metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"}, "spec": {"size": 2.7, "color": null}});
        let cells = columns.cells(&object, &Ages::at(Timestamp::from_unix(150)));
        assert_eq!(
            Value::Array(cells),
            json!([
                "a",
                2,
                "<no value>",
                "{\"color\":null,\"size\":2.7}",
                "2m30s",
                null,
                null
            ])
        );
        assert_eq!(
            columns.columns()[1].description,
            "Custom resource definition column (in JSONPath format): .spec.size"
        );
        let bad = json!([{"name": "x", "type": "string", "jsonPath": ".a["}]);
        let error =
            CustomColumns::compile(Column::new("Name", "string", ""), bad.as_array().unwrap()).unwrap_err();
        assert_eq!(error, "unrecognized column definition \".a[\"");
    }

    #[test]
    fn shapes() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "5"}, "data": {}});
        let columns = [
            Column::new("Name", "string", "d").format("name"),
            Column::new("Age", "date", "").priority(1),
        ];
        let partial = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a", "resourceVersion": "5"}});
        for (include, expected) in [
            ("", partial.clone()),
            ("None", Value::Null),
            ("Object", object.clone()),
        ] {
            let include = IncludeObject::parse(include).unwrap();
            let rows = vec![row(default_cells(&object), &object, include)];
            assert_eq!(
                table(Some(&columns), single_meta(&object), rows),
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "Table", "metadata": {"resourceVersion": "5"},
                    "columnDefinitions": [
                        {"name": "Name", "type": "string", "format": "name", "description": "d", "priority": 0},
                        {"name": "Age", "type": "date", "format": "", "description": "", "priority": 1},
                    ],
                    "rows": [{"cells": ["a", "0001-01-01T00:00:00Z"], "object": expected}],
                })
            );
        }
        assert_eq!(IncludeObject::parse("x"), None);
        assert_eq!(table(None, json!({}), vec![])["columnDefinitions"], Value::Null);
        assert_eq!(
            partial_object_metadata_list(json!({"resourceVersion": "7"}), [&object]),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": "7"}, "items": [partial]})
        );
        assert_eq!(age_cell(&object, &Ages::at(Timestamp::from_unix(0))), "<unknown>");
    }
}
