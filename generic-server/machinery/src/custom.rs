//! Schema passes over custom resources: unknown fields pruned, nulls dropped, defaults put in,
//! metadata of whole objects brought into form. Mirrors `k8s.io/apiextensions-apiserver/pkg/apiserver/schema`.
//!
//! The order on decoding is [`coerce_metadata`], [`prune`], [`prune_nulls`], [`default`]; validation comes later.

use serde_json::{Map, Value};

use crate::codec::{DecodeError, too_large, typed, weight};
use crate::field::clip;
use crate::schema::{DefaultsGrowth, SchemaRef, builtin};
use crate::{FieldError, FieldPath, limits, steps};

/// Fields that every whole object has.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The path to what is being walked, as strict errors print it.
#[derive(Default)]
struct Trail {
    text: String,
    unknown: Unknown,
}

/// Paths of unknown fields. Each may be as long as its keys are, so that their bytes are bounded and not only their number.
#[derive(Default)]
struct Unknown {
    paths: Vec<String>,
    bytes: usize,
}

impl Unknown {
    fn add(&mut self, path: &impl std::fmt::Display) {
        if self.bytes < limits::MESSAGE_BYTES {
            let path = clip(limits::SHOWN_VALUE_BYTES, path);
            steps::count(path.len());
            self.bytes += path.len();
            self.paths.push(path);
        }
    }

    /// The first of them in order.
    fn finish(mut self) -> Vec<String> {
        self.paths.sort_unstable();
        self.paths.truncate(limits::STRICT_ERRORS);
        self.paths
    }
}

impl Trail {
    fn within<R>(&mut self, step: &Step<'_>, walk: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.text.len();
        match step {
            Step::Key(name) => {
                if length > 0 {
                    self.text.push('.');
                }
                self.text.push_str(name);
            }
            Step::Index(index) => {
                self.text.push('[');
                self.text.push_str(&index.to_string());
                self.text.push(']');
            }
        }
        let result = walk(self);
        self.text.truncate(length);
        result
    }

    fn record(&mut self, name: &str) {
        let Trail { text, unknown } = self;
        if text.is_empty() {
            unknown.add(&name);
        } else {
            unknown.add(&format_args!("{text}.{name}"));
        }
    }
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// Removes fields that the schema does not have; gives their paths, sorted, at most [`limits::STRICT_ERRORS`]. With `root`, the value is a whole object, whose
/// `apiVersion`, `kind` and `metadata` stay.
pub fn prune(schema: SchemaRef<'_>, value: &mut Value, root: bool) -> Vec<String> {
    let mut trail = Trail::default();
    prune_value(Some(schema), value, root, &mut trail);
    trail.unknown.finish()
}

fn prune_value(schema: Option<SchemaRef<'_>>, value: &mut Value, root: bool, trail: &mut Trail) {
    let Some(schema) = schema else {
        prune_all(value, trail);
        return;
    };
    let node = schema.node();
    let embedded = root || node.embedded;
    match value {
        Value::Object(map) => {
            let additional = schema.additional();
            map.retain(|name, value| {
                if embedded && META_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                match schema.field(name).map(|(_, inner)| inner).or(additional) {
                    Some(inner) => {
                        trail.within(&Step::Key(name), |trail| {
                            prune_value(Some(inner), value, false, trail);
                        });
                        true
                    }
                    None if node.preserve_unknown => true,
                    None => {
                        if !META_FIELDS.contains(&name.as_str()) || !trail.text.is_empty() {
                            trail.record(name);
                        }
                        false
                    }
                }
            });
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                trail.within(&Step::Index(index), |trail| match schema.items() {
                    // Below a list that preserves, the items do too.
                    Some(inner) if node.preserve_unknown => prune_preserving(inner, item, trail),
                    None if node.preserve_unknown => {}
                    inner => prune_value(inner, item, false, trail),
                });
            }
        }
        _ => {}
    }
}

