//! The differences between two objects of a kind: the fields removed, modified and added.
//!
//! Upstream compares Go structs, where members that are never left out exist even when JSON does not show them. A member
//! absent from a known object therefore counts as its zero value where its declaration says so ([`Side::Zero`]); that is
//! what decides, for example, that creating a Deployment owns `spec.replicas` but not `spec` itself.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::{Map, Value};

use super::path::{PathElement, equal};
use super::set::{Part, Set};
use super::types::{ListTy, MapTy, Shape, Ty};
use crate::schema::FieldDef;
use crate::steps;

/// The fields that differ. No field is in more than one of the sets.
#[derive(Debug, Default)]
pub(super) struct Comparison<'a> {
    pub(super) removed: Set<'a>,
    pub(super) modified: Set<'a>,
    pub(super) added: Set<'a>,
}

impl Comparison<'_> {
    pub(super) fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    pub(super) fn into_owned(self) -> Comparison<'static> {
        Comparison {
            removed: self.removed.into_owned(),
            modified: self.modified.into_owned(),
            added: self.added.into_owned(),
        }
    }
}

/// How upstream holds the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// A Go value like the old one: members that Go would omit are absent, even if they are written.
    Stored,
    /// The result of a merge: every written member is present.
    Merged,
}

/// One side of the comparison at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side<'a> {
    /// Nothing is there.
    None,
    /// A zero value that is not written.
    Zero,
    /// This value.
    Some(&'a Value),
}

impl<'a> Side<'a> {
    fn value(self) -> Option<&'a Value> {
        match self {
            Side::Some(value) => Some(value),
            Side::None | Side::Zero => None,
        }
    }

    fn is_none(self) -> bool {
        matches!(self, Side::None)
    }

    fn map(self) -> Option<&'a Map<String, Value>> {
        self.value().and_then(Value::as_object)
    }

    fn list(self) -> &'a [Value] {
        self.value()
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// How a member counts that this object does not show.
    fn absent(self, field: Option<&FieldDef>) -> Self {
        match self {
            Side::None => Side::None,
            _ if field.is_some_and(|f| !f.omit_empty) => Side::Zero,
            _ => Side::None,
        }
    }
}

/// Whether Go leaves the member out although the value is written: empty and zero values of plain fields.
fn is_left_out(field: &FieldDef, ty: Option<Ty<'_>>, value: &Value) -> bool {
    if !field.omit_empty || field.pointer {
        return false;
    }
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) if map.is_empty() => true,
        Value::Object(_) => {
            let is_struct =
                |ty: Ty<'_>| matches!(ty.shape(Some(value)), Shape::Map(map) if !map.fields().is_empty());
            ty.is_some_and(is_struct) && is_zero(value)
        }
        scalar => is_zero(scalar),
    }
}

/// The three answers for one place and what is below it.
#[derive(Default)]
struct Delta<'a> {
    removed: Part<'a>,
    modified: Part<'a>,
    added: Part<'a>,
}

/// Compares two objects; `old` may be [`Side::Zero`] when there was none.
///
/// # Errors
/// When list items cannot be distinguished (upstream then gives up tracking).
pub(super) fn compare<'a>(
    view: View,
    ty: Ty<'a>,
    old: Side<'a>,
    new: Side<'a>,
) -> Result<Comparison<'a>, String> {
    let delta = visit(view, ty, old, new, None)?;
    Ok(Comparison {
        removed: delta.removed.children,
        modified: delta.modified.children,
        added: delta.added.children,
    })
}

/// The path to the first difference of two values, innermost key first; it ends where lists, scalars or the keys themselves differ.
type DiffPath<'a> = [&'a str];

/// Where two values first differ; `None` when they are equal. Everything before the last key of the path is equal, and is not compared
/// again: recomputing at each level would make this quadratic.
fn difference<'a>(old: &'a Value, new: &'a Value) -> Option<Vec<&'a str>> {
    steps::count(1);
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        #[cfg(test)]
        steps::count(old.as_array().map_or(0, Vec::len));
        return (old != new).then(Vec::new);
    };
    if old.len() != new.len() {
        return Some(Vec::new());
    }
    for ((key, old), (new_key, new)) in old.iter().zip(new) {
        if key != new_key {
            return Some(Vec::new());
        }
        if let Some(mut way) = difference(old, new) {
            way.push(key);
            return Some(way);
        }
    }
    None
}

