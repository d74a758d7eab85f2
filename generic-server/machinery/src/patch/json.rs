//! JSON patch (RFC 6902), with the habits of the library that upstream uses: `replace` makes missing members, `test` of
//! null passes on absent ones, indices may be negative, and what stands before a path's first slash is ignored.

use serde_json::{Map, Value};

use super::{PatchError, go_type};

/// The most operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;
/// The most bytes that all `copy` operations of a patch may add.
pub const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;
/// The deepest nesting that a patch may make.
pub const MAX_DEPTH: usize = 128;

/// Applies the operations in order; all or none.
///
/// # Errors
/// 400 when the patch is no list of objects, 413 when it has too many operations, 422 when an operation fails.
pub fn apply(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut patcher = Patcher {
        doc: doc.clone(),
        copied: 0,
        depth: depth(doc),
    };
    for operation in operations {
        patcher.step(operation).map_err(PatchError::Unprocessable)?;
    }
    Ok(patcher.doc)
}

fn operations(patch: &Value) -> Result<&[Value], PatchError> {
    let refuse = |text: String| {
        Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {text}"
        )))
    };
    let list = match patch {
        Value::Array(list) => list.as_slice(),
        Value::Null => &[],
        other => {
            return refuse(format!(
                "{} into Go value of type []handlers.jsonPatchOp",
                go_type(other)
            ));
        }
    };
    for operation in list {
        let members = match operation {
            Value::Object(members) => members,
            Value::Null => continue,
            other => {
                return refuse(format!(
                    "{} into Go value of type handlers.jsonPatchOp",
                    go_type(other)
                ));
            }
        };
        for key in ["op", "path", "from"] {
            if let Some(value) = members.get(key).filter(|v| !v.is_string() && !v.is_null()) {
                return refuse(format!(
                    "{} into Go struct field jsonPatchOp.{key} of type string",
                    go_type(value)
                ));
            }
        }
    }
    Ok(list)
}

/// What strict field validation says of the patch itself: its members that mean nothing.
pub fn strict_errors(patch: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for key in operation.as_object().into_iter().flat_map(Map::keys) {
            if !matches!(key.as_str(), "op" | "path" | "from" | "value") {
                errors.push(format!("json patch unknown field \"[{index}].{key}\""));
            }
        }
    }
    errors
}

struct Patcher {
    doc: Value,
    /// Bytes that `copy` has added so far.
    copied: usize,
    /// An upper bound of the document's depth.
    depth: usize,
}

