//! Schemas as the OpenAPI documents publish them: definitions (v2) and components (v3) of built-in types and of custom
//! resources. Paths and whole documents are assembled by the servers.
//!
//! Texts are not in the schema arena: [`Descriptions`] unpacks them for as long as documents are being made.

mod custom;
mod descriptions;
mod versions;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::codec::typed;
use crate::schema::{FieldDef, Format, ListType, SchemaRef, Type, builtin};

pub use custom::{CustomKind, custom_definitions};
pub use descriptions::Descriptions;
pub use versions::{client_versions, registered_versions};

/// Which document a schema is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/openapi/v2`: definitions; neither defaults nor junctors.
    V2,
    /// `/openapi/v3`: components.
    V3,
}

impl Dialect {
    /// The reference to a type.
    pub fn reference(self, name: &str) -> Value {
        json!({ "$ref": match self {
            Dialect::V2 => format!("#/definitions/{name}"),
            Dialect::V3 => format!("#/components/schemas/{name}"),
        }})
    }
}

/// The prefix of the names of meta/v1's types, without the dot.
pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// With its first letter capital, as identifiers of operations have it.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Required fields whose protobuf number is higher than their place in the type: the type, the field, its place among the required.
const NUMBERED_LATE: &[(&str, &str, usize)] = &[
    ("networking.v1.HTTPIngressPath", "pathType", 0),
    ("meta.v1.APIResource", "singularName", 1),
    ("meta.v1.OwnerReference", "apiVersion", 0),
];

/// The name of a built-in kind's type; `None` for kinds that are not built in.
pub fn type_name(group: &str, version: &str, kind: &str) -> Option<String> {
    let schema = builtin().kind(group, version, kind)?;
    schema.root().node().type_name.as_deref().map(str::to_owned)
}

/// The description of the metadata of every list.
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// List kinds whose metadata upstream leaves without a description.
const PLAIN_METADATA: &[&str] = &["io.k8s.api.certificates.v1.CertificateSigningRequestList"];

/// The text of a field that the packed texts leave out: those of lists, and of the event of a watch.
fn own_text<'t>(name: &str, field: &str, texts: &'t Descriptions) -> Option<Cow<'t, str>> {
    match (field, list_of(name)) {
        // Every whole object has the same texts here.
        ("apiVersion" | "kind", _) => texts.of_field("io.k8s.api.core.v1.Pod", field).map(Cow::from),
        ("metadata", Some(_)) => (!PLAIN_METADATA.contains(&name)).then_some(LIST_METADATA.into()),
        ("items", Some(item)) => Some(format!("The {item} objects of the list.").into()),
        ("object", None) if name.ends_with(".WatchEvent") => Some(
            "The object: its new state when it was added or modified, its last state when it was deleted, and a Status \
             when the type is ERROR."
                .into(),
        ),
        _ => None,
    }
}

/// The kind of the items of a list kind.
fn list_of(name: &str) -> Option<&str> {
    name.rsplit('.')
        .next()?
        .strip_suffix("List")
        .filter(|item| !item.is_empty())
}

/// Types of which one field says which of the others is set: the name, the field that says, the others.
const UNIONS: &[(&str, Option<&str>, &[&str])] = &[
    ("core.v1.AppArmorProfile", Some("type"), &["localhostProfile"]),
    ("core.v1.PodSchedulingGroup", None, &["podGroupName"]),
    ("core.v1.SeccompProfile", Some("type"), &["localhostProfile"]),
    ("flowcontrol.v1.LimitResponse", Some("type"), &["queuing"]),
    (
        "flowcontrol.v1.PriorityLevelConfigurationSpec",
        Some("type"),
        &["exempt", "limited"],
    ),
    (
        "flowcontrol.v1.Subject",
        Some("kind"),
        &["group", "serviceAccount", "user"],
    ),
    (
        "scheduling.v1alpha2.PodGroupSchedulingPolicy",
        None,
        &["basic", "gang"],
    ),
    (
        "scheduling.v1alpha2.PodGroupTemplateReference",
        None,
        &["workload"],
    ),
];

fn union_of(name: &str) -> Option<Value> {
    let name = name.strip_prefix("io.k8s.api.")?;
    let (_, discriminator, fields) = UNIONS.iter().find(|(known, ..)| *known == name)?;
    let by: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let (first, rest) = field.split_at(1);
            (
                (*field).to_owned(),
                format!("{}{rest}", first.to_uppercase()).into(),
            )
        })
        .collect();
    let mut union = json!({ "fields-to-discriminateBy": by });
    if let Some(discriminator) = discriminator {
        union["discriminator"] = (*discriminator).into();
    }
    Some(json!([union]))
}

