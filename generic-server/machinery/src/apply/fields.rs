//! The fields that an object mentions, checks of a configuration before it is applied, and what schema changes do to
//! recorded sets.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::path::{PathElement, Trail};
use super::set::{Node, Part, Set};
use super::types::{ListTy, MapTy, Scalar, Shape, Ty};
use crate::field::clip;
use crate::go;
use crate::limits;

/// Every leaf and every list item that the object mentions: the fields that a manager owns by applying it.
pub(super) fn field_set<'a>(ty: Ty<'a>, object: &'a Value) -> Set<'a> {
    mentioned(ty, object).children
}

fn mentioned<'a>(ty: Ty<'a>, value: &'a Value) -> Part<'a> {
    let mut part = Part::default();
    match ty.shape(Some(value)) {
        Shape::Scalar(_) => part.member = true,
        Shape::Map(map) if map.atomic => part.member = true,
        Shape::List(list) if list.keys.is_none() => part.member = true,
        Shape::Map(map) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                let (ty, field) = map.member(key);
                let mut child = mentioned(ty.unwrap_or(Ty::Deduced), value);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                child.member |= empty || field.is_none();
                part.children.push(PathElement::field(key.as_str()), child);
            }
        }
        Shape::List(list) => part.children = mentioned_items(&list, value),
    }
    part
}

fn mentioned_items<'a>(list: &ListTy<'a>, value: &'a Value) -> Set<'a> {
    let mut out = Set::default();
    for item in value.as_array().into_iter().flatten() {
        let Ok(element) = list.element_of(item) else {
            continue;
        };
        let mut child = mentioned(list.items, item);
        child.member = true;
        out.push(element, child);
    }
    out.sort();
    // Repeated items are owned as one thing.
    out.nodes.dedup_by(|b, a| {
        let same = a.element == b.element;
        if same {
            a.children = Set::default();
        }
        same
    });
    out
}

/// The same set, with the declared fields that lead to members as members themselves.
pub(super) fn with_named_fields<'a>(set: &Set<'a>, ty: Option<Ty<'a>>) -> Set<'a> {
    let (map, list) = match ty {
        Some(ty) => shapes(ty),
        None => (None, None),
    };
    let nodes = set.nodes.iter().map(|node| {
        let (child, named) = match &node.element {
            PathElement::Field(name) => match &map {
                Some(map) => {
                    let (ty, field) = map.member(name);
                    (ty, field.is_some())
                }
                None => (None, false),
            },
            PathElement::Key(_) => (list.as_ref().map(|l| l.items), false),
            PathElement::Value(_) | PathElement::Index(_) => (None, false),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (named && !node.children.is_empty()),
            children: with_named_fields(&node.children, child),
        }
    });
    Set {
        nodes: nodes.collect(),
    }
}

/// The map type and the list type that a place may have.
fn shapes(ty: Ty<'_>) -> (Option<MapTy<'_>>, Option<ListTy<'_>>) {
    let map = match ty.shape(None) {
        Shape::Map(map) => Some(map),
        _ => None,
    };
    let list = match ty.shape(Some(&Value::Array(Vec::new()))) {
        Shape::List(list) => Some(list),
        _ => None,
    };
    (map, list)
}

/// Brings a recorded set in line with a schema that has since made lists or objects atomic: the owner of a part becomes
/// an owner of the whole.
///
/// Returns whether anything was changed.
pub(super) fn reconcile(set: &mut Set<'_>, ty: Ty<'_>) -> bool {
    let mut changed = false;
    match ty.shape(None) {
        Shape::Scalar(_) => {}
        Shape::Map(map) => {
            if map.is_deduced() {
                return false;
            }
            for node in &mut set.nodes {
                let PathElement::Field(name) = &node.element else {
                    continue;
                };
                if let Some(ty) = map.member(name).0 {
                    changed |= reconcile_node(node, ty);
                }
            }
        }
        Shape::List(list) => {
            for node in &mut set.nodes {
                changed |= reconcile_node(node, list.items);
            }
        }
    }
    changed
}

fn reconcile_node(node: &mut Node<'_>, ty: Ty<'_>) -> bool {
    if node.children.is_empty() {
        return false;
    }
    let atomic = match ty.shape(None) {
        Shape::Map(map) => map.atomic,
        Shape::List(list) => list.keys.is_none(),
        Shape::Scalar(_) => false,
    };
    if atomic {
        node.children = Set::default();
        node.member = true;
    }
    atomic || reconcile(&mut node.children, ty)
}

