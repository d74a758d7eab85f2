//! Strategic merge patch: a merge patch that knows from the schema which lists merge by key, and obeys directives.
//!
//! Directives are `$patch` (`replace`, `delete`, `merge`), `$retainKeys`, `$deleteFromPrimitiveList/x` and
//! `$setElementOrder/x`. Mirrors `k8s.io/apimachinery/pkg/util/strategicpatch` as the server uses it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::PatchError;
use crate::field::clip;
use crate::go;
use crate::go::json_kind;
use crate::schema::SchemaRef;
use crate::{limits, steps};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList";
const ORDER_PREFIX: &str = "$setElementOrder";

type Object = Map<String, Value>;
type List = Vec<Value>;

/// Merges `patch` into `doc`, an object of the kind that `schema` describes.
///
/// # Errors
/// 400 for malformed directives, 422 for lists of lists, else 500: as upstream.
pub fn apply(doc: &Value, patch: &Value, schema: SchemaRef<'_>) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(patch)
        )));
    };
    let original = doc.as_object().cloned().unwrap_or_default();
    merge_map(original, patch.clone(), Some(schema)).map(Value::Object)
}

fn internal(text: impl Into<String>) -> PatchError {
    PatchError::Internal(text.into())
}

fn bad_order() -> PatchError {
    PatchError::BadRequest("invalid patch format of setElementOrder list".into())
}

fn bad_retain_keys() -> PatchError {
    PatchError::BadRequest("invalid patch format of retainKeys".into())
}

/// A value of the patch as errors show it.
fn go_print(value: &Value) -> String {
    clip(limits::SHOWN_VALUE_BYTES, &go::Print(value))
}

fn go_print_map(map: &Object) -> String {
    go_print(&Value::Object(map.clone()))
}

fn no_merge_key(map: &Object, key: &str) -> PatchError {
    internal(format!(
        "map: {} does not contain declared merge key: {key}",
        go_print_map(map)
    ))
}

fn bad_type(expected: &str, actual: &Value) -> PatchError {
    let actual = match actual {
        Value::Null => "%!s(<nil>)",
        other => go::type_name(other),
    };
    internal(format!("expected a {expected}, but received a {actual}"))
}

/// How a field's list merges, and what its items are.
struct Slice<'a> {
    items: Option<SchemaRef<'a>>,
    merge: bool,
    merge_key: &'a str,
}

type Looked<'a> = (Option<SchemaRef<'a>>, Option<&'a crate::schema::PatchMeta>);

/// The schema of a member, and how it is patched. Go maps have none: merging objects inside them is refused, as upstream does.
fn lookup<'a>(schema: Option<SchemaRef<'a>>, key: &str) -> Result<Looked<'a>, PatchError> {
    let schema = schema.filter(|s| s.node().additional.is_none());
    let Some(schema) = schema else {
        return Err(internal(
            "merging an object in json but data type is not struct, instead is: map",
        ));
    };
    match schema.field(key) {
        Some((field, node)) => Ok((Some(node), field.patch.as_deref())),
        None => Err(internal(format!(
            "unable to find api field in struct {} for the json field \"{key}\"",
            short_name(schema)
        ))),
    }
}

fn short_name(schema: SchemaRef<'_>) -> &str {
    let name = schema.node().type_name.as_deref().unwrap_or_default();
    name.rsplit('.').next().unwrap_or_default()
}

fn lookup_slice<'a>(schema: Option<SchemaRef<'a>>, key: &str) -> Result<Slice<'a>, PatchError> {
    let (node, patch) = lookup(schema, key)?;
    Ok(Slice {
        items: node.and_then(SchemaRef::items),
        merge: patch.is_some_and(|p| p.merge),
        merge_key: patch.and_then(|p| p.merge_key.as_deref()).unwrap_or_default(),
    })
}

