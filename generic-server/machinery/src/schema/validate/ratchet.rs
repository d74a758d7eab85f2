//! Which old value a value is to be compared with, and whether it is as it was. Mirrors
//! `k8s.io/apiserver/pkg/cel/common.CorrelatedObject`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::{ListType, SchemaRef, Type};
use crate::steps;

/// A value, its old self and the schema that says how they are matched: the structure's own, also inside junctors.
#[derive(Debug, Clone, Copy)]
pub struct Correlated<'a> {
    schema: SchemaRef<'a>,
    value: &'a Value,
    old: &'a Value,
}

impl<'a> Correlated<'a> {
    /// Of two whole objects.
    pub fn new(schema: SchemaRef<'a>, value: &'a Value, old: &'a Value) -> Self {
        Correlated { schema, value, old }
    }

    /// Whether nothing changed, as far as the schema knows: an object with a key that it does not declare counts as changed, a list of type map
    /// may have its items in another order.
    pub fn unchanged(self) -> bool {
        steps::count(1);
        match (self.value, self.old) {
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.key(name).is_some_and(Correlated::unchanged))
            }
            (Value::Array(new), Value::Array(old)) => {
                new.len() == old.len()
                    && match self.items() {
                        Some(items) => new
                            .iter()
                            .all(|item| items.of(item).is_some_and(Correlated::unchanged)),
                        None => new == old,
                    }
            }
            (value, old) => value == old,
        }
    }

    /// The pair under a name.
    pub fn key(self, name: &str) -> Option<Self> {
        let schema = match self.schema.field(name) {
            Some((_, schema)) => schema,
            // `additionalProperties: true` says nothing of the values.
            None => self
                .schema
                .additional()
                .filter(|values| values.node().ty != Type::Any || values.node().preserve_unknown)?,
        };
        Some(Correlated {
            schema,
            value: self.value.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
        })
    }

    /// The old items of a list; only those of lists of type map are matched.
    pub fn items(self) -> Option<OldItems<'a>> {
        let ListType::Map(keys) = &self.schema.node().list_type else {
            return None;
        };
        let mut items = OldItems {
            schema: self.schema.items()?,
            keys,
            by_key: HashMap::new(),
        };
        for old in self.old.as_array()? {
            steps::count(1);
            if let Some(key) = items.key(old) {
                items.by_key.entry(key).or_insert(old);
            }
        }
        Some(items)
    }
}

/// The items of an old list by the values of their keys; the first of equal ones counts.
#[derive(Debug)]
pub struct OldItems<'a> {
    schema: SchemaRef<'a>,
    keys: &'a [Arc<str>],
    by_key: HashMap<Vec<&'a Value>, &'a Value>,
}

impl<'a> OldItems<'a> {
    /// The keys of an item; one that lacks a key has no identity.
    fn key(&self, item: &'a Value) -> Option<Vec<&'a Value>> {
        let item = item.as_object()?;
        let key = |key: &'a Arc<str>| item.get(&**key).filter(|value| is_scalar(value));
        self.keys.iter().map(key).collect()
    }

    /// An item with its old self.
    pub fn of(&self, value: &'a Value) -> Option<Correlated<'a>> {
        Some(Correlated {
            schema: self.schema,
            value,
            old: self.by_key.get(&self.key(value)?)?,
        })
    }
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::crd::compile;

    #[track_caller]
    fn check(schema: Value, new: Value, old: Value, expected: bool) {
        let schema = compile(&schema).expect("a schema");
        let root = schema.at(schema.root.expect("a root"));
        assert_eq!(Correlated::new(root, &new, &old).unchanged(), expected);
    }

    #[test]
    fn what_the_schema_does_not_declare_counts_as_changed() {
        let text = json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true});
        check(text.clone(), json!({"a": "x"}), json!({"a": "x"}), true);
        check(text.clone(), json!({"a": "x"}), json!({"a": "y"}), false);
        check(text, json!({"a": "x", "b": 1}), json!({"a": "x", "b": 1}), false);
        let any = json!({"type": "object", "additionalProperties": true});
        check(any.clone(), json!({"a": "x"}), json!({"a": "x"}), false);
        check(any, json!({}), json!({}), true);
        let kept =
            json!({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": true}});
        check(kept, json!({"a": "x"}), json!({"a": "x"}), true);
        check(json!({"type": "number"}), json!(1.0), json!(1), false);
    }

    #[test]
    fn items_of_maps_may_be_in_any_order() {
        let item =
            json!({"type": "object", "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}});
        let list = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
        let (a, b) = (json!({"k": "a", "n": 1}), json!({"k": "b", "n": 2}));
        check(list.clone(), json!([a, b]), json!([b, a]), true);
        check(list.clone(), json!([a, {"k": "b"}]), json!([b, a]), false);
        check(list, json!([{"n": 1}]), json!([{"n": 1}]), false);
        let plain = json!({"type": "array", "items": item});
        check(plain.clone(), json!([a, b]), json!([b, a]), false);
        check(plain, json!([a, b]), json!([a, b]), true);
    }
}
