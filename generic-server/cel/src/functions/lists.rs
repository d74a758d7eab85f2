//! List functions: Kubernetes' lists, cel-go's list extension (version 3) and sets.

use std::cmp::Ordering;

use super::{Function, Ret, no_overload, operators};
use crate::{
    error::EvalError,
    value::{List, Val, compare},
};

pub(super) fn implementation(name: &str) -> Option<Function> {
    Some(match name {
        "isSorted" => is_sorted,
        "sum" => |args| sum(args, Val::Int(0)),
        "max" => |args| extreme("max", args, Ordering::Less),
        "min" => |args| extreme("min", args, Ordering::Greater),
        "first" => |args| with_list("first", args, |list| end(list, 0)),
        "last" => |args| with_list("last", args, |list| end(list, list.len().saturating_sub(1))),
        "slice" => slice,
        "flatten" => flatten,
        "sort" => |args| with_list("sort", args, |list| sorted(list, list)),
        "lists.range" => range,
        "reverse" => |args| with_list("reverse", args, reverse),
        "distinct" => |args| with_list("distinct", args, distinct),
        "sets.contains" => |args| sets("sets.contains", args, contains_all),
        "sets.equivalent" => |args| {
            sets("sets.equivalent", args, |a, b| {
                Ok(contains_all(a, b)? && contains_all(b, a)?)
            })
        },
        "sets.intersects" => |args| sets("sets.intersects", args, intersects),
        _ => return None,
    })
}

/// Sums by overload, because an empty list does not show the type of its zero.
pub(super) fn typed_sum(overload: &str) -> Option<Function> {
    Some(match overload {
        "list_uint_sum_uint" => |args| sum(args, Val::Uint(0)),
        "list_double_sum_double" => |args| sum(args, Val::Double(0.0)),
        "list_duration_sum_duration" => |args| sum(args, Val::Duration(0)),
        _ => return None,
    })
}

fn with_list<'a>(name: &str, args: &[Val<'a>], run: fn(&List<'a>) -> Ret<'a>) -> Ret<'a> {
    match args {
        [Val::List(list)] => run(list),
        _ => no_overload(name, args),
    }
}

fn is_sorted<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::List(list)] = args else {
        return no_overload("isSorted", args);
    };
    let mut previous: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        if let Some(previous) = &previous
            && compare::order(previous, &item)?.is_gt()
        {
            return Ok(Val::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Val::Bool(true))
}

fn sum<'a>(args: &[Val<'a>], zero: Val<'a>) -> Ret<'a> {
    let [Val::List(list)] = args else {
        return no_overload("sum", args);
    };
    let mut items = list.iter();
    let Some(first) = items.next() else {
        return Ok(zero);
    };
    items.try_fold(first?, |sum, item| operators::add(&[sum, item?]))
}

/// The first element none is preferred to.
fn extreme<'a>(name: &str, args: &[Val<'a>], replace_on: Ordering) -> Ret<'a> {
    let [Val::List(list)] = args else {
        return no_overload(name, args);
    };
    let mut best: Option<Val<'a>> = None;
    for item in list.iter() {
        let item = item?;
        best = Some(match best {
            Some(best) if compare::order(&best, &item)? != replace_on => best,
            _ => item,
        });
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

pub(super) fn index_of<'a>(args: &[Val<'a>], last: bool) -> Ret<'a> {
    let [Val::List(list), wanted] = args else {
        return no_overload("indexOf", args);
    };
    let found = |index: &usize| {
        list.at(*index)
            .and_then(|item| compare::equal(&item, wanted))
            .unwrap_or(false)
    };
    let mut indices = 0..list.len();
    let index = if last {
        indices.rev().find(found)
    } else {
        indices.find(found)
    };
    Ok(Val::Int(index.map_or(-1, |index| index as i64)))
}

fn end<'a>(list: &List<'a>, index: usize) -> Ret<'a> {
    if list.is_empty() {
        Ok(Val::none())
    } else {
        list.at(index).map(Val::some)
    }
}