fn merge_map(
    mut original: Object,
    mut patch: Object,
    schema: Option<SchemaRef<'_>>,
) -> Result<Object, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(bad_patch_type(&patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        let (key, is_delete_list) = match key.strip_prefix(DELETE_PREFIX) {
            None => (key, false),
            Some(rest) => match rest.strip_prefix('/') {
                Some(key) => (key.to_owned(), true),
                None => {
                    return Err(PatchError::BadRequest(
                        "invalid patch format of primitive list".into(),
                    ));
                }
            },
        };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let Some(slot) = original.get_mut(&key) else {
            if !is_delete_list && let Some(value) = cleaned(value) {
                original.insert(key, value);
            }
            continue;
        };
        match (std::mem::take(slot), value) {
            (Value::Object(old), Value::Object(new)) => {
                let (schema, patch) = lookup(schema, &key)?;
                let replace = patch.is_some_and(|patch| patch.replace);
                *slot = Value::Object(match replace {
                    true => new,
                    false => merge_map(old, new, schema)?,
                });
            }
            (Value::Array(old), Value::Array(new)) => {
                let slice = lookup_slice(schema, &key)?;
                *slot = Value::Array(if slice.merge || is_delete_list {
                    merge_slice(old, new, &slice, is_delete_list)?
                } else {
                    new
                });
            }
            (old, _) if is_delete_list => *slot = old,
            (_, new) => match cleaned(new) {
                Some(new) => *slot = new,
                None => {
                    original.remove(&key);
                }
            },
        }
    }
    Ok(original)
}

fn bad_patch_type(patch: &Object) -> PatchError {
    let directive = patch.get(PATCH).map(go_print).unwrap_or_default();
    internal(format!(
        "unknown patch type: {directive} in map: {}",
        go_print_map(patch)
    ))
}

/// A value from the patch as it is stored where the object has nothing to merge it with: without nulls and directives.
fn cleaned(mut value: Value) -> Option<Value> {
    discard_nulls(&mut value);
    without_directives(value)
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => {
            let kept = map
                .into_iter()
                .filter_map(|(k, v)| Some((k, without_directives(v)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(Value::Array(
            list.into_iter().filter_map(without_directives).collect(),
        )),
        scalar => Some(scalar),
    }
}

/// `$retainKeys` names all members that stay; the patch may not set others.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(keys) = keys else {
        return Err(bad_retain_keys());
    };
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |key: &str| keys.contains(key);
    for (key, value) in patch.iter() {
        let directive = key.starts_with(DELETE_PREFIX) || key.starts_with(ORDER_PREFIX);
        if !value.is_null() && !directive && !listed(key) {
            return Err(bad_retain_keys());
        }
    }
    original.retain(|key, _| listed(key));
    Ok(())
}

/// Merges the lists that come with a `$setElementOrder`, and takes both from the patch.
fn merge_ordered_lists(
    original: &mut Object,
    patch: &mut Object,
    schema: Option<SchemaRef<'_>>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|k| k.starts_with(ORDER_PREFIX))
        .cloned()
        .collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(bad_type("[]interface {}", &other.unwrap_or(Value::Null))),
        };
        let key = directive[ORDER_PREFIX.len()..]
            .strip_prefix('/')
            .ok_or_else(bad_order)?;
        let list = |from: &Object| match from.get(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list.clone())),
            Some(other) => Err(bad_type("[]interface {}", other)),
        };
        let (live, patched) = (list(original)?, list(patch)?);
        let slice = lookup_slice(schema, key)?;
        check_order(patched.as_deref().unwrap_or_default(), &order, slice.merge_key)?;
        let merged = match (live.clone(), patched.clone()) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(patched)) => patched.into_iter().filter_map(without_directives).collect(),
            (Some(live), Some(patched)) if slice.merge => merge_slice(live, patched, &slice, false)?,
            (Some(_), Some(patched)) => patched,
        };
        let (named, others) = partition(merged, &order, slice.merge_key)?;
        let live = live.unwrap_or_default();
        element_is_object(&[&live, patched.as_deref().unwrap_or_default()])?;
        original.insert(
            key.into(),
            Value::Array(in_order(named, others, &order, &live, slice.merge_key)?),
        );
        patch.remove(key);
    }
    Ok(())
}