/// Compares at a place. `way` leads to the first difference, where it is known already.
fn visit<'a>(
    view: View,
    ty: Ty<'a>,
    old: Side<'a>,
    new: Side<'a>,
    way: Option<&DiffPath<'a>>,
) -> Result<Delta<'a>, String> {
    let found;
    let way = match (way, old, new) {
        (Some(way), ..) => way,
        (None, Side::Some(old), Side::Some(new)) => match difference(old, new) {
            None => return Ok(Delta::default()),
            Some(way) => {
                found = way;
                &found
            }
        },
        (None, ..) => &[],
    };
    let mut delta = Delta::default();
    let (old_shape, new_shape) = (ty.shape(old.value()), ty.shape(new.value()));
    let mut leaf = false;
    let differ = old.value().is_some() && new.value().is_some() && !old_shape.same_kind(&new_shape);
    if new.value().is_none() || differ {
        leaf = walk(view, old_shape, (old, new), way, &mut delta)?;
    }
    if new.value().is_some() {
        leaf = walk(view, new_shape, (old, new), way, &mut delta)?;
    }
    if !leaf {
        delta.added.member |= old.is_none();
        delta.removed.member |= new.is_none();
    }
    Ok(delta)
}

/// Whether a written value is the zero value of its place.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.values().all(is_zero),
        Value::Bool(true) | Value::Array(_) => false,
    }
}

/// The place taken as one value.
fn leaf<'a>(old: Side<'a>, new: Side<'a>, delta: &mut Delta<'a>) {
    match (old, new) {
        (Side::None, _) => delta.added.member = true,
        (_, Side::None) => delta.removed.member = true,
        (Side::Some(a), Side::Some(b)) => delta.modified.member |= !equal(a, b),
        (Side::Zero, Side::Some(value)) | (Side::Some(value), Side::Zero) => {
            delta.modified.member |= !is_zero(value);
        }
        (Side::Zero, Side::Zero) => {}
    }
}

/// Compares below the place, taken as `shape`. Returns whether it was one value.
fn walk<'a>(
    view: View,
    shape: Shape<'a>,
    (old, new): (Side<'a>, Side<'a>),
    way: &DiffPath<'a>,
    delta: &mut Delta<'a>,
) -> Result<bool, String> {
    match shape {
        Shape::Scalar(_) => leaf(old, new, delta),
        Shape::Map(map) => {
            let empty = |side: Side<'_>| side.map().is_none_or(Map::is_empty);
            let zero_struct = matches!((old, new), (Side::None, Side::Zero) | (Side::Zero, Side::None));
            if map.atomic || (empty(old) && empty(new) && !(zero_struct && has_zero_members(&map))) {
                leaf(old, new, delta);
            } else {
                members(view, &map, (old, new), way, delta)?;
                return Ok(false);
            }
        }
        Shape::List(list) => {
            if list.keys.is_none() || (old.list().is_empty() && new.list().is_empty()) {
                leaf(old, new, delta);
            } else {
                items(view, &list, old.list(), new.list(), delta)?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn has_zero_members(map: &MapTy<'_>) -> bool {
    map.fields().iter().any(|field| !field.omit_empty)
}

fn members<'a>(
    view: View,
    map: &MapTy<'a>,
    (old, new): (Side<'a>, Side<'a>),
    way: &DiffPath<'a>,
    delta: &mut Delta<'a>,
) -> Result<(), String> {
    let (mut ahead, behind) = match way.split_last() {
        Some((key, behind)) => (Some(*key), behind),
        None => (None, way),
    };
    let mut left = old.map().into_iter().flatten().peekable();
    let mut right = new.map().into_iter().flatten().peekable();
    // An object that appears or goes as a whole brings its unwritten zero members along.
    let whole = old.is_none() || new.is_none();
    let mut unwritten = map.fields().iter().filter(|f| whole && !f.omit_empty).peekable();
    loop {
        let written = match (left.peek(), right.peek()) {
            (None, None) => None,
            (Some((a, _)), None) => Some(*a),
            (None, Some((b, _))) => Some(*b),
            (Some((a, _)), Some((b, _))) => Some(if a <= b { *a } else { *b }),
        };
        let zero = unwritten.peek().map(|f| &*f.name);
        let order = match (written, zero) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(written), Some(zero)) => written.as_str().cmp(zero),
        };
        if order.is_ge() {
            let field = unwritten.next();
            if let (Ordering::Greater, Some(field)) = (order, field) {
                let ty = map.field_type(field);
                let (old, new) = (old.absent(Some(field)), new.absent(Some(field)));
                let child = visit(view, ty, old, new, None)?;
                push(delta, PathElement::field(&*field.name), child);
                continue;
            }
        }
        let Some(key) = written else { return Ok(()) };
        if key == "managedFields" && map.is_object_meta() {
            left.next_if(|(k, _)| *k == key);
            right.next_if(|(k, _)| *k == key);
            continue;
        }
        let old_value = left.next_if(|(k, _)| *k == key).map(|(_, v)| v);
        let new_value = right.next_if(|(k, _)| *k == key).map(|(_, v)| v);
        let found;
        let mut way = None;
        if let (Some(a), Some(b)) = (old_value, new_value) {
            match ahead {
                Some(ahead) if key.as_str() < ahead => continue,
                Some(first) if key == first => {
                    ahead = None;
                    way = Some(behind);
                }
                _ => match difference(a, b) {
                    None => continue,
                    Some(other) => {
                        found = other;
                        way = Some(found.as_slice());
                    }
                },
            }
        }
        let (ty, field) = map.member(key);
        let side = |value: Option<&'a Value>, parent: Side<'a>| match value {
            Some(value) if view == View::Merged || !field.is_some_and(|f| is_left_out(f, ty, value)) => {
                Side::Some(value)
            }
            _ => parent.absent(field),
        };
        let (old_side, new_side) = (side(old_value, old), side(new_value, new));
        if old_side.is_none() && new_side.is_none() {
            continue;
        }
        let child = visit(view, ty.unwrap_or(Ty::Deduced), old_side, new_side, way)?;
        push(delta, PathElement::field(key.as_str()), child);
    }
}

fn push<'a>(delta: &mut Delta<'a>, element: PathElement<'a>, child: Delta<'a>) {
    let present = |part: &Part<'_>| part.member || !part.children.is_empty();
    let (removed, modified) = (present(&child.removed), present(&child.modified));
    if removed {
        delta.removed.children.push(element.clone(), child.removed);
    }
    if modified {
        delta.modified.children.push(element.clone(), child.modified);
    }
    delta.added.children.push(element, child.added);
}