impl Patcher {
    fn step(&mut self, operation: &Value) -> Result<(), String> {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        let path = || text("path").ok_or("operation missing path field: missing value");
        let value = || operation.get("value").cloned().unwrap_or(Value::Null);
        match text("op").unwrap_or("unknown") {
            "add" => self.add(path()?, value()),
            "remove" => self.remove(path()?).map(drop),
            "replace" => self.replace(path()?, value()),
            "move" => {
                let from = text("from").ok_or("operation, missing from field: missing value")?;
                let moved = self.remove(from)?;
                self.add_at_depth(path()?, moved, self.depth)
            }
            "copy" => {
                let from = text("from").ok_or("operation, missing from field: missing value")?;
                let (container, key) = find(&mut self.doc, from).ok_or_else(|| missing(from))?;
                let copy = get(container, &key)?.cloned().unwrap_or(Value::Null);
                self.copied += if copy.is_null() { 0 } else { json_size(&copy) };
                if self.copied > MAX_COPY_BYTES {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPY_BYTES}",
                        self.copied
                    ));
                }
                self.add_at_depth(path()?, copy, self.depth)
            }
            "test" => self.test(path()?, operation.get("value")),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        let depth = depth(&value);
        self.add_at_depth(path, value, depth)
    }

    fn add_at_depth(&mut self, path: &str, value: Value, depth: usize) -> Result<(), String> {
        let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing(path))?;
        match container {
            Value::Array(list) if key == "-" => list.push(value),
            Value::Array(list) => {
                let index = index(&key, list.len() + 1)?;
                if index > list.len() {
                    return Err(bad_index(&key));
                }
                list.insert(index, value);
            }
            Value::Object(map) => {
                map.insert(key, value);
            }
            _ => return Err(missing(path)),
        }
        self.deepened(path, depth)
    }

    fn remove(&mut self, path: &str) -> Result<Value, String> {
        let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing(path))?;
        match container {
            Value::Array(list) => {
                let index = index(&key, list.len())?;
                if index >= list.len() {
                    return Err(bad_index(&key));
                }
                Ok(list.remove(index))
            }
            Value::Object(map) => map
                .remove(&key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
            _ => Err(missing(path)),
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        let added = depth(&value);
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array".into());
            }
            self.doc = value;
            self.depth = added;
            return Ok(());
        }
        let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing(path))?;
        match container {
            Value::Array(list) => {
                let index = index(&key, list.len())?;
                *list.get_mut(index).ok_or_else(|| bad_index(&key))? = value;
            }
            Value::Object(map) => {
                map.insert(key, value);
            }
            _ => return Err(missing(path)),
        }
        self.deepened(path, added)
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Result<(), String> {
        let expected = expected.filter(|v| !v.is_null());
        let found = if path.is_empty() {
            Some(&self.doc)
        } else {
            let (container, key) = find(&mut self.doc, path).ok_or_else(|| missing(path))?;
            get(container, &key)?.filter(|v| !v.is_null())
        };
        if found == expected {
            Ok(())
        } else {
            Err(format!("testing value {path} failed: test failed"))
        }
    }

    /// Keeps the bound on depth after a value was put at `path`; measures anew only when the bound is reached.
    fn deepened(&mut self, path: &str, value: usize) -> Result<(), String> {
        let place = path.bytes().filter(|b| *b == b'/').count();
        self.depth = self.depth.max(place + value);
        if self.depth > MAX_DEPTH {
            self.depth = depth(&self.doc);
        }
        if self.depth > MAX_DEPTH {
            return Err(format!("the patched object nests deeper than {MAX_DEPTH}"));
        }
        Ok(())
    }
}

fn missing(path: &str) -> String {
    format!("operation does not apply: doc is missing path: \"{path}\": missing value")
}

fn bad_index(key: &str) -> String {
    format!("Unable to access invalid index: {key}: invalid index referenced")
}

/// An index of a list of `length`, counted from the end when negative. It may be past the end.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key
        .parse()
        .map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let index = if number < 0 {
        number + i64::try_from(length).unwrap_or(i64::MAX)
    } else {
        number
    };
    usize::try_from(index).map_err(|_| bad_index(key))
}

fn get<'a>(container: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match container {
        Value::Array(list) => list
            .get(index(key, list.len())?)
            .map(Some)
            .ok_or_else(|| bad_index(key)),
        other => Ok(other.get(key)),
    }
}

fn unescape(token: &str) -> String {
    if token.contains('~') {
        token.replace("~1", "/").replace("~0", "~")
    } else {
        token.to_owned()
    }
}

/// The object or list that a path's last token is looked up in, and that token.
fn find<'a>(doc: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut at = doc;
    for token in parents.split('/').skip(1) {
        let token = unescape(token);
        at = match at {
            Value::Array(list) => {
                let index = index(&token, list.len()).ok()?;
                list.get_mut(index)?
            }
            Value::Object(map) => map.get_mut(&token)?,
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(last)))
}

