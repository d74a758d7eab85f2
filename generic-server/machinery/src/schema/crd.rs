//! Compiles the `openAPIV3Schema` of a custom resource's version into an arena.
//!
//! Only the parts that validate and shape objects are kept; descriptions and examples stay in the stored definition, from
//! which OpenAPI is published. Plain leaves are shared and names are interned, so that an arena is about twice the size of
//! its source text. Whether a schema is structural is the CRD's validation to say; this compiles any that it would let
//! pass.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::{
    DefaultsGrowth, FieldDef, Format, ListType, Node, NodeId, Pattern, Rules, Schema, Type, formats, pattern,
};
use crate::{FieldError, FieldPath, limits};

/// Compiles a schema (`JSONSchemaProps`, decoded by its type).
///
/// # Errors
/// Patterns that are none, and what no structural schema has (`items` by position, deeper nesting than objects may have).
pub fn compile(props: &Value) -> Result<Schema, Vec<FieldError>> {
    Compiler::default().compile(props)
}

/// The same, as upstream judges defaults by it: `x-kubernetes-int-or-string` is of any type there.
///
/// # Errors
/// As [`compile`].
pub fn compile_for_defaults(props: &Value) -> Result<Schema, Vec<FieldError>> {
    let compiler = Compiler {
        int_or_string_is_any: true,
        ..Compiler::default()
    };
    compiler.compile(props)
}

/// Where a node stands: properties keep their default in the field.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Property,
    Element,
}

#[derive(Default)]
struct Compiler {
    nodes: Vec<Node>,
    names: HashMap<String, Arc<str>>,
    /// Leaves that say nothing but their type.
    leaves: HashMap<(u8, bool, bool, String), NodeId>,
    errors: Vec<FieldError>,
    int_or_string_is_any: bool,
}

fn text<'a>(props: &'a Value, key: &str) -> &'a str {
    props.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(props: &Value, key: &str) -> bool {
    props.get(key) == Some(&Value::Bool(true))
}

fn count(props: &Value, key: &str) -> Option<u64> {
    let value = props.get(key)?;
    value.as_u64().or_else(|| value.as_i64().map(|_| 0))
}

fn number(props: &Value, key: &str) -> Option<Number> {
    match props.get(key) {
        Some(Value::Number(number)) => Some(number.clone()),
        _ => None,
    }
}

fn list<'a>(props: &'a Value, key: &str) -> &'a [Value] {
    props
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

impl Compiler {
    fn compile(mut self, props: &Value) -> Result<Schema, Vec<FieldError>> {
        let path = FieldPath::ROOT;
        let root = self.node(props, &path, 0, Place::Property);
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.nodes.shrink_to_fit();
        Ok(Schema {
            nodes: self.nodes,
            root: Some(root),
            defaults: DefaultsGrowth::default(),
        })
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let interned: Arc<str> = Arc::from(name);
        self.names.insert(name.to_owned(), interned.clone());
        interned
    }