/// The patch's items must come in the order that the directive gives.
fn check_order(patched: &[Value], order: &[Value], merge_key: &str) -> Result<(), PatchError> {
    if patched.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in patched {
        if !merge_key.is_empty() {
            let map = item
                .as_object()
                .ok_or_else(|| bad_type("map[string]interface {}", item))?;
            if map.contains_key(PATCH) {
                continue;
            }
        }
        loop {
            let Some(next) = wanted.next() else {
                return Err(internal(format!(
                    "The order in patch list:\n{}\n doesn't match {ORDER_PREFIX} list:\n{}\n",
                    go_print(&patched.to_vec().into()),
                    go_print(&order.to_vec().into())
                )));
            };
            if identity(item, merge_key)? == identity(next, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

/// The identity of an item: its merge key's value, or a scalar itself.
fn identity<'a>(item: &'a Value, merge_key: &str) -> Result<&'a Value, PatchError> {
    if merge_key.is_empty() {
        return Ok(item);
    }
    let map = item
        .as_object()
        .ok_or_else(|| bad_type("map[string]interface {}", item))?;
    map.get(merge_key).ok_or_else(|| no_merge_key(map, merge_key))
}

/// Whether the items are objects. They must all be of one type, and no lists.
fn element_is_object(lists: &[&[Value]]) -> Result<bool, PatchError> {
    let mut items = lists.iter().copied().flatten();
    let first = items
        .next()
        .ok_or_else(|| internal("no elements in any of the given slices"))?;
    if first.is_array() {
        return Err(PatchError::Unprocessable(
            "lists of lists are not supported".into(),
        ));
    }
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.is_f64() == b.is_f64(),
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    };
    if first.is_null() || !items.all(|item| same(first, item)) {
        let all: Vec<String> = lists.iter().map(|l| go_print(&l.to_vec().into())).collect();
        return Err(internal(format!(
            "list element types are not identical: [{}]",
            all.join(" ")
        )));
    }
    Ok(first.is_object())
}

fn merge_slice(
    original: List,
    patch: List,
    slice: &Slice<'_>,
    is_delete_list: bool,
) -> Result<List, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !element_is_object(&[&original, &patch])? {
        if is_delete_list {
            let deleted: HashSet<&Value> = patch.iter().collect();
            return Ok(original.into_iter().filter(|v| !deleted.contains(v)).collect());
        }
        let merged = deduplicated(original.iter().chain(&patch).cloned().collect());
        let (named, others) = partition(merged, &patch, "")?;
        return in_order(named, others, &patch, &original, "");
    }
    let key = slice.merge_key;
    if key.is_empty() {
        return Err(internal("cannot merge lists without merge key for struct"));
    }
    let (original, patch) = special_elements(original, patch, key)?;
    let mut merged = original.clone();
    let mut places = positions(&merged, key);
    for item in &patch {
        let Value::Object(new) = item else { continue };
        let name = new.get(key).ok_or_else(|| no_merge_key(new, key))?;
        match places.get(name).copied() {
            Some(at) => {
                let old = match std::mem::take(&mut merged[at]) {
                    Value::Object(old) => old,
                    _ => Object::new(),
                };
                merged[at] = Value::Object(merge_map(old, new.clone(), slice.items)?);
                // A null in the patch takes the key away, and a directive may put another in its place. The next item of
                // the old name is behind this one, so that looking for it passes each item once.
                if merged[at].get(key) != Some(name) {
                    let next = merged[at + 1..]
                        .iter()
                        .position(|item| item.get(key) == Some(name));
                    steps::count(next.unwrap_or(merged.len() - at - 1));
                    match next {
                        Some(next) => places.insert(name.clone(), at + 1 + next),
                        None => places.remove(name),
                    };
                    if let Some(other) = merged[at].get(key) {
                        let first = places.entry(other.clone()).or_insert(at);
                        *first = at.min(*first);
                    }
                }
            }
            None => {
                places.insert(name.clone(), merged.len());
                merged.push(item.clone());
            }
        }
    }
    let (named, others) = partition(merged, &patch, key)?;
    in_order(named, others, &patch, &original, key)
}