/// Schemas by name: those of the types `roots` and of all types that they refer to. `served` are the groups and versions
/// that `DeleteOptions` and `WatchEvent` are said to be of.
pub fn definitions<'a>(
    dialect: Dialect,
    roots: impl IntoIterator<Item = &'a str>,
    served: &[(&str, &str)],
    texts: &Descriptions,
) -> Map<String, Value> {
    let mut out = Map::new();
    let mut todo: Vec<String> = roots.into_iter().map(str::to_owned).collect();
    let mut known: BTreeSet<String> = todo.iter().cloned().collect();
    while let Some(name) = todo.pop() {
        let Some(schema) = definition(dialect, &name, served, texts) else {
            continue;
        };
        if let Some(kind) = builtin().by_type_name(&name) {
            for field in &kind.root().node().fields {
                if let Some(name) = referred(kind.root().at(field.node))
                    && known.insert(name.to_owned())
                {
                    todo.push(name.to_owned());
                }
            }
        }
        // A schema that may be something else has a schema's fields, but does not refer to their types itself.
        out.insert(name, schema);
    }
    out
}

/// The name of the type that a property refers to, through lists and maps.
fn referred(schema: SchemaRef<'_>) -> Option<&str> {
    match schema
        .items()
        .filter(|_| schema.node().ty == Type::Array)
        .or(schema.additional())
    {
        Some(inner) => referred(inner),
        None => schema.node().type_name.as_deref(),
    }
}

/// The schema of a built-in type by its name.
pub fn definition(
    dialect: Dialect,
    name: &str,
    served: &[(&str, &str)],
    texts: &Descriptions,
) -> Option<Value> {
    let mut out = Map::new();
    let of_list = texts.of_type(name).is_none().then(|| list_of(name)).flatten();
    match (texts.of_type(name), of_list) {
        (Some(text), _) => {
            out.insert("description".into(), text.into());
        }
        (None, Some(item)) => {
            out.insert(
                "description".into(),
                format!("{item}List is a list of {item} objects.").into(),
            );
        }
        (None, None) => {}
    }
    if name == format!("{META}.Patch") {
        out.insert("type".into(), "object".into());
        return Some(Value::Object(out));
    }
    let kind = builtin().by_type_name(name)?;
    let schema = kind.root();
    let node = schema.node();
    match (&node.format, node.ty) {
        (Some(Format::Raw), _) => {
            if !name.ends_with(".JSON") {
                out.insert("type".into(), "object".into());
            }
        }
        (Some(Format::SchemaOrBool | Format::SchemaOrArray | Format::SchemaOrStrings), _) => {}
        (Some(Format::DateTime | Format::MicroTime), _) => {
            out.insert("type".into(), "string".into());
            out.insert("format".into(), "date-time".into());
        }
        (Some(Format::Quantity), _) if dialect == Dialect::V3 => {
            out.insert("oneOf".into(), json!([{"type": "string"}, {"type": "number"}]));
        }
        (_, Type::IntOrString) => {
            out.insert("format".into(), "int-or-string".into());
            match dialect {
                Dialect::V2 => out.insert("type".into(), "string".into()),
                Dialect::V3 => out.insert("oneOf".into(), json!([{"type": "integer"}, {"type": "string"}])),
            };
        }
        (_, Type::Object) => object(dialect, name, schema, served, texts, &mut out),
        _ => {
            out.insert("type".into(), "string".into());
        }
    }
    Some(Value::Object(out))
}

