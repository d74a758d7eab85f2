//! Sets of fields: a tree of path elements, each a member or the way to members. The recorded form is `FieldsV1`.
//!
//! Invariants: the nodes of every level are sorted and unique, and every node is a member or has children.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::path::PathElement;
use crate::steps;

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set<'a> {
    pub(super) nodes: Vec<Node<'a>>,
}

/// A step that is a member of the set, or leads to members, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub(super) element: PathElement<'a>,
    pub(super) member: bool,
    pub(super) children: Set<'a>,
}

impl<'a> Node<'a> {
    /// All of it but the element.
    pub(super) fn part(&self) -> Part<'a> {
        Part {
            member: self.member,
            children: self.children.clone(),
        }
    }
}

/// An element present on the left, on the right or on both sides of a walk over two sets.
enum Pair<A, B> {
    Left(A),
    Right(B),
    Both(A, B),
}

/// Walks two sorted levels side by side.
fn zip<'x, 'a: 'x, 'y, 'b: 'y>(
    a: &'x [Node<'a>],
    b: &'y [Node<'b>],
) -> impl Iterator<Item = Pair<&'x Node<'a>, &'y Node<'b>>> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.element.cmp(&y.element),
        };
        steps::count(1);
        Some(match order {
            Ordering::Less => Pair::Left(a.next()?),
            Ordering::Greater => Pair::Right(b.next()?),
            Ordering::Equal => Pair::Both(a.next()?, b.next()?),
        })
    })
}

/// The place of an element in a sorted level, or where it would be. Doubles its strides, so that a short level held against a
/// long one costs the logarithm of the gaps and not their length.
fn seek(level: &[Node<'_>], element: &PathElement<'_>) -> Result<usize, usize> {
    let mut end = 1;
    while end < level.len() && level[end - 1].element < *element {
        steps::count(1);
        end *= 2;
    }
    let end = end.min(level.len());
    steps::count(1 + end.ilog2() as usize);
    level[..end].binary_search_by(|node| node.element.cmp(element))
}

/// For each node of a level the node of another that has the same element. Nodes in between are skipped.
fn matched<'x, 'a: 'x, 'y, 'b: 'y>(
    nodes: &'x [Node<'a>],
    mut others: &'y [Node<'b>],
) -> impl Iterator<Item = (&'x Node<'a>, Option<&'y Node<'b>>)> {
    nodes.iter().map(move |node| {
        let (skipped, other) = match others {
            [] => (0, None),
            _ => match seek(others, &node.element) {
                Ok(index) => (index + 1, Some(&others[index])),
                Err(index) => (index, None),
            },
        };
        others = &others[skipped..];
        (node, other)
    })
}

impl<'a> Set<'a> {
    /// Whether it has no members.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds the field at a path. Its parents are not added.
    pub fn insert(&mut self, path: &[PathElement<'a>]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let index = match self.nodes.binary_search_by(|node| node.element.cmp(first)) {
            Ok(index) => index,
            Err(index) => {
                let node = Node {
                    element: first.clone(),
                    member: false,
                    children: Set::default(),
                };
                self.nodes.insert(index, node);
                index
            }
        };
        let node = &mut self.nodes[index];
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// The set of some paths of field names.
    pub fn of_fields(paths: &[&'a [&'a str]]) -> Self {
        let mut set = Set::default();
        for path in paths {
            let path: Vec<PathElement<'a>> = path.iter().map(|name| PathElement::field(*name)).collect();
            set.insert(&path);
        }
        set
    }

    fn get(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        let index = self
            .nodes
            .binary_search_by(|node| node.element.cmp(element))
            .ok()?;
        Some(&self.nodes[index])
    }

