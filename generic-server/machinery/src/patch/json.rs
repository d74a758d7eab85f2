//! JSON patch (RFC 6902), with the habits of the library that upstream uses: `replace` makes missing members, `test` of
//! null passes on absent ones, indices may be negative, and what stands before a path's first slash is ignored.
//!
//! Every value that an operation visits or moves is counted, because a short operation can cost as much as the object is
//! long: it moves the rest of a list, measures the depth, or copies.

use serde_json::{Map, Value};

use super::PatchError;
use crate::field::clip;
use crate::go::json_kind;
use crate::limits;

/// Applies the operations in order; all or none.
///
/// # Errors
/// 400 when the patch is no list of objects, 413 when it has too many operations, 422 when an operation fails.
pub fn apply(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    apply_wanted(doc, patch).map_err(|failure| failure.error)
}

/// Why a patch was not applied.
#[derive(Debug)]
pub struct Failure {
    /// The error.
    pub error: PatchError,
    /// The operation that failed is a `test`: the patch is not wanted.
    pub is_test: bool,
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Self {
        Failure {
            error,
            is_test: false,
        }
    }
}

/// The same, where it makes a difference whether the patch is wanted.
///
/// # Errors
/// As there.
pub fn apply_wanted(doc: &Value, patch: &Value) -> Result<Value, Failure> {
    let operations = operations(patch)?;
    if operations.len() > limits::JSON_PATCH_OPERATIONS {
        return Err(Failure::from(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {}, got {}",
            limits::JSON_PATCH_OPERATIONS,
            operations.len()
        ))));
    }
    let mut patcher = Patcher {
        doc: doc.clone(),
        copied: 0,
        depth: 0,
        steps: Steps(limits::JSON_PATCH_STEPS),
    };
    patcher.depth = patcher.steps.depth(doc).map_err(PatchError::Unprocessable)?;
    for operation in operations {
        patcher.step(operation).map_err(|why| Failure {
            error: PatchError::Unprocessable(why),
            is_test: operation.get("op").and_then(Value::as_str) == Some("test"),
        })?;
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
                json_kind(other)
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
                    json_kind(other)
                ));
            }
        };
        for key in ["op", "path", "from"] {
            if let Some(value) = members.get(key).filter(|v| !v.is_string() && !v.is_null()) {
                return refuse(format!(
                    "{} into Go struct field jsonPatchOp.{key} of type string",
                    json_kind(value)
                ));
            }
        }
    }
    Ok(list)
}

/// The errors of strict field validation for the patch itself: its unknown members, of which the first
/// [`limits::STRICT_ERRORS`] are given.
pub fn strict_errors(patch: &Value) -> Vec<String> {
    let known = |key: &str| matches!(key, "op" | "path" | "from" | "value");
    let operations = patch.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(index, operation)| {
            let members = operation.as_object().into_iter().flat_map(Map::keys);
            members.filter(|key| !known(key)).map(move |key| {
                let key = clip(limits::SHOWN_VALUE_BYTES, key.as_str());
                format!("json patch unknown field \"[{index}].{key}\"")
            })
        })
        .take(limits::STRICT_ERRORS)
        .collect()
}

/// The steps that a patch may still take.
struct Steps(usize);

impl Steps {
    fn take(&mut self, steps: usize) -> Result<(), String> {
        crate::steps::count(steps);
        self.0 = self.0.checked_sub(steps).ok_or_else(|| {
            format!(
                "Unable to complete the patch, its operations visit more than {} values",
                limits::JSON_PATCH_STEPS
            )
        })?;
        Ok(())
    }

    /// How deep containers nest; 0 for a scalar. A step for each value.
    fn depth(&mut self, value: &Value) -> Result<usize, String> {
        self.take(1)?;
        let mut deepest = 0;
        match value {
            Value::Array(list) => {
                for item in list {
                    deepest = deepest.max(self.depth(item)?);
                }
            }
            Value::Object(map) => {
                for member in map.values() {
                    deepest = deepest.max(self.depth(member)?);
                }
            }
            _ => return Ok(0),
        }
        Ok(deepest + 1)
    }
}

