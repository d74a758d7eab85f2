//! A configuration laid over an object without owners: what ApplyConfiguration of a MutatingAdmissionPolicy does.

use serde_json::Value;

use super::path::PathElement;
use super::types::{Shape, Ty};
use super::{fields, merge};
use crate::schema::SchemaRef;

/// Merges a configuration, which has the object's `apiVersion` and `kind`, into the object by its list types. Nobody comes to
/// own what it says.
///
/// # Errors
/// Upstream's text: a configuration that does not fit the schema, or sets a list, map or struct that can only be replaced whole.
pub fn overlay(object: &Value, config: &Value, schema: SchemaRef<'_>) -> Result<Value, String> {
    let ty = Ty::root(schema);
    fields::validate(ty, config)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut found = Vec::new();
    atomics(ty, config, "", &mut found);
    if !found.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            found.join(", ")
        ));
    }
    merge::merge(ty, object, config).map_err(|error| format!("failed to merge patch: {error}"))
}

fn atomics(ty: Ty<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    match (ty.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(members)) => {
            if map.atomic {
                found.push(path.to_string());
            }
            for (key, value) in members {
                if let Some(ty) = map.member(key).0 {
                    let path = format!("{path}{}", PathElement::field(key.as_str()));
                    atomics(ty, value, &path, found);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            if list.keys.is_none() {
                found.push(path.to_string());
            }
            for (index, item) in items.iter().enumerate() {
                atomics(list.items, item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}
