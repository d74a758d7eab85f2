//! Items of sets and map-like lists are there once. Mirrors `pkg/apiserver/schema/listtype/validation.go`.

use std::collections::HashMap;

use machinery::schema::{ListType, SchemaRef};
use machinery::{FieldError, FieldPath};
use serde_json::{Map, Value};

/// Faults of an object's lists.
pub(crate) fn validate(schema: SchemaRef<'_>, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, &FieldPath::ROOT, &mut errors);
    errors
}

fn walk(schema: SchemaRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(values) = schema.additional() {
                    walk(values, value, &path.key(key), errors);
                }
                if let Some((_, property)) = schema.field(key) {
                    walk(property, value, &path.child(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match &schema.node().list_type {
                ListType::Atomic => {}
                ListType::Set => {
                    let repeated = repeated(items.iter());
                    errors.extend(
                        repeated
                            .into_iter()
                            .map(|i| FieldError::duplicate(&path.index(i), &items[i])),
                    );
                }
                ListType::Map(keys) => map_list(keys, items, path, errors),
            }
            if let Some(of) = schema.items() {
                for (i, item) in items.iter().enumerate() {
                    walk(of, item, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

/// Positions of items that are there for the second time; a third time is not reported.
fn repeated<'a>(items: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut out = Vec::new();
    for (i, item) in items.enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            out.push(i);
        }
    }
    out
}

fn map_list(
    keys: &[std::sync::Arc<str>],
    items: &[Value],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let odd = items.iter().position(|i| !i.is_object() && !i.is_null());
    if let Some(i) = odd {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(i), &items[i], detail));
        return;
    }
    let key_of = |item: &Value| {
        let pairs = keys
            .iter()
            .filter_map(|k| Some((k.to_string(), item.get(&**k)?.clone())));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    let identities: Vec<Value> = items.iter().map(key_of).collect();
    for i in repeated(identities.iter()) {
        errors.push(FieldError::duplicate(&path.index(i), &identities[i]));
    }
}
