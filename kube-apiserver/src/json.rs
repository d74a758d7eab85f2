//! Reading and filling JSON objects as the kinds of this crate do it: absent, null and the empty value read alike,
//! as they do where upstream's Go types have no third state.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// Shorthands over [`Value`]. Paths are of object keys, joined by dots.
pub(crate) trait Json {
    /// The value at a path, null when absent.
    fn dig(&self, path: &str) -> &Value;
    /// The string at a path, empty when absent.
    fn text(&self, path: &str) -> &str;
    /// The integer at a path.
    fn int(&self, path: &str) -> Option<i64>;
    /// The boolean at a path, false when absent.
    fn flag(&self, path: &str) -> bool;
    /// The list at a path, empty when absent.
    fn list(&self, path: &str) -> &[Value];
    /// The object at a path, when it is there.
    fn object_at(&self, path: &str) -> Option<&Map<String, Value>>;
    /// Whether there is a value other than null.
    fn has(&self, path: &str) -> bool;
    /// The entries of the object at a path; none when absent.
    fn entries(&self, path: &str) -> impl Iterator<Item = (&str, &Value)>;
    /// The strings of the list at a path.
    fn strings(&self, path: &str) -> impl Iterator<Item = &str>;
    /// The value at a path, to change; `None` when absent or null.
    fn dig_mut(&mut self, path: &str) -> Option<&mut Value>;
    /// The items of the list at a path, to change.
    fn list_mut(&mut self, path: &str) -> &mut [Value];
    /// The object under a key, made when absent.
    fn ensure(&mut self, key: &str) -> &mut Value;
    /// Sets a key of this object.
    fn put(&mut self, key: &str, value: impl Into<Value>);
    /// Removes a key of this object and returns its value.
    fn take_key(&mut self, key: &str) -> Option<Value>;
    /// Sets a key that is absent or null.
    fn fill(&mut self, key: &str, value: impl Into<Value>);
    /// Sets a key that is absent, null or an empty string.
    fn fill_text(&mut self, key: &str, value: &str);
    /// Sets a key that is absent, null or zero.
    fn fill_int(&mut self, key: &str, value: i64);
    /// Makes `key` what it is in `from`, absent included.
    fn copy_key(&mut self, key: &str, from: &Value);
}

impl Json for Value {
    fn dig(&self, path: &str) -> &Value {
        #[cfg(test)]
        steps::count();
        path.split('.')
            .try_fold(self, |value, key| value.get(key))
            .unwrap_or(&NULL)
    }

    fn text(&self, path: &str) -> &str {
        self.dig(path).as_str().unwrap_or_default()
    }

    fn int(&self, path: &str) -> Option<i64> {
        self.dig(path).as_i64()
    }

    fn flag(&self, path: &str) -> bool {
        self.dig(path).as_bool().unwrap_or_default()
    }

    fn list(&self, path: &str) -> &[Value] {
        self.dig(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn object_at(&self, path: &str) -> Option<&Map<String, Value>> {
        self.dig(path).as_object()
    }

    fn has(&self, path: &str) -> bool {
        !self.dig(path).is_null()
    }

    fn entries(&self, path: &str) -> impl Iterator<Item = (&str, &Value)> {
        self.object_at(path)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value))
    }

    fn strings(&self, path: &str) -> impl Iterator<Item = &str> {
        self.list(path).iter().filter_map(Value::as_str)
    }

    fn dig_mut(&mut self, path: &str) -> Option<&mut Value> {
        path.split('.')
            .try_fold(self, |value, key| value.get_mut(key))
            .filter(|value| !value.is_null())
    }

    fn list_mut(&mut self, path: &str) -> &mut [Value] {
        self.dig_mut(path)
            .and_then(Value::as_array_mut)
            .map(Vec::as_mut_slice)
            .unwrap_or_default()
    }

