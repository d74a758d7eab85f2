//! A configuration laid over an object without owners, as ApplyConfiguration of a MutatingAdmissionPolicy does.

use serde_json::Value;

use super::path::{PathElement, Trail};
use super::types::{Shape, Ty};
use super::{fields, merge};
use crate::limits;
use crate::schema::SchemaRef;

/// Merges a configuration, which has the object's `apiVersion` and `kind`, into the object by its list types. Nobody comes to
/// own what it says.
///
/// # Errors
/// Upstream's text: a configuration that does not fit the schema, or sets a list, map or struct that can only be replaced whole.
pub fn overlay(object: &Value, config: &Value, schema: SchemaRef<'_>) -> Result<Value, String> {
    let ty = Ty::root(schema);
    fields::validate(ty, config, fields::Duplicates::Refused)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut found = Found::default();
    atomics(ty, config, Trail::ROOT, &mut found);
    if !found.paths.is_empty() {
        let more = match found.more {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}{more}",
            found.paths.join(", ")
        ));
    }
    merge::merge(ty, object, config).map_err(|error| format!("failed to merge patch: {error}"))
}

/// Where something is set that can only be replaced whole.
#[derive(Default)]
struct Found {
    /// The first [`limits::CAUSES`] places.
    paths: Vec<String>,
    /// How many others there are.
    more: usize,
}

impl Found {
    fn add(&mut self, at: Trail<'_>) {
        if self.paths.len() < limits::CAUSES {
            self.paths.push(at.show());
        } else {
            self.more += 1;
        }
    }
}

fn atomics(ty: Ty<'_>, value: &Value, at: Trail<'_>, found: &mut Found) {
    match (ty.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(members)) => {
            if map.atomic {
                found.add(at);
            }
            for (key, value) in members {
                if let Some(ty) = map.member(key).0 {
                    atomics(ty, value, at.below(&PathElement::field(key.as_str())), found);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            if list.keys.is_none() {
                found.add(at);
            }
            for (index, item) in items.iter().enumerate() {
                let element = PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX));
                atomics(list.items, item, at.below(&element), found);
            }
        }
        _ => {}
    }
}