    /// Whether the field at a path is a member.
    pub fn has(&self, path: &[PathElement<'_>]) -> bool {
        match path.split_first() {
            None => false,
            Some((last, [])) => self.get(last).is_some_and(|node| node.member),
            Some((first, rest)) => self.get(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    pub(super) fn node(&self, element: &PathElement<'_>) -> Option<&Node<'a>> {
        self.get(element)
    }

    /// Adds a node at the end of a level that is being made in order; empty nodes are left out.
    pub(super) fn push(&mut self, element: PathElement<'a>, part: Part<'a>) {
        if part.is_there() {
            self.nodes.push(Node {
                element,
                member: part.member,
                children: part.children,
            });
        }
    }

    /// Restores the order of a level that was made out of order.
    pub(super) fn sort(&mut self) {
        self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
    }

    /// Members of either.
    #[must_use]
    pub fn union(&self, other: &Set<'a>) -> Set<'a> {
        let nodes = zip(&self.nodes, &other.nodes).map(|pair| match pair {
            Pair::Left(node) | Pair::Right(node) => node.clone(),
            Pair::Both(a, b) => Node {
                element: a.element.clone(),
                member: a.member || b.member,
                children: a.children.union(&b.children),
            },
        });
        Set {
            nodes: nodes.collect(),
        }
    }

    /// Members of any of the sets.
    #[must_use]
    pub(super) fn union_of(sets: impl IntoIterator<Item = Set<'a>>) -> Set<'a> {
        let mut all: Vec<Node<'a>> = sets.into_iter().flat_map(|set| set.nodes).collect();
        steps::count(all.len());
        all.sort_by(|a, b| a.element.cmp(&b.element));
        let mut out = Set::default();
        let mut all = all.into_iter().peekable();
        while let Some(first) = all.next() {
            let mut member = first.member;
            let mut children = vec![first.children];
            while let Some(same) = all.next_if(|node| node.element == first.element) {
                member |= same.member;
                children.push(same.children);
            }
            let children = match <[Set<'a>; 1]>::try_from(children) {
                Ok([only]) => only,
                Err(several) => Set::union_of(several),
            };
            out.push(first.element, Part { member, children });
        }
        out
    }

    /// The nodes, each with what `keep` leaves of it.
    pub(super) fn filter_nodes(&self, keep: &mut dyn FnMut(&Node<'a>) -> Part<'a>) -> Set<'a> {
        let mut out = Set::default();
        for node in &self.nodes {
            let part = keep(node);
            if part.is_there() {
                out.push(node.element.clone(), part);
            }
        }
        out
    }

    fn filtered<'b>(
        &self,
        other: &Set<'b>,
        mut keep: impl FnMut(&Node<'a>, Option<&Node<'b>>) -> Part<'a>,
    ) -> Set<'a> {
        let mut out = Set::default();
        for (node, other) in matched(&self.nodes, &other.nodes) {
            let part = keep(node, other);
            if part.is_there() {
                out.push(node.element.clone(), part);
            }
        }
        out
    }

    /// Members of both.
    #[must_use]
    pub fn intersection(&self, other: &Set<'_>) -> Set<'a> {
        self.filtered(other, |node, other| match other {
            None => Part::default(),
            Some(other) => Part {
                member: node.member && other.member,
                children: node.children.intersection(&other.children),
            },
        })
    }

    /// Members that the other does not have. Elements below a member of the other stay.
    #[must_use]
    pub fn difference(&self, other: &Set<'_>) -> Set<'a> {
        self.filtered(other, |node, other| match other {
            None => node.part(),
            Some(other) => Part {
                member: node.member && !other.member,
                children: node.children.difference(&other.children),
            },
        })
    }

    /// Members that are neither in the other nor below its members.
    #[must_use]
    pub fn recursive_difference(&self, other: &Set<'_>) -> Set<'a> {
        self.filtered(other, |node, other| match other {
            None => node.part(),
            Some(other) if other.member => Part::default(),
            Some(other) => Part {
                member: node.member,
                children: node.children.recursive_difference(&other.children),
            },
        })
    }

    /// Whether every member is one of the other's.
    pub fn is_subset(&self, other: &Set<'_>) -> bool {
        matched(&self.nodes, &other.nodes)
            .all(|(a, b)| b.is_some_and(|b| (!a.member || b.member) && a.children.is_subset(&b.children)))
    }

    /// The number of its members.
    pub(super) fn len(&self) -> usize {
        let own = |node: &Node<'_>| usize::from(node.member) + node.children.len();
        self.nodes.iter().map(own).sum()
    }

    /// Calls `f` for every member's path until it breaks: at each level first the members, then what is below.
    pub fn each(&self, f: &mut dyn FnMut(&[PathElement<'a>]) -> ControlFlow<()>) -> ControlFlow<()> {
        fn walk<'a>(
            set: &Set<'a>,
            path: &mut Vec<PathElement<'a>>,
            f: &mut dyn FnMut(&[PathElement<'a>]) -> ControlFlow<()>,
        ) -> ControlFlow<()> {
            for node in set.nodes.iter().filter(|n| n.member) {
                path.push(node.element.clone());
                f(path)?;
                path.pop();
            }
            for node in set.nodes.iter().filter(|n| !n.children.is_empty()) {
                path.push(node.element.clone());
                walk(&node.children, path, f)?;
                path.pop();
            }
            ControlFlow::Continue(())
        }
        walk(self, &mut Vec::new(), f)
    }

    /// The same without borrowing.
    pub fn into_owned(self) -> Set<'static> {
        let own = |node: Node<'a>| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        };
        Set {
            nodes: self.nodes.into_iter().map(own).collect(),
        }
    }

    /// Reads `fieldsV1`.
    ///
    /// # Errors
    /// When a key is malformed. Keys of unknown types are passed over.
    pub fn from_value(fields: &'a Value) -> Result<Self, String> {
        match fields {
            Value::Object(map) => Ok(read(map)?.children),
            Value::Null => Ok(Set::default()),
            _ => Err("fields must be an object".into()),
        }
    }

    /// The `fieldsV1` of this set.
    pub fn to_value(&self) -> Value {
        Value::Object(self.write(false))
    }

    fn write(&self, also_self: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if also_self && !self.nodes.is_empty() {
            out.insert(".".into(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            out.insert(
                node.element.encode(),
                Value::Object(node.children.write(node.member)),
            );
        }
        out
    }
}

/// A node without its element.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) member: bool,
    pub(super) children: Set<'a>,
}

impl Part<'_> {
    fn is_there(&self) -> bool {
        self.member || !self.children.is_empty()
    }
}

fn read(map: &Map<String, Value>) -> Result<Part<'_>, String> {
    let mut part = Part::default();
    let mut sorted = true;
    for (key, value) in map {
        if key == "." {
            part.member = true;
            continue;
        }
        let Some(element) = PathElement::parse(key)? else {
            continue;
        };
        let child = match value {
            Value::Object(map) => read(map)?,
            _ => Part {
                member: true,
                children: Set::default(),
            },
        };
        sorted &= part
            .children
            .nodes
            .last()
            .is_none_or(|last| last.element < element);
        part.children.push(element, child);
    }
    if !sorted {
        part.children.sort();
        part.children.nodes.dedup_by(|a, b| a.element == b.element);
    }
    if part.children.is_empty() {
        part.member = true;
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> Set<'_> {
        Set::from_value(value).unwrap()
    }

    #[test]
    fn recorded_form() {
        for fields in [
            json!({}),
            json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}}),
            json!({"f:l": {"k:{\"n\":10,\"p\":\"x\"}": {".": {}, "f:n": {}}, "k:{\"n\":9}": {}}}),
            json!({"f:s": {"v:\"a\"": {}, "v:10": {}, "v:9": {}}, "f:i": {"i:0": {}}}),
        ] {
            assert_eq!(set(&fields).to_value(), fields);
        }
        assert_eq!(
            set(&json!({"f:a": {".": {}}, "z:x": {}})).to_value(),
            json!({"f:a": {}})
        );
        for bad in [
            json!({"f": {}}),
            json!({"fa:": {}}),
            json!({"k:x": {}}),
            json!({"": {}}),
            json!({"é": {}}),
        ] {
            assert!(Set::from_value(&bad).is_err(), "{bad}");
        }
        let mut shown = Vec::new();
        let fields = json!({"f:l": {"k:{\"n\":\"x\",\"p\":1}": {".": {}, "f:n": {}}}, "f:s": {"v:true": {}}});
        let _ = set(&fields).each(&mut |path| {
            shown.push(super::super::path::show_path(path));
            ControlFlow::Continue(())
        });
        assert_eq!(set(&fields).len(), 3);
        assert_eq!(shown, [".l[n=\"x\",p=1]", ".l[n=\"x\",p=1].n", ".s[=true]"]);
    }

    #[test]
    fn algebra() {
        let a = json!({"f:a": {}, "f:b": {".": {}, "f:x": {}, "f:y": {}}, "f:c": {"f:z": {}}});
        let b = json!({"f:b": {".": {}, "f:y": {}}, "f:c": {}, "f:d": {}});
        let check = |got: Set<'_>, expected: Value| assert_eq!(got.to_value(), expected);
        let (x, y) = (set(&a), set(&b));
        check(
            x.union(&y),
            json!({"f:a": {}, "f:b": {".": {}, "f:x": {}, "f:y": {}}, "f:c": {".": {}, "f:z": {}}, "f:d": {}}),
        );
        check(x.intersection(&y), json!({"f:b": {".": {}, "f:y": {}}}));
        check(
            x.difference(&y),
            json!({"f:a": {}, "f:b": {"f:x": {}}, "f:c": {"f:z": {}}}),
        );
        check(x.recursive_difference(&y), json!({"f:a": {}}));
        assert!(x.intersection(&y).is_subset(&x) && !x.is_subset(&y) && x.is_subset(&x));
        assert!(x.has(&[PathElement::field("b"), PathElement::field("x")]));
        assert!(!x.has(&[PathElement::field("c")]));
        assert_eq!(
            Set::of_fields(&[&["c", "z"], &["a"]]).to_value(),
            json!({"f:a": {}, "f:c": {"f:z": {}}})
        );
    }

    #[test]
    fn many_sets_at_once() {
        let fields = [
            json!({"f:b": {"f:x": {}}}),
            json!({"f:a": {}}),
            json!({"f:b": {".": {}, "f:y": {}}}),
            json!({}),
        ];
        assert_eq!(
            Set::union_of(fields.iter().map(set)).to_value(),
            json!({"f:a": {}, "f:b": {".": {}, "f:x": {}, "f:y": {}}})
        );
        crate::steps::check_growth(100, |size| {
            let fields: Vec<Value> = (0..size)
                .map(|i| json!({"f:data": {format!("f:{i}"): {}}}))
                .collect();
            move || drop(Set::union_of(fields.iter().map(set)))
        });
    }

    #[test]
    fn a_short_set_costs_little_beside_a_long_one() {
        let names = |count: usize| -> Value {
            (0..count)
                .map(|i| (format!("f:{i:05}"), json!({})))
                .collect::<Map<_, _>>()
                .into()
        };
        let (short, long) = (json!({"f:00500": {}, "f:09000": {}, "f:x": {}}), names(10_000));
        let (short, long) = (set(&short), set(&long));
        let operations: [fn(&Set<'_>, &Set<'_>); 4] = [
            |a, b| assert_eq!(a.intersection(b).len(), 2),
            |a, b| assert_eq!(a.difference(b).len(), 1),
            |a, b| assert_eq!(a.recursive_difference(b).len(), 1),
            |a, b| assert!(!a.is_subset(b)),
        ];
        for operation in operations {
            let steps = crate::steps::of(|| operation(&short, &long));
            assert!(steps < 150, "{steps}");
        }
    }
}
