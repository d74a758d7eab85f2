//! Reading a `JSONSchemaProps` from its JSON, as Go's typed fields would hold it.
//!
//! A [`Props`] is a borrowed view; absent, null and zero values read alike, as they do once upstream has decoded them.

use serde_json::{Map, Value};

/// How `additionalProperties` is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Additional<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A schema.
    Schema(Props<'a>),
}

/// How `items` is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Items<'a> {
    /// One schema for all.
    Schema(Props<'a>),
    /// A schema per position: never structural.
    List(&'a [Value]),
}

static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// One schema node, as JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Props<'a>(&'a Map<String, Value>);

impl<'a> Props<'a> {
    /// The node; anything but an object reads as the empty schema (decoding has refused it before).
    pub(crate) fn new(value: &'a Value) -> Props<'a> {
        Props(value.as_object().unwrap_or(&EMPTY))
    }

    /// A key's value, null read as absent.
    pub(crate) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|v| !v.is_null())
    }

    /// The object itself.
    pub(crate) fn map(self) -> &'a Map<String, Value> {
        self.0
    }

    pub(crate) fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    /// `type`, empty when absent.
    pub(crate) fn ty(self) -> &'a str {
        self.text("type")
    }

    /// A list of schemas (`allOf`, `anyOf`, `oneOf`) or of anything else.
    pub(crate) fn list(self, key: &str) -> &'a [Value] {
        self.get(key)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// A list of strings (`required`, `x-kubernetes-list-map-keys`).
    pub(crate) fn strings(self, key: &str) -> impl Iterator<Item = &'a str> {
        self.list(key).iter().filter_map(Value::as_str)
    }

    /// A map of schemas (`properties`, `definitions`), sorted by name.
    pub(crate) fn schemas(self, key: &str) -> impl Iterator<Item = (&'a str, Props<'a>)> {
        let map = self.get(key).and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .map(|(k, v)| (k.as_str(), Props::new(v)))
    }

    /// A nested schema (`not`).
    pub(crate) fn schema(self, key: &str) -> Option<Props<'a>> {
        self.get(key).map(Props::new)
    }

    /// One property's schema.
    pub(crate) fn property(self, name: &str) -> Option<Props<'a>> {
        self.get("properties")?.get(name).map(Props::new)
    }

    /// `items`.
    pub(crate) fn items(self) -> Option<Items<'a>> {
        Some(match self.get("items")? {
            Value::Array(list) => Items::List(list),
            other => Items::Schema(Props::new(other)),
        })
    }

    /// `items`, when it is a schema.
    pub(crate) fn item(self) -> Option<Props<'a>> {
        match self.items()? {
            Items::Schema(schema) => Some(schema),
            Items::List(_) => None,
        }
    }

    /// `additionalProperties`.
    pub(crate) fn additional(self) -> Option<Additional<'a>> {
        Some(match self.get("additionalProperties")? {
            Value::Bool(allowed) => Additional::Bool(*allowed),
            other => Additional::Schema(Props::new(other)),
        })
    }

    /// `additionalProperties`, when it is a schema.
    pub(crate) fn additional_schema(self) -> Option<Props<'a>> {
        match self.additional()? {
            Additional::Schema(schema) => Some(schema),
            Additional::Bool(_) => None,
        }
    }

    pub(crate) fn int_or_string(self) -> bool {
        self.flag("x-kubernetes-int-or-string")
    }

    pub(crate) fn embedded(self) -> bool {
        self.flag("x-kubernetes-embedded-resource")
    }

    pub(crate) fn preserve_unknown(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }

    pub(crate) fn list_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-list-type").and_then(Value::as_str)
    }

    pub(crate) fn map_type(self) -> Option<&'a str> {
        self.get("x-kubernetes-map-type").and_then(Value::as_str)
    }

    /// Whether this node or one below satisfies `test`.
    pub(crate) fn any(self, test: &mut dyn FnMut(Props<'a>) -> bool) -> bool {
        if test(self) {
            return true;
        }
        let mut children: Vec<Props<'a>> = Vec::new();
        self.children(&mut children);
        children.into_iter().any(|child| child.any(test))
    }

    fn children(self, out: &mut Vec<Props<'a>>) {
        match self.items() {
            Some(Items::Schema(schema)) => out.push(schema),
            Some(Items::List(list)) => out.extend(list.iter().map(Props::new)),
            None => {}
        }
        for junctor in ["allOf", "anyOf", "oneOf"] {
            out.extend(self.list(junctor).iter().map(Props::new));
        }
        out.extend(self.schema("not"));
        for map in ["properties", "patternProperties", "definitions"] {
            out.extend(self.schemas(map).map(|(_, s)| s));
        }
        out.extend(self.additional_schema());
        out.extend(
            self.get("additionalItems")
                .filter(|v| v.is_object())
                .map(Props::new),
        );
        let dependencies = self.get("dependencies").and_then(Value::as_object);
        let schemas = dependencies
            .into_iter()
            .flatten()
            .map(|(_, v)| v)
            .filter(|v| v.is_object());
        out.extend(schemas.map(Props::new));
    }
}

/// Why a schema cannot even be read as a structural one; upstream's `NewStructural` errors.
pub(crate) fn unsupported(schema: Props<'_>) -> Option<String> {
    let mut found = None;
    schema.any(&mut |node| {
        found = unsupported_here(node);
        found.is_some()
    });
    found
}

fn unsupported_here(node: Props<'_>) -> Option<String> {
    let filled = |key: &str| match node.get(key) {
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) | None => false,
    };
    for (key, name) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
    ] {
        if filled(key) {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if node.get("additionalItems").is_some() {
        return Some("OpenAPIV3Schema 'additionalItems' is not supported".into());
    }
    if filled("definitions") {
        return Some("OpenAPIV3Schema 'definitions' is not supported".into());
    }
    if let Some(Items::List(list)) = node.items()
        && !list.is_empty()
    {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".into());
    }
    if node.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".into(),
        );
    }
    None
}
