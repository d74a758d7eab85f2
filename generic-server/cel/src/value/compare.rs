//! Equality and order of values, including `x-kubernetes-list-type` equality and concatenation.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Key, List, Map, Val};
use crate::{
    error::EvalError,
    types::{ListType, ObjectType},
};

/// `a == b`. Values of different types are unequal rather than an error, except where upstream has no overload.
pub(crate) fn equal(a: &Val<'_>, b: &Val<'_>) -> Result<bool, EvalError> {
    Ok(match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Null, _) | (_, Val::Null) => false,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => **a == **b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Type(a), Val::Type(b)) => a.name() == b.name(),
        (Val::Optional(a), Val::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => return equal(a, b),
            (None, None) => true,
            _ => false,
        },
        (Val::List(a), Val::List(b)) => return lists(a, b),
        (Val::Map(a), Val::Map(b)) => return maps(a, b),
        // JSON lists and maps of the object have no overload of equality with other types.
        (Val::List(List::Json { .. }), _) | (Val::Map(Map::Object { .. } | Map::Json { .. }), _) => {
            return Err(EvalError::NO_OVERLOAD);
        }
        (Val::Opaque(a), Val::Opaque(b)) => match a.equal(b) {
            Some(equal) => equal,
            None => return Err(EvalError::NO_OVERLOAD),
        },
        (Val::Preserved(a), Val::Preserved(b)) => a == b,
        (Val::Authz(a), Val::Authz(b)) => Arc::ptr_eq(a, b),
        (a, b) => number_order(a, b) == Some(Ordering::Equal),
    })
}

/// The order of two numbers of any types; none if either is no number or not a number.
fn number_order(a: &Val<'_>, b: &Val<'_>) -> Option<Ordering> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::Uint(a), Val::Uint(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Uint(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Double(a), b) => double_order(*a, integer(b)?),
        (a, Val::Double(b)) => double_order(*b, integer(a)?).map(Ordering::reverse),
        _ => None,
    }
}

fn integer(val: &Val<'_>) -> Option<i128> {
    match val {
        Val::Int(value) => Some((*value).into()),
        Val::Uint(value) => Some((*value).into()),
        _ => None,
    }
}

fn double_order(double: f64, int: i128) -> Option<Ordering> {
    if double >= 1e30 {
        return Some(Ordering::Greater);
    }
    if double <= -1e30 {
        return Some(Ordering::Less);
    }
    double.partial_cmp(&(int as f64))
}

/// The order of two values that have one.
pub(crate) fn order(a: &Val<'_>, b: &Val<'_>) -> Result<Ordering, EvalError> {
    Ok(match (a, b) {
        (Val::Bool(a), Val::Bool(b)) => a.cmp(b),
        (Val::String(a), Val::String(b)) => (**a).cmp(&**b),
        (Val::Bytes(a), Val::Bytes(b)) => a.cmp(b),
        (Val::Timestamp(a), Val::Timestamp(b)) => a.cmp(b),
        (Val::Duration(a), Val::Duration(b)) => a.cmp(b),
        (Val::Double(x), _) | (_, Val::Double(x)) if x.is_nan() => {
            return Err(EvalError::fixed("NaN values cannot be ordered"));
        }
        (a, b) => number_order(a, b).ok_or(EvalError::NO_OVERLOAD)?,
    })
}

