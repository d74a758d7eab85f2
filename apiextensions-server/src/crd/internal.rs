//! A CRD's spec as upstream's unversioned type has it: fields that all versions share are stated once, at the top.
//!
//! Error paths depend on this: `spec.validation...` when every version has the same schema (always so with one version),
//! `spec.versions[i]...` otherwise. Mirrors the conversion in `pkg/apis/apiextensions/v1/conversion.go`.

use std::collections::HashMap;

use serde_json::Value;

use crate::props::Props;

/// A version of the CRD, with the fields that are not hoisted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) name: &'a str,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    pub(crate) deprecated: bool,
    pub(crate) deprecation_warning: Option<&'a str>,
    /// `schema`, unless hoisted.
    pub(crate) schema: Option<&'a Value>,
    /// `subresources`, unless hoisted.
    pub(crate) subresources: Option<&'a Value>,
    /// `additionalPrinterColumns`, unless hoisted.
    pub(crate) columns: &'a [Value],
    /// `selectableFields`, unless hoisted.
    pub(crate) selectable: &'a [Value],
}

/// The spec, read.
#[derive(Debug, Clone)]
pub(crate) struct Spec<'a> {
    pub(crate) raw: &'a Value,
    pub(crate) group: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) names: &'a Value,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) conversion: Option<&'a Value>,
    /// The first version's name.
    pub(crate) version: &'a str,
    pub(crate) versions: Vec<Version<'a>>,
    /// Where the first version of each name is.
    by_name: HashMap<&'a str, usize>,
    pub(crate) validation: Option<&'a Value>,
    pub(crate) subresources: Option<&'a Value>,
    pub(crate) columns: &'a [Value],
    pub(crate) selectable: &'a [Value],
}

static NULL: Value = Value::Null;

fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|v| !v.is_null())
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    present(value, key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Whether all versions hold the same; the first one's value then.
fn shared<'a, T: PartialEq + Copy>(versions: &[Version<'a>], of: impl Fn(&Version<'a>) -> T) -> Option<T> {
    let first = of(versions.first()?);
    versions.iter().all(|v| of(v) == first).then_some(first)
}

impl<'a> Spec<'a> {
    /// The spec of a CRD object.
    pub(crate) fn of(crd: &'a Value) -> Spec<'a> {
        let raw = crd.get("spec").unwrap_or(&NULL);
        let mut versions: Vec<Version<'a>> = items(raw, "versions")
            .iter()
            .map(|v| Version {
                name: text(v, "name"),
                served: flag(v, "served"),
                storage: flag(v, "storage"),
                deprecated: flag(v, "deprecated"),
                deprecation_warning: present(v, "deprecationWarning").and_then(Value::as_str),
                schema: present(v, "schema"),
                subresources: present(v, "subresources"),
                columns: items(v, "additionalPrinterColumns"),
                selectable: items(v, "selectableFields"),
            })
            .collect();
        let schema = shared(&versions, |v| v.schema);
        let subresources = shared(&versions, |v| v.subresources);
        let columns = shared(&versions, |v| v.columns);
        let selectable = shared(&versions, |v| v.selectable);
        for version in &mut versions {
            if schema.is_some() {
                version.schema = None;
            }
            if subresources.is_some() {
                version.subresources = None;
            }
            if columns.is_some() {
                version.columns = &[];
            }
            if selectable.is_some() {
                version.selectable = &[];
            }
        }
        let mut by_name = HashMap::with_capacity(versions.len());
        for (index, version) in versions.iter().enumerate() {
            by_name.entry(version.name).or_insert(index);
        }
        Spec {
            raw,
            by_name,
            group: text(raw, "group"),
            scope: text(raw, "scope"),
            names: raw.get("names").unwrap_or(&NULL),
            preserve_unknown_fields: flag(raw, "preserveUnknownFields"),
            conversion: present(raw, "conversion"),
            version: versions.first().map(|v| v.name).unwrap_or_default(),
            versions,
            validation: schema.flatten(),
            subresources: subresources.flatten(),
            columns: columns.unwrap_or_default(),
            selectable: selectable.unwrap_or_default(),
        }
    }

    /// One of the names.
    pub(crate) fn name(&self, key: &str) -> &'a str {
        text(self.names, key)
    }

    /// The schema at the top, if any.
    pub(crate) fn top_schema(&self) -> Option<Props<'a>> {
        self.validation.and_then(open_api_schema)
    }

    /// Every schema, hoisted or not.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = Props<'a>> {
        let versions = self
            .versions
            .iter()
            .filter_map(|v| v.schema.and_then(open_api_schema));
        self.top_schema().into_iter().chain(versions)
    }

    /// The same, as JSON.
    pub(crate) fn raw_schemas(&self) -> impl Iterator<Item = &'a Value> {
        let versions = self.versions.iter().filter_map(|v| v.schema);
        let all = self.validation.into_iter().chain(versions);
        all.filter_map(|schema| present(schema, "openAPIV3Schema"))
    }

    /// Whether a schema has a node that satisfies `test`.
    pub(crate) fn any_node(&self, mut test: impl FnMut(Props<'_>) -> bool) -> bool {
        self.schemas().any(|s| s.any(&mut |node| test(node)))
    }

    /// The subresources of a version.
    pub(crate) fn subresources_of(&self, version: &Version<'a>) -> Option<&'a Value> {
        version.subresources.or(self.subresources)
    }

    /// Where the first version of a name is.
    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The first version of a name.
    pub(crate) fn version_of(&self, name: &str) -> Option<&Version<'a>> {
        self.versions.get(self.index_of(name)?)
    }

    /// The schema of a version.
    pub(crate) fn schema_of(&self, name: &str) -> Option<&'a Value> {
        self.version_of(name)?.schema.or(self.validation)
    }
}

/// `openAPIV3Schema` of a `schema`.
pub(crate) fn open_api_schema(schema: &Value) -> Option<Props<'_>> {
    present(schema, "openAPIV3Schema").map(Props::new)
}

/// Whether subresources enable `status`.
pub(crate) fn has_status(subresources: Option<&Value>) -> bool {
    subresources.is_some_and(|s| present(s, "status").is_some())
}
