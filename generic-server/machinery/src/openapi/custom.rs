//! The schemas of custom resources as they are published. Mirrors `apiextensions-apiserver/pkg/controller/openapi`.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::{Descriptions, Dialect, META};

/// The descriptions of the type fields of an embedded resource.
const EMBEDDED: [(&str, &str); 2] = [
    (
        "apiVersion",
        "apiVersion defines the versioned schema of this representation of an object. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    ),
    (
        "kind",
        "kind is a string value representing the type of this object. In CamelCase. More info: \
         https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    ),
];

/// A version of a custom resource.
#[derive(Debug, Clone, Copy)]
pub struct CustomKind<'a> {
    /// Its group.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its kind.
    pub kind: &'a str,
    /// The kind of its list.
    pub list_kind: &'a str,
    /// Its plural name.
    pub plural: &'a str,
    /// The CRD's `preserveUnknownFields`.
    pub preserve_unknown: bool,
    /// Paths of `selectableFields`.
    pub selectable: &'a [&'a str],
}

impl CustomKind<'_> {
    /// The name of the type of a kind of this group and version: `com.example.v1.Foo`.
    pub fn model_name(&self, kind: &str) -> String {
        let mut parts: Vec<&str> = self.group.split('.').rev().collect();
        parts.extend([self.version, kind]);
        parts.join(".")
    }
}

/// The descriptions of the type and metadata fields of every object.
#[derive(Debug, Default)]
struct CommonTexts {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<String>,
}

impl CommonTexts {
    /// Kept: all texts are unpacked once for these three.
    fn get() -> &'static CommonTexts {
        static TEXTS: OnceLock<CommonTexts> = OnceLock::new();
        TEXTS.get_or_init(|| {
            let texts = Descriptions::unpack();
            let of = |field: &str| texts.of_field("io.k8s.api.core.v1.Pod", field).map(str::to_owned);
            CommonTexts {
                api_version: of("apiVersion"),
                kind: of("kind"),
                metadata: of("metadata"),
            }
        })
    }
}

/// The definitions of a custom resource and of its list, by name. `schema` is the `openAPIV3Schema` as stored; `None` where
/// there is none or it is not structural. Built-in types that they refer to (metadata) are not among them.
pub fn custom_definitions(
    dialect: Dialect,
    custom: &CustomKind<'_>,
    schema: Option<Value>,
) -> Map<String, Value> {
    let texts = CommonTexts::get();
    let name = custom.model_name(custom.kind);
    let mut list = json!({
        "description": format!("{} is a list of {}", custom.list_kind, custom.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", custom.plural),
                "type": "array",
                "items": dialect.reference(&name),
            },
            "metadata": described_reference(dialect, "ListMeta", Some("Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds")),
        },
    });
    type_meta(&mut list, texts);
    mark(&mut list, custom, custom.list_kind);

    let mut object = match schema {
        None => json!({"type": "object"}),
        Some(schema)
            if dialect == Dialect::V2
                && (custom.preserve_unknown || flag(&schema, "x-kubernetes-preserve-unknown-fields")) =>
        {
            // `kubectl` refuses what it does not find in a schema with properties.
            json!({"type": "object"})
        }
        Some(mut schema) => {
            rewrite(dialect, &mut schema, texts);
            let text = texts.metadata.as_deref();
            schema["properties"]["metadata"] = described_reference(dialect, "ObjectMeta", text);
            type_meta(&mut schema, texts);
            schema
        }
    };
    mark(&mut object, custom, custom.kind);
    Map::from_iter([(name, object), (custom.model_name(custom.list_kind), list)])
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn described_reference(dialect: Dialect, meta: &str, text: Option<&str>) -> Value {
    let reference = dialect.reference(&format!("{META}.{meta}"));
    match (dialect, text) {
        (_, None) => reference,
        (Dialect::V3, Some(text)) => json!({"allOf": [reference], "description": text}),
        (Dialect::V2, Some(text)) => json!({"$ref": reference["$ref"], "description": text}),
    }
}

fn type_meta(schema: &mut Value, texts: &CommonTexts) {
    for (name, text) in [("apiVersion", &texts.api_version), ("kind", &texts.kind)] {
        let mut property = json!({"type": "string"});
        if let Some(text) = text {
            property["description"] = text.as_str().into();
        }
        schema["properties"][name] = property;
    }
}

fn mark(schema: &mut Value, custom: &CustomKind<'_>, kind: &str) {
    schema["x-kubernetes-group-version-kind"] =
        json!([{"group": custom.group, "kind": kind, "version": custom.version}]);
    if !custom.selectable.is_empty() {
        let fields: Vec<Value> = custom
            .selectable
            .iter()
            .map(|path| json!({ "fieldPath": path.trim_start_matches('.') }))
            .collect();
        schema["x-kubernetes-selectable-fields"] = Value::Array(fields);
    }
}

/// Brings a stored schema into what the document may say. Recursion is bounded by the decoder that let the schema in.
fn rewrite(dialect: Dialect, schema: &mut Value, texts: &CommonTexts) {
    let Value::Object(map) = schema else { return };
    let int_or_string = map.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    match dialect {
        Dialect::V2 => simplify(map),
        Dialect::V3 if int_or_string => unfold(map),
        Dialect::V3 => {}
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for property in properties.values_mut() {
            rewrite(dialect, property, texts);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            rewrite(dialect, inner, texts);
        }
    }
    let preserves = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let embedded = map.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    if embedded && !(preserves && dialect == Dialect::V2) {
        let text = texts.metadata.as_deref();
        schema["properties"]["metadata"] = described_reference(dialect, "ObjectMeta", text);
        for (name, text) in EMBEDDED {
            schema["properties"][name] = json!({"type": "string", "description": text});
        }
        let mut required = schema["required"].as_array().cloned().unwrap_or_default();
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
        schema["required"] = Value::Array(required);
    }
}

/// Removes keywords that OpenAPI v2, and `kubectl` with it, does not support.
fn simplify(map: &mut Map<String, Value>) {
    for key in ["allOf", "anyOf", "oneOf", "not", "default"] {
        map.remove(key);
    }
    if map.remove("nullable") == Some(Value::Bool(true)) {
        for key in ["type", "items", "properties"] {
            map.remove(key);
        }
    }
    let preserves = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if preserves {
        map.remove("items");
        map.remove("properties");
    }
    let ty = map.get("type").and_then(Value::as_str).unwrap_or_default();
    if (ty == "array" && !map.contains_key("items")) || (ty == "object" && preserves) {
        map.remove("type");
    }
    let nullable: Vec<String> = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| flag(property, "nullable"))
        .map(|(name, _)| name.clone())
        .collect();
    if map
        .get("additionalProperties")
        .is_some_and(|values| flag(values, "nullable"))
    {
        map.remove("required");
    }
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|name| !nullable.iter().any(|n| name == n));
        if required.is_empty() {
            map.remove("required");
        }
    }
}

/// Spells out what `x-kubernetes-int-or-string` means, unless the schema does.
fn unfold(map: &mut Map<String, Value>) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    if map.get("anyOf") == Some(&either) || map.get("allOf").is_some_and(|all| all[0]["anyOf"] == either) {
        return;
    }
    if map.contains_key("anyOf") {
        let mut all = vec![json!({ "anyOf": either })];
        if let Some(Value::Array(rest)) = map.remove("allOf") {
            all.extend(rest);
        }
        map.insert("allOf".into(), Value::Array(all));
    } else {
        map.insert("anyOf".into(), either);
    }
}