fn object(
    dialect: Dialect,
    name: &str,
    schema: SchemaRef<'_>,
    served: &[(&str, &str)],
    texts: &Descriptions,
    out: &mut Map<String, Value>,
) {
    let node = schema.node();
    let mut properties = Map::new();
    for field in &node.fields {
        let text = texts
            .of_field(name, &field.name)
            .map(Cow::from)
            .or_else(|| own_text(name, &field.name, texts));
        let mut property = property(dialect, field, schema.at(field.node), text.as_deref());
        if let Some(values) = texts.values_of(name, &field.name) {
            enumerate(&mut property, values);
        }
        properties.insert(field.name.to_string(), property);
    }
    // In the order of the types' fields, which the protobuf numbers follow.
    let numbered = node.wire.iter().map(|index| &node.fields[usize::from(*index)]);
    let unnumbered = node.fields.iter().filter(|field| field.number.is_none());
    let mut required: Vec<Value> = numbered
        .chain(unnumbered)
        .filter(|field| field.required)
        .map(|field| Value::from(&*field.name))
        .collect();
    let moved = NUMBERED_LATE.iter().filter(|(known, ..)| name.ends_with(known));
    for (_, field, to) in moved {
        if let Some(from) = required.iter().position(|name| name == field) {
            let field = required.remove(from);
            required.insert(*to, field);
        }
    }
    if !properties.is_empty() {
        out.insert("properties".into(), Value::Object(properties));
    }
    if !required.is_empty() {
        out.insert("required".into(), Value::Array(required));
    }
    out.insert("type".into(), "object".into());
    if node.atomic {
        out.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if let Some(unions) = union_of(name) {
        out.insert("x-kubernetes-unions".into(), unions);
    }
    let gvk =
        |group: &str, version: &str, kind: &str| json!({"group": group, "kind": kind, "version": version});
    let short = typed::short_name(node);
    let kinds: Vec<Value> = if matches!(short, "DeleteOptions" | "WatchEvent") {
        served
            .iter()
            .map(|(group, version)| gvk(group, version, short))
            .collect()
    } else {
        builtin()
            .kinds()
            .filter(|(.., kind)| kind.node().type_name.as_deref() == Some(name))
            .map(|(group, version, kind, _)| gvk(group, version, kind))
            .collect()
    };
    if !kinds.is_empty() {
        out.insert("x-kubernetes-group-version-kind".into(), Value::Array(kinds));
    }
}

/// Says which values the strings of a property may have: it is a string, a list of strings, or a map to strings.
fn enumerate(property: &mut Value, values: Vec<&str>) {
    let inner = ["items", "additionalProperties"]
        .into_iter()
        .find(|inner| property.get(inner).is_some());
    match inner {
        Some(inner) => property[inner]["enum"] = values.into(),
        None => property["enum"] = values.into(),
    }
}

fn property(dialect: Dialect, field: &FieldDef, schema: SchemaRef<'_>, text: Option<&str>) -> Value {
    let node = schema.node();
    let mut beside = Map::new();
    if let Some(text) = text {
        beside.insert("description".into(), text.into());
    }
    if dialect == Dialect::V3
        && let Some(default) = default(field, schema)
    {
        beside.insert("default".into(), default);
    }
    if let Some(patch) = &field.patch {
        let all = [
            (patch.merge, "merge"),
            (patch.retain_keys, "retainKeys"),
            (patch.replace, "replace"),
        ];
        let strategies: Vec<&str> = all
            .into_iter()
            .filter_map(|(given, name)| given.then_some(name))
            .collect();
        if !strategies.is_empty() {
            beside.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
        }
        if let Some(key) = &patch.merge_key {
            beside.insert("x-kubernetes-patch-merge-key".into(), (&**key).into());
        }
    }
    let kinds = match &node.list_type {
        ListType::Set => Some("set"),
        ListType::Map(keys) => {
            let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
            beside.insert("x-kubernetes-list-map-keys".into(), keys.into());
            Some("map")
        }
        // Bytes are a list, too, for upstream's markers.
        ListType::Atomic => {
            let list = node.ty == Type::Array || node.format == Some(Format::Byte);
            (list && node.explicit).then_some("atomic")
        }
    };
    if let Some(kind) = kinds {
        beside.insert("x-kubernetes-list-type".into(), kind.into());
    }
    if schema.additional().is_some() && node.atomic {
        beside.insert("x-kubernetes-map-type".into(), "atomic".into());
    } else if node.ty == Type::Object && node.explicit {
        let kind = if node.atomic { "atomic" } else { "granular" };
        beside.insert("x-kubernetes-map-type".into(), kind.into());
    }
    let plain = value(dialect, schema);
    match plain {
        Value::Object(mut map) if !map.contains_key("$ref") => {
            map.extend(beside);
            Value::Object(map)
        }
        reference if beside.is_empty() => reference,
        // OpenAPI v3 ignores what stands beside a reference.
        reference if dialect == Dialect::V3 => {
            beside.insert("allOf".into(), Value::Array(vec![reference]));
            Value::Object(beside)
        }
        Value::Object(map) => {
            beside.extend(map);
            Value::Object(beside)
        }
        other => other,
    }
}

/// A default that is declared, or the zero value that upstream's type always has.
fn default(field: &FieldDef, schema: SchemaRef<'_>) -> Option<Value> {
    if let Some(default) = &field.default {
        return Some((**default).clone());
    }
    let node = schema.node();
    if field.pointer {
        return None;
    }
    let structure = typed::is_struct(node) && node.type_name.is_some();
    if structure {
        return Some(json!({}));
    }
    if field.omit_empty || node.type_name.is_some() || node.format == Some(Format::Byte) {
        return None;
    }
    Some(match node.ty {
        Type::String => json!(""),
        Type::Integer | Type::Number => json!(0),
        Type::Boolean => json!(false),
        _ => return None,
    })
}

/// A type without what stands beside it.
fn value(dialect: Dialect, schema: SchemaRef<'_>) -> Value {
    let node = schema.node();
    if let Some(name) = &node.type_name {
        return dialect.reference(name);
    }
    let named = |name: &str, format: &str| json!({"type": name, "format": format});
    match (node.ty, &node.format) {
        (_, Some(Format::WrappedStrings)) => json!({"type": "array", "items": {"type": "string"}}),
        (_, Some(Format::Byte)) => named("string", "byte"),
        (_, Some(Format::Int32)) => named("integer", "int32"),
        (_, Some(Format::Int64)) => named("integer", "int64"),
        (_, Some(Format::Double)) => named("number", "double"),
        (Type::Array, _) => match schema.items() {
            Some(items) => json!({"type": "array", "items": value(dialect, items)}),
            None => json!({"type": "array"}),
        },
        (Type::Object, _) => match schema.additional() {
            Some(values) => json!({"type": "object", "additionalProperties": value(dialect, values)}),
            None => json!({"type": "object"}),
        },
        (Type::Boolean, _) => json!({"type": "boolean"}),
        (Type::Any, _) => json!({}),
        _ => json!({"type": "string"}),
    }
}

#[cfg(test)]
mod tests;