fn lists(a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.list_type() {
        ListType::Atomic => {
            for index in 0..a.len() {
                if !equal(&a.at(index)?, &b.at(index)?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListType::Set => {
            let known = a
                .iter()
                .map(|item| identity(&item?))
                .collect::<Result<std::collections::BTreeSet<_>, _>>()?;
            for item in b.iter() {
                if !known.contains(&identity(&item?)?) {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListType::Map(keys) => {
            let mut by_key = BTreeMap::new();
            for item in a.iter() {
                let item = item?;
                by_key.insert(map_key(&item, keys), item);
            }
            for item in b.iter() {
                let item = item?;
                match by_key.get(&map_key(&item, keys)) {
                    Some(known) if equal(known, &item)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
    }
}

/// The key by which elements of a set are compared.
fn identity(val: &Val<'_>) -> Result<String, EvalError> {
    Ok(match val {
        Val::String(text) => format!("s{}", &**text),
        Val::Int(value) => format!("n{value}"),
        Val::Double(value) => format!("n{value}"),
        Val::Bool(value) => format!("b{value}"),
        other => format!("?{other:?}"),
    })
}

/// The values of a list element's keys, in one text.
fn map_key(val: &Val<'_>, keys: &[Box<str>]) -> String {
    let mut out = String::new();
    for key in keys {
        let value = match val {
            Val::Map(Map::Object { map, .. } | Map::Json { map, .. }) => map.get(&**key).cloned(),
            _ => None,
        };
        out.push_str(&value.unwrap_or(Value::Null).to_string());
        out.push('\n');
    }
    out
}

fn maps(a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (Map::Built { name, .. }, Map::Built { name: other, .. }) = (a, b)
        && name != other
    {
        return Ok(false);
    }
    if let (Map::Object { map, object }, Map::Object { map: other, .. }) = (a, b) {
        return objects(map, other, object, b);
    }
    for (key, value) in a.entries() {
        let Some(found) = b.find(&key) else {
            return Ok(false);
        };
        if !equal(&value?, &found?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

type Json = serde_json::Map<String, Value>;

fn objects(a: &Json, b: &Json, object: &ObjectType, other: &Map<'_>) -> Result<bool, EvalError> {
    for (key, value) in a {
        match object.by_json(key) {
            Some((name, field)) => {
                let found = if value.is_null() {
                    None
                } else {
                    Some(Val::json(value, &field.decl)?)
                };
                let same = match (found, other.field(name)) {
                    (None, None) => true,
                    (Some(mine), Some(theirs)) => equal(&mine, &theirs?)?,
                    _ => false,
                };
                if !same {
                    return Ok(false);
                }
            }
            // Fields without a declaration are compared as they are, where both have them.
            None => {
                if b.get(key).is_some_and(|theirs| theirs != value) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// `a + b` for lists: concatenation, union for sets, merge by key for list maps.
pub(crate) fn concat<'a>(a: &List<'a>, b: &List<'a>) -> Result<List<'a>, EvalError> {
    let list_type = a.list_type();
    if *list_type == ListType::Atomic {
        return Ok(match (a.len(), b.len()) {
            (_, 0) => a.clone(),
            (0, _) if b.list_type() == list_type => b.clone(),
            (left, right) => List::Concat {
                parts: Arc::new((a.clone(), b.clone())),
                len: left + right,
            },
        });
    }
    let mut items = a.iter().collect::<Result<Vec<_>, _>>()?;
    match list_type {
        ListType::Atomic => {}
        ListType::Set => {
            let mut known = std::collections::BTreeSet::new();
            for item in &items {
                known.insert(identity(item)?);
            }
            for item in b.iter() {
                let item = item?;
                if known.insert(identity(&item)?) {
                    items.push(item);
                }
            }
        }
        ListType::Map(keys) => {
            let mut places: BTreeMap<String, usize> = BTreeMap::new();
            for (index, item) in items.iter().enumerate() {
                places.insert(map_key(item, keys), index);
            }
            for item in b.iter() {
                let item = item?;
                match places.get(&map_key(&item, keys)) {
                    Some(index) => items[*index] = item,
                    None => items.push(item),
                }
            }
        }
    }
    Ok(List::Vals {
        items: Arc::new(items),
        list_type,
    })
}

/// `x in list`: an element that cannot be compared is an error only if no other is equal.
pub(crate) fn contains(list: &List<'_>, val: &Val<'_>) -> Result<bool, EvalError> {
    let mut failed = None;
    for item in list.iter() {
        match item.and_then(|item| equal(&item, val)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(false), Err)
}

/// `x in map`.
pub(crate) fn has_key(map: &Map<'_>, key: &Val<'_>) -> Result<bool, EvalError> {
    match map.find(key) {
        None => Ok(false),
        Some(Ok(_)) => Ok(true),
        Some(Err(error)) => match map {
            Map::Vals(_) => Ok(Key::lookup(key).is_some()),
            _ => Err(error),
        },
    }
}