    fn add(&mut self, node: Node) -> NodeId {
        // A document that is 2^32 nodes long does not get this far.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    fn node(&mut self, props: &Value, path: &FieldPath<'_>, depth: usize, place: Place) -> NodeId {
        if depth > limits::DEPTH {
            self.errors
                .push(FieldError::forbidden(path, "schema is nested too deeply"));
            return self.add(Node::default());
        }
        let mut node = Node {
            ty: match ty(props) {
                Type::IntOrString if self.int_or_string_is_any => Type::Any,
                ty => ty,
            },
            nullable: flag(props, "nullable"),
            preserve_unknown: flag(props, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(props, "x-kubernetes-embedded-resource"),
            atomic: text(props, "x-kubernetes-map-type") == "atomic",
            ..Node::default()
        };
        node.format = self.format(props, node.ty);
        node.list_type = self.list_type(props);
        let rules = self.rules(props, path, depth, place);
        let required = rules.as_ref().map_or(&[][..], |rules| rules.required.as_slice());
        let required: Vec<Arc<str>> = required.to_vec();
        node.rules = rules.map(Box::new);

        if let Some(properties) = props.get("properties").and_then(Value::as_object) {
            node.fields = self.fields(properties, &required, &path.child("properties"), depth);
        }
        match props.get("additionalProperties") {
            // Nothing is known of the values: nulls stay.
            Some(Value::Bool(true)) => {
                let anything = Node {
                    nullable: true,
                    ..Node::default()
                };
                node.additional = Some(self.leaf(anything, ""));
            }
            Some(Value::Bool(false)) => {
                node.rules.get_or_insert_default().deny_additional = true;
            }
            Some(schema @ Value::Object(_)) => {
                let path = path.child("additionalProperties");
                node.additional = Some(self.node(schema, &path, depth + 1, Place::Element));
            }
            _ => {}
        }
        match props.get("items") {
            Some(schema @ Value::Object(_)) => {
                node.items = Some(self.node(schema, &path.child("items"), depth + 1, Place::Element));
            }
            Some(Value::Array(_)) => self.errors.push(FieldError::forbidden(
                &path.child("items"),
                "items must be a schema object and not an array",
            )),
            _ => {}
        }

        let plain = node.rules.is_none()
            && node.fields.is_empty()
            && node.additional.is_none()
            && node.items.is_none()
            && !node.embedded
            && !node.atomic
            && node.list_type == ListType::Atomic;
        if plain {
            let format = text(props, "format").to_owned();
            return self.leaf(node, &format);
        }
        self.add(node)
    }

    fn leaf(&mut self, node: Node, format: &str) -> NodeId {
        let key = (
            node.ty as u8,
            node.nullable,
            node.preserve_unknown,
            format.to_owned(),
        );
        if let Some(id) = self.leaves.get(&key) {
            return *id;
        }
        let id = self.add(node);
        self.leaves.insert(key, id);
        id
    }

    fn fields(
        &mut self,
        properties: &Map<String, Value>,
        required: &[Arc<str>],
        path: &FieldPath<'_>,
        depth: usize,
    ) -> Box<[FieldDef]> {
        let required: HashSet<&str> = required.iter().map(|name| &**name).collect();
        // The map is sorted by name, which is the order that look-ups need.
        properties
            .iter()
            .map(|(name, props)| FieldDef {
                name: self.name(name),
                node: self.node(props, &path.key(name), depth + 1, Place::Property),
                required: required.contains(name.as_str()),
                omit_empty: true,
                pointer: true,
                default: props
                    .get("default")
                    .filter(|d| !d.is_null())
                    .cloned()
                    .map(Box::new),
                patch: None,
                number: None,
                via: [0; 2],
            })
            .collect()
    }

    fn format(&mut self, props: &Value, ty: Type) -> Option<Format> {
        let format = text(props, "format");
        match (ty, format) {
            (_, "") => None,
            (Type::Integer, "int32") => Some(Format::Int32),
            (Type::Integer, "int64") => Some(Format::Int64),
            (Type::Number, "double") => Some(Format::Double),
            (Type::Number, "float") => Some(Format::Other(self.name("float"))),
            (Type::String | Type::Any | Type::IntOrString, other) if formats::find(other).is_some() => {
                Some(Format::Other(self.name(other)))
            }
            (Type::String, _) => Some(Format::Unknown),
            _ => None,
        }
    }

    fn list_type(&mut self, props: &Value) -> ListType {
        match text(props, "x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => ListType::Map(
                list(props, "x-kubernetes-list-map-keys")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|key| self.name(key))
                    .collect(),
            ),
            _ => ListType::Atomic,
        }
    }

    fn rules(&mut self, props: &Value, path: &FieldPath<'_>, depth: usize, place: Place) -> Option<Rules> {
        let mut rules = Rules::default();
        let mut any = false;
        let map = props.as_object()?;
        for (key, value) in map {
            match key.as_str() {
                "enum" if !list(props, "enum").is_empty() => {
                    let allowed = list(props, "enum");
                    rules.enumerated_texts = enumerated_texts(allowed);
                    rules.enumeration = Some(allowed.into());
                }
                "pattern" if value.as_str().is_some_and(|p| !p.is_empty()) => {
                    rules.pattern = self.pattern(text(props, "pattern"), path);
                }
                "minLength" | "maxLength" => {
                    rules.length = (count(props, "minLength"), count(props, "maxLength"));
                }
                "minItems" | "maxItems" => {
                    rules.items = (count(props, "minItems"), count(props, "maxItems"));
                }
                "minProperties" | "maxProperties" => {
                    rules.properties = (count(props, "minProperties"), count(props, "maxProperties"));
                }
                "minimum" => {
                    rules.minimum = number(props, key).map(|n| (n, flag(props, "exclusiveMinimum")));
                }
                "maximum" => {
                    rules.maximum = number(props, key).map(|n| (n, flag(props, "exclusiveMaximum")));
                }
                "multipleOf" => rules.multiple_of = number(props, key),
                "uniqueItems" if flag(props, key) => rules.unique_items = true,
                "allOf" => rules.all_of = self.branches(props, "allOf", path, depth),
                "anyOf" => rules.any_of = self.branches(props, "anyOf", path, depth),
                "oneOf" => rules.one_of = self.branches(props, "oneOf", path, depth),
                "not" => rules.not = Some(self.node(value, &path.child("not"), depth + 1, Place::Element)),
                "x-kubernetes-validations" => rules.validations = list(props, key).to_vec(),
                "required" => {
                    rules.required = list(props, key)
                        .iter()
                        .filter_map(Value::as_str)
                        .map(|name| self.name(name))
                        .collect();
                }
                "default" if place == Place::Element && !value.is_null() => {
                    rules.default = Some(value.clone());
                }
                _ => continue,
            }
            any = true;
        }
        any.then_some(rules)
    }

    fn pattern(&mut self, text: &str, path: &FieldPath<'_>) -> Option<Pattern> {
        if let Err(error) = pattern::check(text) {
            self.errors.push(FieldError::invalid_str(
                &path.child("pattern"),
                text,
                format!("must be a valid regular expression, but isn't: {error}"),
            ));
            return None;
        }
        Some(Pattern::new(text))
    }

    fn branches(&mut self, props: &Value, key: &str, path: &FieldPath<'_>, depth: usize) -> Vec<NodeId> {
        let path = path.child(key);
        list(props, key)
            .iter()
            .enumerate()
            .map(|(index, schema)| self.node(schema, &path.index(index), depth + 1, Place::Element))
            .collect()
    }
}