    fn ensure(&mut self, key: &str) -> &mut Value {
        if !self.is_object() {
            *self = Value::Object(Map::new());
        }
        let slot = self
            .as_object_mut()
            .expect("made an object above")
            .entry(key)
            .or_insert(Value::Null);
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        slot
    }

    fn put(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(object) = self.as_object_mut() {
            let value = value.into();
            // A list that grows item by item is written as often as it has items.
            #[cfg(test)]
            steps::count_all(value.as_array().map_or(1, Vec::len));
            object.insert(key.into(), value);
        }
    }

    fn take_key(&mut self, key: &str) -> Option<Value> {
        self.as_object_mut()?.remove(key)
    }

    fn fill(&mut self, key: &str, value: impl Into<Value>) {
        if !self.has_key(key) {
            self.put(key, value);
        }
    }

    fn fill_text(&mut self, key: &str, value: &str) {
        if self
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            self.put(key, value);
        }
    }

    fn fill_int(&mut self, key: &str, value: i64) {
        if self.get(key).and_then(Value::as_i64).unwrap_or_default() == 0 {
            self.put(key, value);
        }
    }

    fn copy_key(&mut self, key: &str, from: &Value) {
        match from.get(key) {
            Some(value) => self.put(key, value.clone()),
            None => {
                self.take_key(key);
            }
        }
    }
}

/// Helpers of [`Json`].
trait HasKey {
    fn has_key(&self, key: &str) -> bool;
}

impl HasKey for Value {
    fn has_key(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !value.is_null())
    }
}

/// Whether two values mean the same where an empty list and none are one (upstream's `apiequality.Semantic.DeepEqual`). Decoding leaves out
/// empty values that mean nothing, so that an empty object or text that is there is another value than none.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            x.iter()
                .all(|(key, value)| same(value, y.get(key).unwrap_or(&NULL)))
                && y.iter()
                    .all(|(key, value)| x.contains_key(key) || same(&NULL, value))
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(left, right)| same(left, right))
        }
        _ => a == b || (empty(a) && empty(b)),
    }
}

/// Whether a value is what a Go type without pointers is at first: null, empty, or an object of nothing else.
pub(crate) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.values().all(is_zero),
        Value::String(text) => text.is_empty(),
        _ => empty(value),
    }
}

/// Null and an empty list.
fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Counts steps, by which tests measure the cost of a pass over an object or a role.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<usize> = const { Cell::new(0) });

    /// Counts a step: a look-up of a field, or a comparison.
    pub(crate) fn count() {
        count_all(1);
    }

    /// Counts as many: what is moved or copied.
    pub(crate) fn count_all(steps: usize) {
        STEPS.set(STEPS.get() + steps);
    }

    /// How many steps an action makes on this thread.
    pub(crate) fn of(act: impl FnOnce()) -> usize {
        let before = STEPS.get();
        act();
        STEPS.get() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_null_and_empty_lists_mean_the_same() {
        let object = json!({"spec": {"a": null, "b": "", "c": [], "n": 3}});
        assert_eq!(object.text("spec.a"), "");
        assert_eq!(object.text("spec.none.deep"), "");
        assert_eq!(object.int("spec.n"), Some(3));
        assert!(!object.has("spec.a") && object.has("spec.b"));
        assert!(same(&object, &json!({"spec": {"b": "", "n": 3}})));
        for other in [
            json!({"n": 3}),
            json!({"b": "", "n": 4}),
            json!({"b": "", "n": 3, "d": {}}),
        ] {
            assert!(!same(&object, &json!({"spec": other})));
        }
        assert!(is_zero(&json!({"a": null, "b": {"c": "", "d": []}})) && !is_zero(&object));
    }

    #[test]
    fn filling_is_idempotent() {
        let mut object = json!({"b": ""});
        for _ in 0..2 {
            object.fill("a", 1);
            object.fill_text("b", "x");
            object.ensure("c").fill("d", true);
        }
        assert_eq!(object, json!({"a": 1, "b": "x", "c": {"d": true}}));
    }
}
