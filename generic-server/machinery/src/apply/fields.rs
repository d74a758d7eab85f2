//! The fields that an object mentions, checks of a configuration before it is applied, and what schema changes do to
//! recorded sets.

use std::collections::HashSet;

use serde_json::Value;

use super::path::PathElement;
use super::set::{Node, Part, Set};
use super::types::{ListTy, MapTy, Scalar, Shape, Ty};

/// Every leaf and every list item that the object mentions: what a manager that applies it owns.
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

/// What a place may be as a map and as a list.
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

/// Brings a recorded set in line with a schema that has since made lists or objects atomic: who owned something inside
/// owns the whole.
///
/// Tells whether anything was changed.
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

/// Checks a configuration against the schema, more strictly than objects are: no undeclared fields, no repeated items.
///
/// # Errors
/// Upstream's text, with the paths of all faults.
pub(super) fn validate(ty: Ty<'_>, object: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    check(ty, object, &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [(path, text)] => Err(line(path, text)),
        many => {
            let lines: Vec<String> = many
                .iter()
                .map(|(path, text)| format!("  {}", line(path, text)))
                .collect();
            Err(format!("errors:\n{}", lines.join("\n")))
        }
    }
}

fn line(path: &str, text: &str) -> String {
    if path.is_empty() {
        text.to_owned()
    } else {
        format!("{path}: {text}")
    }
}

type Errors = Vec<(String, String)>;

/// Checks below an element; the faults found there get its path.
fn below(element: &PathElement<'_>, ty: Ty<'_>, value: &Value, errors: &mut Errors) {
    let before = errors.len();
    check(ty, value, errors);
    for (path, _) in &mut errors[before..] {
        path.insert_str(0, &element.to_string());
    }
}

fn check(ty: Ty<'_>, value: &Value, errors: &mut Errors) {
    let mut fault = |text: String| errors.push((String::new(), text));
    match (ty.shape(Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar(scalar), value) => {
            let fits = match scalar {
                Scalar::Numeric => value.is_number(),
                Scalar::String => value.is_string(),
                Scalar::Boolean => value.is_boolean(),
                Scalar::Any => !value.is_array() && !value.is_object(),
            };
            if !fits {
                fault(match scalar {
                    Scalar::Numeric => format!("expected numeric (int or float), got {}", go_type(value)),
                    Scalar::String => {
                        format!(
                            "expected string, got &value.valueUnstructured{{Value:{}}}",
                            go_syntax(value)
                        )
                    }
                    Scalar::Boolean => format!("expected boolean, got &{{{}}}", go_print(value)),
                    Scalar::Any => format!("expected any scalar, got &{{{}}}", go_print(value)),
                });
            }
        }
        (Shape::Map(map), Value::Object(members)) => {
            for (key, value) in members {
                let element = PathElement::field(key.as_str());
                match map.member(key).0 {
                    Some(ty) => below(&element, ty, value, errors),
                    None => {
                        errors.push((element.to_string(), "field not declared in schema".into()));
                        return;
                    }
                }
            }
        }
        (Shape::Map(_), value) => fault(format!("expected map, got &{{{}}}", go_print(value))),
        (Shape::List(list), Value::Array(items)) => {
            let mut seen = HashSet::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let element = if list.keys.is_some() {
                    match list.element_of(item) {
                        Ok(element) => {
                            if !seen.insert(element.encode()) {
                                errors.push((String::new(), format!("duplicate entries for key {element}")));
                            }
                            element
                        }
                        Err(text) => {
                            errors.push((String::new(), format!("element {index}: {text}")));
                            return;
                        }
                    }
                } else {
                    PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
                };
                below(&element, list.items, item, errors);
            }
        }
        (Shape::List(_), value) => fault(format!("expected list, got &{{{}}}", go_print(value))),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As Go's `%v`.
fn go_print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_print).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let items: Vec<String> = map.iter().map(|(k, v)| format!("{k}:{}", go_print(v))).collect();
            format!("map[{}]", items.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// As Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => crate::field::go_quote(text),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let members = map
                .iter()
                .map(|(k, v)| format!("{}:{}", crate::field::go_quote(k), go_syntax(v)));
            format!(
                "map[string]interface {{}}{{{}}}",
                members.collect::<Vec<_>>().join(", ")
            )
        }
        scalar => scalar.to_string(),
    }
}
