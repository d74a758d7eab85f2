//! Merging a configuration into an object, and taking fields out of one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use super::path::PathElement;
use super::set::Set;
use super::types::{ListTy, MapTy, Shape, Ty};
use crate::steps;

/// Merges `config` over `live`. Lists whose items have identities keep the live order where the configuration does not say
/// otherwise, and follow the configuration's order where it does.
///
/// # Errors
/// When list items cannot be distinguished.
pub(super) fn merge(ty: Ty<'_>, live: &Value, config: &Value) -> Result<Value, String> {
    Ok(visit(ty, Some(live), Some(config))?.unwrap_or(Value::Null))
}

fn visit(ty: Ty<'_>, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, String> {
    let (lhs, rhs) = (live, config);
    let kept = || rhs.or(lhs).map(copy);
    // Where there is only one side, nothing below it can be decided.
    if lhs.is_none() || rhs.is_none() {
        return Ok(kept());
    }
    Ok(match ty.shape(rhs) {
        Shape::Scalar(_) => kept(),
        Shape::Map(map) => {
            let (left, right) = (lhs.and_then(Value::as_object), rhs.and_then(Value::as_object));
            let empty = |m: Option<&Map<String, Value>>| m.is_none_or(Map::is_empty);
            if map.atomic || (empty(left) && empty(right)) {
                kept()
            } else {
                members(&map, left, right)?
            }
        }
        Shape::List(list) => {
            let (left, right) = (lhs.and_then(Value::as_array), rhs.and_then(Value::as_array));
            let empty = |l: Option<&Vec<Value>>| l.is_none_or(Vec::is_empty);
            if list.keys.is_none() || (empty(left) && empty(right)) {
                kept()
            } else {
                let slice = |l: Option<&'_ Vec<Value>>| l.cloned().unwrap_or_default();
                match (left, right) {
                    (Some(left), Some(right)) => items(&list, left, right)?,
                    _ => items(&list, &slice(left), &slice(right))?,
                }
            }
        }
    })
}

fn members(
    map: &MapTy<'_>,
    left: Option<&Map<String, Value>>,
    right: Option<&Map<String, Value>>,
) -> Result<Option<Value>, String> {
    let mut out = Map::new();
    // Only what the configuration leaves alone is copied here; copying all of it on every level would copy the innermost
    // value once for each.
    for (key, live) in left.into_iter().flatten() {
        steps::count(1);
        let merged = match right.and_then(|right| right.get(key)) {
            Some(value) => visit(map.member(key).0.unwrap_or(Ty::Deduced), Some(live), Some(value))?,
            None => Some(copy(live)),
        };
        out.extend(merged.map(|merged| (key.clone(), merged)));
    }
    for (key, value) in right.into_iter().flatten() {
        if left.is_none_or(|left| !left.contains_key(key)) {
            out.insert(key.clone(), copy(value));
        }
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

fn copy(value: &Value) -> Value {
    #[cfg(test)]
    steps::count(nodes(value));
    value.clone()
}

#[cfg(test)]
fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(members) => members.values().map(nodes).sum(),
        _ => 0,
    }
}

/// The elements of a list in order, and the item of each. Repeated ones stand for null when that is allowed.
struct Indexed<'a> {
    order: Vec<(PathElement<'a>, String)>,
    items: HashMap<String, Cow<'a, Value>>,
}

fn index<'a>(list: &ListTy<'a>, values: &'a [Value], repeats: bool) -> Result<Indexed<'a>, String> {
    let mut out = Indexed {
        order: Vec::with_capacity(values.len()),
        items: HashMap::with_capacity(values.len()),
    };
    for (index, item) in values.iter().enumerate() {
        let element = list
            .element_of(item)
            .map_err(|e| format!("element {index}: {e}"))?;
        let name = element.encode();
        if !out.items.contains_key(&name) {
            out.items.insert(name.clone(), Cow::Borrowed(item));
        } else if repeats {
            out.items.insert(name.clone(), Cow::Owned(Value::Null));
        } else {
            return Err(format!("duplicate entries for key {element}"));
        }
        out.order.push((element, name));
    }
    Ok(out)
}

fn items<'a>(list: &ListTy<'a>, left: &'a [Value], right: &'a [Value]) -> Result<Option<Value>, String> {
    let config = index(list, right, false)?;
    let live = index(list, left, true)?;
    let mut shared: VecDeque<&str> = config
        .order
        .iter()
        .map(|(_, n)| n.as_str())
        .filter(|n| live.items.contains_key(*n))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut merged: HashSet<&str> = HashSet::with_capacity(config.order.len());
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let one = |name: &str| {
        visit(
            list.items,
            live.items.get(name).map(|v| &**v),
            config.items.get(name).map(|v| &**v),
        )
    };
    let (mut l, mut r) = (0, 0);
    while l < live.order.len() || r < config.order.len() {
        if let (Some((_, left_name)), Some((_, right_name))) = (live.order.get(l), config.order.get(r)) {
            if left_name == right_name {
                merged.insert(left_name);
                out.extend(one(left_name)?);
                l += 1;
                r += 1;
                next_shared = shared.pop_front();
                continue;
            }
            let is_shared = config.items.contains_key(left_name);
            if is_shared && next_shared.is_some_and(|next| next != left_name.as_str()) {
                // A shared item, but not the one whose turn it is.
                l += 1;
                continue;
            }
        }
        if let Some((_, name)) = live.order.get(l) {
            if !config.items.contains_key(name) {
                out.extend(left.get(l).cloned());
                l += 1;
                continue;
            }
            if merged.contains(name.as_str()) {
                l += 1;
            }
        }
        if let Some((_, name)) = config.order.get(r) {
            merged.insert(name);
            out.extend(one(name)?);
            r += 1;
            if next_shared == Some(name.as_str()) {
                next_shared = shared.pop_front();
            }
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// The value without the fields and items of a set. Containers that lose members stay, if empty.
pub(super) fn remove(ty: Ty<'_>, value: &Value, set: &Set<'_>) -> Value {
    if set.is_empty() {
        return value.clone();
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Scalar(_), value) => value.clone(),
        (Shape::Map(map), Value::Object(members)) if !map.atomic => {
            let mut out = Map::new();
            let mut touched = false;
            for (key, value) in members {
                let node = set.node(&PathElement::field(key.as_str()));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => {
                        touched = true;
                        let ty = map.member(key).0.unwrap_or(Ty::Deduced);
                        out.insert(key.clone(), below(ty, value, &node.children));
                    }
                    None => {
                        out.insert(key.clone(), value.clone());
                    }
                }
            }
            if out.is_empty() && !touched {
                Value::Null
            } else {
                Value::Object(out)
            }
        }
        (Shape::List(list), Value::Array(items)) if list.keys.is_some() => {
            let mut out = Vec::with_capacity(items.len());
            let mut touched = false;
            for item in items {
                let node = list.element_of(item).ok().and_then(|element| set.node(&element));
                match node {
                    Some(node) if node.member => {}
                    Some(node) => {
                        touched = true;
                        out.push(below(list.items, item, &node.children));
                    }
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() && !touched {
                Value::Null
            } else {
                Value::Array(out)
            }
        }
        _ => Value::Null,
    }
}

/// [`remove`] inside a container that stays a container.
fn below(ty: Ty<'_>, value: &Value, set: &Set<'_>) -> Value {
    match (remove(ty, value, set), value) {
        (Value::Null, Value::Object(_)) => Value::Object(Map::new()),
        (Value::Null, Value::Array(_)) => Value::Array(Vec::new()),
        (left, _) => left,
    }
}