/// How deep containers nest; 0 for a scalar.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The size of a value as JSON.
fn json_size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(doc: Value, patch: Value, expected: Option<Value>) {
        match (apply(&doc, &patch), expected) {
            (Ok(got), Some(expected)) => assert_eq!(got, expected),
            (Err(PatchError::Unprocessable(_)), None) => {}
            (got, expected) => panic!("{got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn operations_apply() {
        let doc = || json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 2, 3]});
        let with = |op: Value, expected: Option<Value>| check(doc(), json!([op]), expected);
        with(
            json!({"op": "add", "path": "/a/x", "value": {"y": null}}),
            Some(json!({"a": {"b": 1, "c~d/e": 2, "x": {"y": null}}, "l": [1, 2, 3]})),
        );
        with(
            json!({"op": "add", "path": "/l/1", "value": 9}),
            Some(json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 9, 2, 3]})),
        );
        with(
            json!({"op": "add", "path": "/l/-", "value": 9}),
            Some(json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 2, 3, 9]})),
        );
        with(
            json!({"op": "add", "path": "/l/-1", "value": 9}),
            Some(json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 2, 3, 9]})),
        );
        with(
            json!({"op": "remove", "path": "/l/-1"}),
            Some(json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 2]})),
        );
        with(
            json!({"op": "remove", "path": "/a/c~0d~1e"}),
            Some(json!({"a": {"b": 1}, "l": [1, 2, 3]})),
        );
        with(
            json!({"op": "replace", "path": "/n", "value": 1}),
            Some(json!({"a": {"b": 1, "c~d/e": 2}, "l": [1, 2, 3], "n": 1})),
        );
        with(
            json!({"op": "move", "from": "/a/b", "path": "/l/0"}),
            Some(json!({"a": {"c~d/e": 2}, "l": [1, 1, 2, 3]})),
        );
        with(
            json!({"op": "copy", "from": "/l", "path": "/a"}),
            Some(json!({"a": [1, 2, 3], "l": [1, 2, 3]})),
        );
        with(
            json!({"op": "copy", "from": "/none", "path": "/a"}),
            Some(json!({"a": null, "l": [1, 2, 3]})),
        );
        with(
            json!({"op": "test", "path": "/l", "value": [1, 2, 3]}),
            Some(doc()),
        );
        with(json!({"op": "test", "path": "/none", "value": null}), Some(doc()));
        with(json!({"op": "test", "path": "/none"}), Some(doc()));
        with(
            json!({"op": "test", "path": "ignored/l/0", "value": 1}),
            Some(doc()),
        );
        with(
            json!({"op": "replace", "path": "", "value": {"z": 1}}),
            Some(json!({"z": 1})),
        );
        for bad in [
            json!({"op": "test", "path": "/l", "value": [1]}),
            json!({"op": "test", "path": "/a/b", "value": null}),
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "remove", "path": "/l/3"}),
            json!({"op": "replace", "path": "/l/3", "value": 1}),
            json!({"op": "add", "path": "/l/5", "value": 1}),
            json!({"op": "add", "path": "/l/x", "value": 1}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "add", "path": "/a/b/x", "value": 1}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "move", "from": "/a", "path": "/a/b"}),
            json!({"op": "explode", "path": "/a"}),
            json!({"op": "add"}),
            json!(null),
        ] {
            with(bad, None);
        }
    }

    #[test]
    fn form() {
        let text = |patch: Value| apply(&json!({}), &patch).unwrap_err().to_string();
        assert_eq!(
            text(json!({"op": "add"})),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        assert_eq!(
            text(json!(["x"])),
            "error decoding patch: json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"
        );
        assert_eq!(
            text(json!([{"op": 1}])),
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
        );
        assert_eq!(
            strict_errors(&json!([{"op": "test", "path": "/x", "comment": 1}])),
            ["json patch unknown field \"[0].comment\""]
        );
        let many = Value::Array(vec![json!({"op": "test", "path": "/x"}); MAX_OPERATIONS + 1]);
        assert_eq!(
            ApiError::from(apply(&json!({}), &many).unwrap_err()).message(),
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    use crate::ApiError;

    #[test]
    fn neither_size_nor_depth_explode() {
        let big = json!({"a": "x".repeat(100_000)});
        let double = json!({"op": "copy", "from": "/a", "path": "/b"});
        check(big, Value::Array(vec![double; 40]), None);
        let inside = json!([
            {"op": "add", "path": "/b", "value": {"x": {"x": {}}}},
            {"op": "move", "from": "/a", "path": "/b/x/x/x"},
            {"op": "move", "from": "/b", "path": "/a"},
        ]);
        let rounds: Vec<Value> = (0..100)
            .flat_map(|_| inside.as_array().unwrap().clone())
            .collect();
        check(json!({"a": {}}), Value::Array(rounds), None);
        let shuffle =
            json!([{"op": "move", "from": "/a", "path": "/b"}, {"op": "move", "from": "/b", "path": "/a"}]);
        let rounds: Vec<Value> = (0..1000)
            .flat_map(|_| shuffle.as_array().unwrap().clone())
            .collect();
        check(json!({"a": {}}), Value::Array(rounds), Some(json!({"a": {}})));
    }
}