/// As [`prune_value`], but unknown fields of this level stay.
fn prune_preserving(schema: SchemaRef<'_>, value: &mut Value, trail: &mut Trail) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if schema.node().embedded && META_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(inner) = schema.value_of(name) {
                    trail.within(&Step::Key(name), |trail| {
                        prune_value(Some(inner), value, false, trail);
                    });
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    trail.within(&Step::Index(index), |trail| prune_preserving(inner, item, trail));
                }
            }
        }
        _ => {}
    }
}

/// Where the schema says nothing, nothing is known.
fn prune_all(value: &mut Value, trail: &mut Trail) {
    match value {
        Value::Object(map) => {
            for name in map.keys() {
                trail.record(name);
            }
            map.clear();
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                trail.within(&Step::Index(index), |trail| prune_all(item, trail));
            }
        }
        _ => {}
    }
}

/// Removes nulls of fields that are not nullable and have no default (those with one are left to [`default`]).
pub fn prune_nulls(schema: SchemaRef<'_>, value: &mut Value) {
    drop_nulls(Some(schema), value);
}

fn drop_nulls(schema: Option<SchemaRef<'_>>, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(schema) = schema else {
                drop_nulls(None, value);
                return true;
            };
            let (inner, defaulted) = match schema.field(name) {
                Some((field, inner)) => (Some(inner), field.default.is_some()),
                None => {
                    let inner = schema.additional();
                    (inner, inner.is_some_and(|inner| element_default(inner).is_some()))
                }
            };
            if value.is_null() && inner.is_some_and(|inner| !inner.node().nullable) && !defaulted {
                return false;
            }
            drop_nulls(inner, value);
            true
        }),
        Value::Array(items) => {
            for item in items {
                drop_nulls(schema.and_then(SchemaRef::items), item);
            }
        }
        _ => {}
    }
}

fn element_default(schema: SchemaRef<'_>) -> Option<&Value> {
    schema
        .node()
        .rules
        .as_ref()
        .and_then(|rules| rules.default.as_ref())
}

/// Puts in defaults: for absent fields, and for nulls that are not nullable.
pub fn default(schema: SchemaRef<'_>, value: &mut Value) {
    // Without a bound nothing is refused.
    let _ = fill(schema, value, &mut |_| Ok(()));
}

/// The same of an object that a client sends: a small item of a list may get a default of any length.
///
/// # Errors
/// When the defaults take more memory than they may ([`limits::DEFAULTED_BYTES`]).
pub fn default_decoded(schema: SchemaRef<'_>, value: &mut Value) -> Result<(), DecodeError> {
    let mut made = 0;
    fill(schema, value, &mut |default| {
        made += weight(default);
        if made > limits::DEFAULTED_BYTES {
            return too_large(limits::DEFAULTED_BYTES);
        }
        Ok(())
    })
}

/// How far the defaults of a schema make its objects larger than they are sent.
pub fn growth_by_defaults(schema: SchemaRef<'_>) -> DefaultsGrowth {
    let mut each = 0;
    let once = added_by_defaults(schema, &mut each);
    DefaultsGrowth { once, each }
}

/// The memory that defaults may add to a value, outside of the items of its lists and maps; `each` becomes that of an item if it is more.
fn added_by_defaults(schema: SchemaRef<'_>, each: &mut usize) -> usize {
    let most = limits::DEFAULTED_BYTES;
    let mut added = 0_usize;
    for field in &schema.node().fields {
        let inner = schema.at(field.node);
        if let Some(default) = &field.default {
            // A default has its own defaults.
            let mut filled = (**default).clone();
            added += match default_decoded(inner, &mut filled) {
                Ok(()) => weight(&filled),
                Err(_) => most,
            };
        }
        added += added_by_defaults(inner, each);
        if added >= most {
            break;
        }
    }
    for item in schema.items().into_iter().chain(schema.additional()) {
        let mut default = Value::Array(vec![Value::Null]);
        let own = match default_decoded(schema, &mut default) {
            Ok(()) => weight(&default),
            Err(_) => most,
        };
        let added = added_by_defaults(item, each).max(own);
        *each = added.min(most).max(*each);
    }
    added.min(most)
}

/// A check that a default must pass before it is applied.
type Allow<'a> = dyn FnMut(&Value) -> Result<(), DecodeError> + 'a;