/// Values of an enumeration that are searched one by one.
const SEARCHED_VALUES: usize = 16;

fn enumerated_texts(allowed: &[Value]) -> Box<[u32]> {
    if allowed.len() <= SEARCHED_VALUES {
        return Box::default();
    }
    let texts = (0..).zip(allowed).filter(|(_, value)| value.is_string());
    let mut texts: Vec<(u32, Option<&str>)> = texts.map(|(at, value)| (at, value.as_str())).collect();
    texts.sort_by_key(|(_, text)| *text);
    texts.into_iter().map(|(at, _)| at).collect()
}

fn ty(props: &Value) -> Type {
    if flag(props, "x-kubernetes-int-or-string") {
        return Type::IntOrString;
    }
    match text(props, "type") {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_compiled_without_its_texts() {
        let schema = compile(&json!({"type": "object", "description": "d", "properties": {
            "b": {"type": "string", "default": "x"}, "a": {"type": "string", "title": "t"},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}}}}}}))
        .unwrap();
        let root = schema.at(schema.root.unwrap());
        assert_eq!(root.field("b").unwrap().0.default.as_deref(), Some(&json!("x")));
        let list = root.field("l").unwrap().1;
        assert_eq!(list.node().list_type, ListType::Map(["k".into()].into()));
        assert!(list.items().unwrap().field("k").unwrap().0.required);
        // The plain strings are one node.
        assert_eq!(schema.nodes.len(), 4);
    }

    #[test]
    fn schema_errors_carry_their_path() {
        let errors =
            compile(&json!({"properties": {"a": {"pattern": "("}, "b": {"items": [{}]}}})).unwrap_err();
        assert!(errors[0].to_string().starts_with(
            "properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: "
        ));
        assert_eq!(errors[1].field, "properties[b].items");
        let mut deep = json!({});
        for _ in 0..240 {
            deep = json!({ "not": deep });
        }
        assert!(compile(&deep).is_ok());
        for _ in 0..20 {
            deep = json!({ "not": deep });
        }
        assert!(compile(&deep).is_err());
    }
}