/// Whether items of sets and of keyed lists may be there more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    /// They are errors.
    Refused,
    /// They are one item, as in objects that are stored already.
    Allowed,
}

/// Checks an object against the schema: no undeclared fields, no values of another type, no repeated items unless `duplicates` allows them.
///
/// # Errors
/// Upstream's text, with the paths of all errors, as far as [`limits::CAUSES`] allows.
pub(super) fn validate(ty: Ty<'_>, object: &Value, duplicates: Duplicates) -> Result<(), String> {
    let mut errors = Errors::new(duplicates);
    check(ty, object, Trail::ROOT, &mut errors);
    match (errors.lines.as_slice(), errors.more) {
        ([], _) => Ok(()),
        ([one], 0) => Err(one.clone()),
        (many, more) => {
            let mut lines: Vec<String> = many.iter().map(|line| format!("  {line}")).collect();
            if more > 0 {
                lines.push(format!("  and {more} more"));
            }
            Err(format!("errors:\n{}", lines.join("\n")))
        }
    }
}

/// The errors of an object.
struct Errors {
    duplicates: Duplicates,
    /// The first [`limits::CAUSES`] errors with their paths.
    lines: Vec<String>,
    /// How many others there are.
    more: usize,
}

impl Errors {
    fn new(duplicates: Duplicates) -> Self {
        Errors {
            duplicates,
            lines: Vec::new(),
            more: 0,
        }
    }

    fn add(&mut self, at: Trail<'_>, text: impl fmt::Display) {
        if self.lines.len() == limits::CAUSES {
            self.more += 1;
            return;
        }
        let text = clip(limits::SHOWN_VALUE_BYTES, &text);
        let path = at.show();
        self.lines.push(if path.is_empty() {
            text
        } else {
            format!("{path}: {text}")
        });
    }
}

fn check(ty: Ty<'_>, value: &Value, at: Trail<'_>, errors: &mut Errors) {
    match (ty.shape(Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar(scalar), value) => {
            let fits = match scalar {
                Scalar::Numeric => value.is_number(),
                Scalar::String => value.is_string(),
                Scalar::Boolean => value.is_boolean(),
                Scalar::Any => !value.is_array() && !value.is_object(),
            };
            if fits {
                return;
            }
            match scalar {
                Scalar::Numeric => errors.add(
                    at,
                    format_args!("expected numeric (int or float), got {}", go::type_name(value)),
                ),
                Scalar::String => errors.add(
                    at,
                    format_args!(
                        "expected string, got &value.valueUnstructured{{Value:{}}}",
                        go::Syntax(value)
                    ),
                ),
                Scalar::Boolean => {
                    errors.add(
                        at,
                        format_args!("expected boolean, got &{{{}}}", go::Print(value)),
                    );
                }
                Scalar::Any => {
                    errors.add(
                        at,
                        format_args!("expected any scalar, got &{{{}}}", go::Print(value)),
                    );
                }
            }
        }
        (Shape::Map(map), Value::Object(members)) => {
            for (key, value) in members {
                let element = PathElement::field(key.as_str());
                match map.member(key).0 {
                    Some(ty) => check(ty, value, at.below(&element), errors),
                    None => return errors.add(at.below(&element), "field not declared in schema"),
                }
            }
        }
        (Shape::Map(_), value) => {
            errors.add(at, format_args!("expected map, got &{{{}}}", go::Print(value)));
        }
        (Shape::List(list), Value::Array(items)) => {
            let mut seen = HashSet::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let element = if list.keys.is_some() {
                    match list.element_of(item) {
                        Ok(element) => {
                            let refused = errors.duplicates == Duplicates::Refused;
                            if refused && !seen.insert(element.encode()) {
                                errors.add(at, format_args!("duplicate entries for key {element}"));
                            }
                            element
                        }
                        Err(text) => return errors.add(at, format_args!("element {index}: {text}")),
                    }
                } else {
                    PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
                };
                check(list.items, item, at.below(&element), errors);
            }
        }
        (Shape::List(_), value) => {
            errors.add(at, format_args!("expected list, got &{{{}}}", go::Print(value)));
        }
    }
}