fn fill(schema: SchemaRef<'_>, value: &mut Value, allow: &mut Allow<'_>) -> Result<(), DecodeError> {
    match value {
        Value::Object(map) => {
            for field in &schema.node().fields {
                let Some(default) = &field.default else { continue };
                let nullable = schema.at(field.node).node().nullable;
                match map.get(&*field.name) {
                    None => {}
                    Some(Value::Null) if !nullable => {}
                    Some(_) => continue,
                }
                allow(default)?;
                map.insert(field.name.to_string(), (**default).clone());
            }
            for (name, value) in map {
                if let Some((_, inner)) = schema.field(name) {
                    fill(inner, value, allow)?;
                } else if let Some(inner) = schema.additional() {
                    fill_element(inner, value, allow)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for item in items {
                    fill_element(inner, item, allow)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn fill_element(schema: SchemaRef<'_>, value: &mut Value, allow: &mut Allow<'_>) -> Result<(), DecodeError> {
    if value.is_null()
        && !schema.node().nullable
        && let Some(default) = element_default(schema)
    {
        allow(default)?;
        *value = default.clone();
    }
    fill(schema, value, allow)
}

/// Brings `metadata` of whole objects (the root's with `root`, and of embedded resources) into the form of its type, and
/// checks that `apiVersion` and `kind` are strings. Gives the paths of unknown metadata fields, sorted, with the same bound.
///
/// # Errors
/// The first field of a wrong type. With `drop_invalid` such fields are dropped instead (objects that are read back).
pub fn coerce_metadata(
    schema: SchemaRef<'_>,
    value: &mut Value,
    root: bool,
    drop_invalid: bool,
) -> Result<Vec<String>, FieldError> {
    let mut unknown = Unknown::default();
    coerce(schema, value, root, drop_invalid, &FieldPath::ROOT, &mut unknown)?;
    Ok(unknown.finish())
}

fn coerce(
    schema: SchemaRef<'_>,
    value: &mut Value,
    root: bool,
    drop_invalid: bool,
    path: &FieldPath<'_>,
    unknown: &mut Unknown,
) -> Result<(), FieldError> {
    match value {
        Value::Object(map) => {
            if root || schema.node().embedded {
                coerce_object(map, drop_invalid, path, unknown)?;
            }
            for (name, value) in map {
                if let Some((_, inner)) = schema.field(name) {
                    coerce(inner, value, false, drop_invalid, &path.child(name), unknown)?;
                } else if let Some(inner) = schema.additional() {
                    coerce(inner, value, false, drop_invalid, &path.key(name), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce(inner, item, false, drop_invalid, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_object(
    map: &mut Map<String, Value>,
    drop_invalid: bool,
    path: &FieldPath<'_>,
    unknown: &mut Unknown,
) -> Result<(), FieldError> {
    for name in ["apiVersion", "kind"] {
        match map.get(name) {
            None | Some(Value::String(_)) => {}
            Some(_) if drop_invalid => {
                map.remove(name);
            }
            Some(wrong) => return Err(FieldError::invalid(&path.child(name), wrong, "must be a string")),
        }
    }
    let Some(metadata) = map.get("metadata") else {
        return Ok(());
    };
    let Some(schema) = builtin().by_type_name("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else {
        return Ok(());
    };
    let path = path.child("metadata");
    let mut note = |strict: Vec<crate::codec::StrictError>| {
        for error in strict {
            if let crate::codec::StrictError::Unknown(field) = error {
                unknown.add(&format_args!("{path}.{field}"));
            }
        }
    };
    let form = |value: Value| {
        if value.is_null() {
            Value::Object(Map::new())
        } else {
            value
        }
    };
    let decoded = match typed::decode_builtin(schema.root(), metadata.clone()) {
        Ok(decoded) => {
            note(decoded.strict);
            form(decoded.value)
        }
        Err(error) if !drop_invalid => {
            return Err(FieldError::invalid(&path, metadata, error.to_string()));
        }
        Err(_) => {
            let Value::Object(fields) = metadata else {
                return Ok(());
            };
            let mut kept = Map::new();
            for (name, value) in fields {
                let single = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
                if let Ok(decoded) = typed::decode_builtin(schema.root(), single)
                    && let Value::Object(field) = decoded.value
                {
                    note(decoded.strict);
                    kept.extend(field);
                }
            }
            Value::Object(kept)
        }
    };
    map.insert("metadata".into(), decoded);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;
    use crate::schema::crd::compile;

    fn schema(props: Value) -> Schema {
        compile(&props).unwrap()
    }

    fn root(schema: &Schema) -> SchemaRef<'_> {
        schema.at(schema.root.unwrap())
    }

    #[track_caller]
    fn prunes(props: Value, before: Value, after: Value, unknown: &[&str]) {
        let schema = schema(props);
        let mut value = before;
        assert_eq!(prune(root(&schema), &mut value, true), unknown);
        assert_eq!(value, after);
    }

    #[test]
    fn unknown_fields_are_pruned_and_reported() {
        prunes(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"o": {"type": "object", "properties": {"x": {"type": "string"}}},
                "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object"}}},
                "map": {"type": "object", "additionalProperties": true}}}}}),
            json!({"apiVersion": "v", "kind": "k", "metadata": {"x": 1}, "other": 1, "spec": {"bogus": 1, "o": {"x": "1", "y": 2}, "l": [{}, {"x": "1", "z": 3}],
                "free": {"any": {"thing": 1}, "known": {"no": 1}}, "map": {"a": {"b": 1}, "c": 2}}}),
            json!({"apiVersion": "v", "kind": "k", "metadata": {"x": 1}, "spec": {"o": {"x": "1"}, "l": [{}, {"x": "1"}],
                "free": {"any": {"thing": 1}, "known": {}}, "map": {"a": {}, "c": 2}}}),
            &[
                "other",
                "spec.bogus",
                "spec.free.known.no",
                "spec.l[1].z",
                "spec.map.a.b",
                "spec.o.y",
            ],
        );
        prunes(
            json!({"type": "object", "properties": {"e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                "f": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}),
            json!({"e": {"kind": "k", "spec": {"a": 1}}, "f": {"kind": "k", "metadata": {"name": "n"}, "spec": {"a": 1}, "x": 1}}),
            json!({"e": {"kind": "k", "spec": {"a": 1}}, "f": {"kind": "k", "metadata": {"name": "n"}, "spec": {}}}),
            &["f.spec.a", "f.x"],
        );
    }

    #[test]
    fn nulls_and_defaults() {
        let schema = schema(json!({"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string", "default": "B"}, "c": {"type": "string", "nullable": true, "default": "C"},
            "d": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 1}}},
            "l": {"type": "array", "items": {"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "integer", "default": 2}}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}}, "n": {"type": "array", "items": {"type": "string"}},
            "any": {"type": "object", "additionalProperties": true}}}));
        let mut value = json!({"a": null, "b": null, "c": null, "l": [null, {}], "m": {"k": null}, "n": [null], "any": {"k": null}});
        prune_nulls(root(&schema), &mut value);
        assert_eq!(
            value,
            json!({"b": null, "c": null, "l": [null, {}], "m": {}, "n": [null], "any": {"k": null}})
        );
        default(root(&schema), &mut value);
        assert_eq!(
            value,
            json!({"b": "B", "c": null, "d": {"e": 1}, "l": [{"x": 1, "y": 2}, {"y": 2}], "m": {}, "n": [null], "any": {"k": null}})
        );
    }

    #[test]
    fn metadata_is_brought_into_form() {
        let schema = schema(
            json!({"type": "object", "properties": {"t": {"type": "object", "x-kubernetes-embedded-resource": true}}}),
        );
        let object = json!({"metadata": {"name": "a", "lbl": 1, "creationTimestamp": null, "labels": {}},
            "t": {"kind": "K", "metadata": {"nope": 1, "name": "b"}}});
        let mut value = object.clone();
        let unknown = coerce_metadata(root(&schema), &mut value, true, false).unwrap();
        assert_eq!(unknown, ["metadata.lbl", "t.metadata.nope"]);
        assert_eq!(
            value,
            json!({"metadata": {"name": "a"}, "t": {"kind": "K", "metadata": {"name": "b"}}})
        );
        let mut wrong = json!({"kind": 1, "metadata": {"name": "a", "labels": {"a": 1}}});
        assert_eq!(
            coerce_metadata(root(&schema), &mut wrong.clone(), true, false)
                .unwrap_err()
                .to_string(),
            "kind: Invalid value: 1: must be a string"
        );
        coerce_metadata(root(&schema), &mut wrong, true, true).unwrap();
        assert_eq!(wrong, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn defaults_of_a_body_are_bounded() {
        let text = "x".repeat(1 << 20);
        let schema = schema(json!({"type": "array", "items": {"type": "object",
            "properties": {"a": {"type": "string", "default": text}}}}));
        let filled = |items: usize| {
            let mut value = Value::Array(vec![json!({}); items]);
            default_decoded(root(&schema), &mut value).map(|()| value[items - 1]["a"].as_str().map(str::len))
        };
        let most = limits::DEFAULTED_BYTES / (text.len() + size_of::<Value>());
        assert_eq!(filled(most), Ok(Some(text.len())));
        assert!(filled(most + 1).is_err());
    }

    #[test]
    fn what_defaults_may_add_is_known_before() {
        #[track_caller]
        fn check(props: Value, bytes: usize, at_least: usize, below: usize) {
            let added = growth_by_defaults(root(&schema(props))).of_body(bytes);
            assert!((at_least..below).contains(&added), "{added}");
        }
        let text = |bytes: usize| json!({"type": "string", "default": "x".repeat(bytes)});
        let object = |properties: Value| json!({"type": "object", "properties": properties});
        let list = |items: Value| json!({"type": "array", "items": items});
        check(object(json!({"a": {"type": "string"}})), 3_000, 0, 1);
        check(object(json!({"a": text(10_000)})), 3_000_000, 10_000, 11_000);
        // As much as a list of empty objects takes anyway.
        check(list(object(json!({"a": text(100)}))), 3_000, 0, 1);
        check(
            list(object(json!({"a": text(1_000)}))),
            3_000,
            1_000_000,
            1_100_000,
        );
        check(
            object(
                json!({"m": {"type": "object", "additionalProperties": list(object(json!({"a": text(1_000)})))}}),
            ),
            3_000,
            1_000_000,
            1_100_000,
        );
        // Nulls are replaced, and defaults have defaults.
        let mut item = text(1_000);
        check(list(item.take()), 3_000, 1_000_000, 1_100_000);
        let nested = json!({"type": "object", "default": {}, "properties": {"b": text(1_000)}});
        check(list(object(json!({"a": nested}))), 3_000, 1_000_000, 3_000_000);
        check(
            list(object(json!({"a": text(100_000)}))),
            3_000_000,
            limits::DEFAULTED_BYTES,
            limits::DEFAULTED_BYTES + 1,
        );
    }

    #[test]
    fn paths_of_unknown_fields_are_bounded() {
        let schema = schema(json!({"type": "object", "properties": {"m": {"type": "object",
            "additionalProperties": {"type": "object", "properties": {"known": {"type": "string"}}}}}}));
        let pruned = |key: &str, fields: usize| {
            let fields: Map<String, Value> = (0..fields).map(|n| (format!("x{n:05}"), json!(1))).collect();
            let mut value = json!({"m": {key: fields}});
            let unknown = prune(root(&schema), &mut value, true);
            assert_eq!(value, json!({"m": {key: {}}}));
            unknown
        };
        assert_eq!(pruned("k", limits::STRICT_ERRORS).len(), limits::STRICT_ERRORS);
        let cut = pruned("k", limits::STRICT_ERRORS + 1);
        assert_eq!(
            (cut.len(), cut[99].as_str()),
            (limits::STRICT_ERRORS, "m.k.x00099")
        );
        let long = "k".repeat(1 << 17);
        for fields in [1_000, 2_000] {
            let steps = crate::steps::of(|| pruned(&long, fields));
            assert!(steps < 2 * limits::MESSAGE_BYTES, "{steps}");
        }
    }
}