/// Where each item is, by the value of its merge key; the first counts.
fn positions(list: &[Value], key: &str) -> HashMap<Value, usize> {
    let mut out = HashMap::with_capacity(list.len());
    steps::count(list.len());
    for (index, item) in list.iter().enumerate() {
        if let Some(name) = if key.is_empty() { Some(item) } else { item.get(key) } {
            out.entry(name.clone()).or_insert(index);
        }
    }
    out
}

/// Obeys `$patch` in list items: deletes named items, or drops all that the object has.
fn special_elements(mut original: List, patch: List, key: &str) -> Result<(List, List), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Some(map) = item.as_object() else { continue };
        match map.get(PATCH).map(Value::as_str) {
            None => plain.push(item),
            Some(Some("delete")) => {
                deleted.insert(map.get(key).ok_or_else(|| no_merge_key(map, key))?.clone());
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => {
                return Err(internal("merging lists cannot yet be specified in the patch"));
            }
            Some(_) => return Err(bad_patch_type(map)),
        }
    }
    if !deleted.is_empty() {
        steps::count(original.len());
        original.retain(|old| old.get(key).is_none_or(|name| !deleted.contains(name)));
    }
    Ok(if replace {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

/// Removes repeated scalars. Upstream fills the gap with the last item; the order is restored afterwards.
fn deduplicated(mut list: List) -> List {
    let mut i = 0;
    let mut seen = std::collections::HashSet::new();
    while i < list.len() {
        if seen.insert(list[i].clone()) {
            i += 1;
        } else {
            list.swap_remove(i);
        }
    }
    list
}

/// Splits a list into the items that `by` names, and the others.
fn partition(list: List, by: &[Value], key: &str) -> Result<(List, List), PatchError> {
    let named = positions(by, key);
    let mut out = (Vec::new(), Vec::new());
    for item in list {
        if named.contains_key(identity(&item, key)?) {
            out.0.push(item);
        } else {
            out.1.push(item);
        }
    }
    Ok(out)
}

/// Sorts the items that the patch names by the patch's order, the others by the live order, and weaves them together.
fn in_order(
    patched: List,
    others: List,
    patch_order: &[Value],
    live_order: &[Value],
    key: &str,
) -> Result<List, PatchError> {
    let live = positions(live_order, key);
    let patched = sorted(patched, &positions(patch_order, key), key)?;
    let others = sorted(others, &live, key)?;
    let place = |item: &Value| identity(item, key).ok().and_then(|name| live.get(name)).copied();
    let mut out = Vec::with_capacity(patched.len() + others.len());
    let (mut left, mut right) = (others.into_iter().peekable(), patched.into_iter().peekable());
    loop {
        let left_first = match (left.peek(), right.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => matches!((place(l), place(r)), (Some(l), Some(r)) if l < r),
        };
        out.extend(if left_first { left.next() } else { right.next() });
    }
}

fn sorted(list: List, order: &HashMap<Value, usize>, key: &str) -> Result<List, PatchError> {
    let mut placed: Vec<(Option<usize>, Value)> = Vec::with_capacity(list.len());
    for item in list {
        placed.push((order.get(identity(&item, key)?).copied(), item));
    }
    if placed.iter().all(|(place, _)| place.is_some()) {
        placed.sort_by_key(|(place, _)| *place);
    } else if placed.len() <= 20 {
        // Upstream's comparison says "less" whenever an item has no place; the result of its insertion sort is visible to clients.
        for i in 1..placed.len() {
            let mut j = i;
            while j > 0 {
                let less = match (placed[j].0, placed[j - 1].0) {
                    (Some(a), Some(b)) => a < b,
                    _ => true,
                };
                if !less {
                    break;
                }
                placed.swap(j, j - 1);
                j -= 1;
            }
        }
    }
    Ok(placed.into_iter().map(|(_, item)| item).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{FieldDef, ListType, Node, NodeId, PatchMeta, Schema, Type};

    /// `spec` with `containers` merged by `name` (`env` inside), `finalizers` merged as scalars, `args` atomic, `strategy`
    /// with retained keys, `selector` replaced, `labels` a map.
    fn schema() -> Schema {
        let mut schema = Schema::default();
        let mut add = |node: Node| {
            schema.nodes.push(node);
            NodeId(u32::try_from(schema.nodes.len() - 1).unwrap())
        };
        let field = |name: &str, node: NodeId, patch: Option<(bool, Option<&str>)>| FieldDef {
            name: name.into(),
            node,
            required: false,
            omit_empty: true,
            pointer: false,
            default: None,
            patch: patch.map(|(merge, key)| {
                Box::new(PatchMeta {
                    merge,
                    retain_keys: !merge && key.is_none(),
                    replace: !merge && key.is_some(),
                    merge_key: key.map(Into::into),
                })
            }),
            number: None,
            via: [0; 2],
        };
        let object = |mut fields: Vec<FieldDef>| {
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            Node {
                ty: Type::Object,
                fields: fields.into(),
                ..Node::default()
            }
        };
        let list = |items| Node {
            ty: Type::Array,
            items: Some(items),
            list_type: ListType::Atomic,
            ..Node::default()
        };
        let string = add(Node {
            ty: Type::String,
            ..Node::default()
        });
        let strings = add(list(string));
        let map = add(Node {
            ty: Type::Object,
            additional: Some(string),
            ..Node::default()
        });
        let env = add(object(vec![
            field("name", string, None),
            field("value", string, None),
        ]));
        let envs = add(list(env));
        let container = add(object(vec![
            field("name", string, None),
            field("image", string, None),
            field("args", strings, None),
            field("env", envs, Some((true, Some("name")))),
        ]));
        let containers = add(list(container));
        let rolling = add(object(vec![field("max", string, None)]));
        let strategy = add(object(vec![
            field("type", string, None),
            field("rolling", rolling, None),
        ]));
        let spec = add(object(vec![
            field("containers", containers, Some((true, Some("name")))),
            field("finalizers", strings, Some((true, None))),
            field("args", strings, None),
            field("strategy", strategy, Some((false, None))),
            field("labels", map, None),
            field("selector", container, Some((false, Some("")))),
            field("plain", containers, None),
        ]));
        let root = add(object(vec![field("spec", spec, None)]));
        schema.root = Some(root);
        schema
    }

    fn run(doc: Value, patch: Value) -> Result<Value, PatchError> {
        let schema = schema();
        let out = apply(
            &json!({"spec": doc}),
            &json!({"spec": patch}),
            schema.at(schema.root.unwrap()),
        );
        out.map(|mut v| v["spec"].take())
    }

    #[track_caller]
    fn check(doc: Value, patch: Value, expected: Value) {
        assert_eq!(run(doc, patch).unwrap(), expected);
    }

    fn two() -> Value {
        json!({"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}]})
    }

    fn names(value: &Value) -> Vec<&str> {
        value["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn lists_merge_by_key() {
        let got = run(
            two(),
            json!({"containers": [{"name": "b", "image": "3"}, {"name": "c"}]}),
        )
        .unwrap();
        assert_eq!(got["containers"][1], json!({"name": "b", "image": "3"}));
        assert_eq!(names(&got), ["a", "b", "c"]);
        let got = run(two(), json!({"containers": [{"name": "c"}]})).unwrap();
        assert_eq!(names(&got), ["c", "a", "b"], "new items go before existing ones");
        let got = run(
            two(),
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": null}, {"name": "Y", "value": "2"}]}]}),
        );
        assert_eq!(
            got.unwrap()["containers"][0]["env"],
            json!([{"name": "X"}, {"name": "Y", "value": "2"}])
        );
        check(
            json!({"args": ["a"]}),
            json!({"args": ["b"]}),
            json!({"args": ["b"]}),
        );
        check(
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["c", "a"]}),
            json!({"finalizers": ["c", "a", "b"]}),
        );
        check(
            json!({}),
            json!({"containers": [{"name": "x", "image": null}]}),
            json!({"containers": [{"name": "x"}]}),
        );
        check(
            json!({"labels": {"a": "1", "b": "2"}}),
            json!({"labels": {"a": null, "c": "3"}}),
            json!({"labels": {"b": "2", "c": "3"}}),
        );
    }

    #[test]
    fn directives() {
        let got = run(two(), json!({"containers": [{"name": "a", "$patch": "delete"}]})).unwrap();
        assert_eq!(names(&got), ["b"]);
        let got = run(
            two(),
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
        )
        .unwrap();
        assert_eq!(names(&got), ["z"]);
        check(
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"$patch": "replace", "b": "2"}}),
            json!({"labels": {"b": "2"}}),
        );
        check(
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"$patch": "delete"}}),
            json!({"labels": {}}),
        );
        check(
            json!({"finalizers": ["a", "b", "c"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["b", "z"]}),
            json!({"finalizers": ["a", "c"]}),
        );
        check(
            json!({"finalizers": ["a", "b"]}),
            json!({"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}),
            json!({"finalizers": ["c", "b", "a"]}),
        );
        let got = run(
            two(),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "9"}]}),
        );
        let got = got.unwrap();
        assert_eq!(names(&got), ["b", "a"]);
        assert_eq!(got["containers"][1]["image"], "9");
        check(
            json!({"strategy": {"type": "A", "rolling": {"max": "1"}}}),
            json!({"strategy": {"$retainKeys": ["type"], "type": "B"}}),
            json!({"strategy": {"type": "B"}}),
        );
        check(json!({}), json!({"labels": {"$patch": "delete"}}), json!({}));
        // A selector is replaced as a whole.
        check(
            json!({"selector": {"name": "a", "image": "1"}}),
            json!({"selector": {"name": "b"}}),
            json!({"selector": {"name": "b"}}),
        );
    }

    #[test]
    fn errors() {
        for (patch, expected) in [
            (
                json!({"containers": [{"image": "x"}]}),
                internal("map: map[image:x] does not contain declared merge key: name"),
            ),
            (
                json!({"containers": [{"name": "a", "$patch": "explode"}]}),
                internal("unknown patch type: explode in map: map[$patch:explode name:a]"),
            ),
            (
                json!({"containers": [{"name": "a", "$patch": "merge"}]}),
                internal("merging lists cannot yet be specified in the patch"),
            ),
            (
                json!({"containers": [[]]}),
                internal(
                    "list element types are not identical: [[map[env:[map[name:X value:1]] image:1 name:a] map[image:2 name:b]] [[]]]",
                ),
            ),
            (
                json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}),
                internal(
                    "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
                ),
            ),
            (
                json!({"$setElementOrder/containers": "x"}),
                internal("expected a []interface {}, but received a string"),
            ),
            (
                json!({"$deleteFromPrimitiveList": ["x"]}),
                PatchError::BadRequest("invalid patch format of primitive list".into()),
            ),
            (json!({"$retainKeys": "x"}), bad_retain_keys()),
            (json!({"$retainKeys": ["x"], "labels": {}}), bad_retain_keys()),
        ] {
            assert_eq!(run(two(), patch.clone()).unwrap_err(), expected, "{patch}");
        }
    }

    #[test]
    fn work_grows_with_the_lists() {
        let containers = |size: usize, with: Value| -> Value {
            let item = |index: usize| {
                let mut item = json!({"name": format!("c{index}")});
                item.as_object_mut()
                    .unwrap()
                    .extend(with.as_object().unwrap().clone());
                item
            };
            (0..size).map(item).collect()
        };
        let live = |size: usize| json!({"containers": containers(size, json!({"image": "1"}))});
        let patches: [fn(Value) -> Value; 2] = [
            |items| json!({ "containers": items }),
            |items| json!({"containers": items, "$setElementOrder/containers": items}),
        ];
        for patch in patches {
            for with in [json!({"image": "2"}), json!({"$patch": "delete"})] {
                crate::steps::check_growth(100, |size| {
                    let (doc, patch) = (live(size), patch(containers(size, with.clone())));
                    move || drop(run(doc, patch))
                });
            }
        }
    }

    #[test]
    fn a_name_that_goes_leaves_its_place_to_the_next() {
        let doc = json!({"containers": [{"name": null, "image": "1"}, {"name": null, "image": "2"}, {"name": "x"}]});
        let patch = json!({"containers": [{"name": null, "image": "3"}, {"name": null, "image": "4"}]});
        // Both items lose their names, and the list cannot be put in order then.
        assert!(run(doc, patch).is_err());
    }
}