/// The items of each element of a list, first to last, in the order of first appearance.
#[derive(Default)]
struct Found<'a> {
    old: Vec<&'a Value>,
    new: Vec<&'a Value>,
}

fn items<'a>(
    view: View,
    list: &ListTy<'a>,
    old: &'a [Value],
    new: &'a [Value],
    delta: &mut Delta<'a>,
) -> Result<(), String> {
    let mut found: Vec<(PathElement<'a>, Found<'a>)> = Vec::with_capacity(old.len().max(new.len()));
    let mut places: HashMap<String, usize> = HashMap::new();
    for (is_new, (index, item)) in old
        .iter()
        .enumerate()
        .map(|i| (false, i))
        .chain(new.iter().enumerate().map(|i| (true, i)))
    {
        let element = list
            .element_of(item)
            .map_err(|e| format!("element {index}: {e}"))?;
        // Short lists are searched, long ones indexed.
        let place = if old.len() + new.len() <= 32 {
            found.iter().position(|(known, _)| *known == element)
        } else {
            places.get(&element.encode()).copied()
        };
        let place = place.unwrap_or_else(|| {
            if old.len() + new.len() > 32 {
                places.insert(element.encode(), found.len());
            }
            found.push((element, Found::default()));
            found.len() - 1
        });
        let entry = &mut found[place].1;
        if is_new { &mut entry.new } else { &mut entry.old }.push(item);
    }
    for (element, found) in found {
        let side = |list: &[&'a Value]| list.first().map_or(Side::None, |v| Side::Some(v));
        let mut child = Delta::default();
        match (found.old.len(), found.new.len()) {
            (0 | 1, 0 | 1) => child = visit(view, list.items, side(&found.old), side(&found.new), None)?,
            // Repeated items are owned as one thing.
            (2.., 2..) => {
                let same = found.old.len() == found.new.len()
                    && found.old.iter().zip(&found.new).all(|(a, b)| equal(a, b));
                child.modified.member = !same;
            }
            (2.., _) => {
                if !found.new.is_empty() {
                    child = visit(view, list.items, Side::None, side(&found.new), None)?;
                }
                child.removed.member = true;
            }
            (_, 2..) => {
                if !found.old.is_empty() {
                    child = visit(view, list.items, side(&found.old), Side::None, None)?;
                }
                child.added.member = true;
            }
        }
        push(delta, element, child);
    }
    for part in [&mut delta.removed, &mut delta.modified, &mut delta.added] {
        part.children.sort();
    }
    Ok(())
}