struct Patcher {
    doc: Value,
    /// Bytes that `copy` has added so far.
    copied: usize,
    /// An upper bound of the document's depth.
    depth: usize,
    steps: Steps,
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
                let copy = self.copy(from)?;
                self.add_at_depth(path()?, copy, self.depth)
            }
            "test" => self.test(path()?, operation.get("value")),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    /// The value at a path, once more. Its size is known before it is copied.
    fn copy(&mut self, from: &str) -> Result<Value, String> {
        let (container, key) = find(&mut self.doc, from).ok_or_else(|| missing(from))?;
        let Some(found) = get(container, &key)?.filter(|found| !found.is_null()) else {
            return Ok(Value::Null);
        };
        let size = json_size(found);
        self.steps.take(size)?;
        self.copied = self.copied.saturating_add(size);
        if self.copied > limits::JSON_PATCH_COPY_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {}",
                self.copied,
                limits::JSON_PATCH_COPY_BYTES
            ));
        }
        Ok(found.clone())
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), String> {
        let depth = self.steps.depth(&value)?;
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
                self.steps.take(list.len() - index)?;
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
                self.steps.take(list.len() - index)?;
                Ok(list.remove(index))
            }
            Value::Object(map) => map
                .remove(&key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
            _ => Err(missing(path)),
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        let added = self.steps.depth(&value)?;
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

    /// Compares a value with one of the patch, which bounds the work: containers of other sizes differ at once.
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

    /// Keeps the bound on depth after a value was put at `path`; measures again only when the bound is reached.
    fn deepened(&mut self, path: &str, value: usize) -> Result<(), String> {
        let place = path.bytes().filter(|b| *b == b'/').count();
        self.depth = self.depth.max(place + value);
        if self.depth > limits::JSON_PATCH_DEPTH {
            self.depth = self.steps.depth(&self.doc)?;
        }
        if self.depth > limits::JSON_PATCH_DEPTH {
            return Err(format!(
                "the patched object nests deeper than {}",
                limits::JSON_PATCH_DEPTH
            ));
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
        let tests = |count| repeated(count, json!({"op": "test", "path": "/x"}));
        let many = tests(limits::JSON_PATCH_OPERATIONS + 1);
        assert!(apply(&json!({}), &tests(limits::JSON_PATCH_OPERATIONS)).is_ok());
        assert_eq!(
            ApiError::from(apply(&json!({}), &many).unwrap_err()).message(),
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }

    use crate::ApiError;

    /// A patch of `count` times the same operation.
    fn repeated(count: usize, operation: Value) -> Value {
        Value::Array(vec![operation; count])
    }

    /// `{"list": [...]}` with so many items.
    fn list_of(count: usize) -> Value {
        json!({"list": vec![0; count]})
    }

    fn steps(doc: &Value, patch: &Value) -> usize {
        crate::steps::of(|| apply(doc, patch))
    }

    #[test]
    fn moved_values_are_counted() {
        let front = json!({"op": "add", "path": "/list/0", "value": 1});
        let turn = json!({"op": "move", "from": "/list/0", "path": "/list/-"});
        let copy = json!({"op": "copy", "from": "/list", "path": "/copy"});
        for operation in [&front, &turn, &copy] {
            let (one, ten) = (repeated(1, operation.clone()), repeated(10, operation.clone()));
            let few = steps(&list_of(1_000), &ten) - steps(&list_of(1_000), &one);
            assert!((9_000..20_000).contains(&few), "{operation}: {few}");
        }
        let last = json!({"op": "add", "path": "/list/-", "value": 1});
        let added = steps(&list_of(1_000), &repeated(1_000, last)) - steps(&list_of(1_000), &json!([]));
        assert_eq!(added, 1_000, "additions at the end move nothing");
    }

    #[test]
    fn steps_are_bounded() {
        let front = json!({"op": "add", "path": "/list/0", "value": 1});
        let doc = list_of(100_000);
        let base = steps(&doc, &json!([]));
        // Each insertion moves one item more than the one before it.
        let most = (1..)
            .scan(base, |spent, n| {
                *spent += 100_000 + n;
                Some(*spent)
            })
            .take_while(|spent| *spent <= limits::JSON_PATCH_STEPS)
            .count();
        assert!(apply(&doc, &repeated(most, front.clone())).is_ok());
        let error = apply(&doc, &repeated(most + 1, front)).unwrap_err();
        assert_eq!(
            error,
            PatchError::Unprocessable(
                "Unable to complete the patch, its operations visit more than 20000000 values".into()
            )
        );
        assert_eq!(ApiError::from(error).code(), 422);
    }

    #[test]
    fn copied_bytes_and_strict_errors_are_bounded() {
        let text = "x".repeat(limits::JSON_PATCH_COPY_BYTES / 4 - 2);
        let copies = |count| repeated(count, json!({"op": "copy", "from": "/a", "path": "/b"}));
        check(json!({"a": text}), copies(4), Some(json!({"a": text, "b": text})));
        check(json!({"a": text}), copies(5), None);
        // The quotes count.
        let text = "x".repeat(limits::JSON_PATCH_COPY_BYTES - 2);
        check(json!({"a": text}), copies(1), Some(json!({"a": text, "b": text})));
        check(json!({"a": format!("{text}x")}), copies(1), None);
        let odd = |count| strict_errors(&repeated(count, json!({"odd": 1}))).len();
        assert_eq!(odd(limits::STRICT_ERRORS), limits::STRICT_ERRORS);
        assert_eq!(odd(limits::STRICT_ERRORS + 1), limits::STRICT_ERRORS);
    }

    #[test]
    fn a_failed_test_differs_from_other_failures() {
        let check = |patch: Value, expected: Option<bool>| {
            let failed = apply_wanted(&json!({"a": 1}), &patch).err();
            assert_eq!(failed.map(|failure| failure.is_test), expected, "{patch}");
        };
        let (right, wrong) = (
            json!({"op": "test", "path": "/a", "value": 1}),
            json!({"op": "test", "path": "/a", "value": 2}),
        );
        let absent = json!({"op": "remove", "path": "/b"});
        check(json!([right]), None);
        check(json!([right, wrong, absent]), Some(true));
        check(json!([absent, wrong]), Some(false));
        check(json!([1]), Some(false));
        check(repeated(limits::JSON_PATCH_OPERATIONS + 1, wrong), Some(false));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        let under_root = |levels: usize| json!([{"op": "add", "path": "/a", "value": nested(levels)}]);
        let most = limits::JSON_PATCH_DEPTH - 1;
        check(json!({}), under_root(most), Some(json!({"a": nested(most)})));
        check(json!({}), under_root(most + 1), None);
    }

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