fn slice<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return no_overload("slice", args);
    };
    let refuse = |why: String| Err(EvalError::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported".to_string());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_string());
    }
    if list.len() < to {
        return refuse(format!("list is length {}", list.len()));
    }
    (from..to)
        .map(|index| list.at(index))
        .collect::<Result<_, _>>()
        .map(Val::list)
}

fn flatten<'a>(args: &[Val<'a>]) -> Ret<'a> {
    let (list, depth) = match args {
        [Val::List(list)] => (list, 1),
        [Val::List(_), Val::Int(depth)] if *depth < 0 => {
            return Err(EvalError::fixed("level must be non-negative"));
        }
        [Val::List(list), Val::Int(depth)] => (list, *depth),
        _ => return no_overload("flatten", args),
    };
    let mut out = Vec::new();
    flatten_into(list, depth, &mut out)?;
    Ok(Val::list(out))
}

/// Lists nest no deeper than JSON and expressions do, both of which are bounded.
fn flatten_into<'a>(list: &List<'a>, depth: i64, out: &mut Vec<Val<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item? {
            Val::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, out)?,
            other => out.push(other),
        }
    }
    Ok(())
}

pub(super) fn sort_by_keys<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match args {
        [Val::List(list), Val::List(keys)] => sorted(list, keys),
        _ => no_overload("@sortByAssociatedKeys", args),
    }
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>) -> Ret<'a> {
    if list.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements \
             respectively",
            list.len(),
            keys.len()
        )));
    }
    let mut pairs = Vec::with_capacity(list.len());
    for (item, key) in list.iter().zip(keys.iter()) {
        pairs.push((key?, item?));
    }
    let Some((first, _)) = pairs.first() else {
        return Ok(Val::List(list.clone()));
    };
    if compare::order(first, first).is_err() && !matches!(first, Val::Double(_)) {
        return Err(EvalError::fixed("list elements must be comparable"));
    }
    let ty = first.type_of();
    if pairs.iter().any(|(key, _)| !key.type_of().same(&ty)) {
        return Err(EvalError::fixed("list elements must have the same type"));
    }
    // NaN has no place among the others; all of them go first, because a sort panics on an order that contradicts itself.
    let is_number = |key: &Val<'_>| !matches!(key, Val::Double(x) if x.is_nan());
    pairs.sort_by(|(a, _), (b, _)| {
        let comparable = is_number(a).cmp(&is_number(b));
        comparable.then_with(|| compare::order(a, b).unwrap_or(Ordering::Equal))
    });
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn range<'a>(args: &[Val<'a>]) -> Ret<'a> {
    match args {
        [Val::Int(count)] => Ok(Val::list((0..*count).map(Val::Int).collect())),
        _ => no_overload("lists.range", args),
    }
}

fn reverse<'a>(list: &List<'a>) -> Ret<'a> {
    let mut items = list.iter().collect::<Result<Vec<_>, _>>()?;
    items.reverse();
    Ok(Val::list(items))
}

fn distinct<'a>(list: &List<'a>) -> Ret<'a> {
    let mut unique: Vec<Val<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        if !unique
            .iter()
            .any(|known| compare::equal(&item, known).unwrap_or(false))
        {
            unique.push(item);
        }
    }
    Ok(Val::list(unique))
}

type SetTest = fn(&List<'_>, &List<'_>) -> Result<bool, EvalError>;

fn sets<'a>(name: &str, args: &[Val<'a>], test: SetTest) -> Ret<'a> {
    match args {
        [Val::List(a), Val::List(b)] => test(a, b).map(Val::Bool),
        _ => no_overload(name, args),
    }
}

fn contains_all(list: &List<'_>, sublist: &List<'_>) -> Result<bool, EvalError> {
    for item in sublist.iter() {
        if !compare::contains(list, &item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    for item in a.iter() {
        if compare::contains(b, &item?).unwrap_or(false) {
            return Ok(true);
        }
    }
    Ok(false)
}
