//! Writes that change nothing but the times of managed fields.

use serde_json::{Map, Value};

/// Whether two objects differ at most in the times of their `managedFields`; then a write may keep the old ones, and so
/// becomes none.
pub fn same_but_times(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    same_but(old, new, "metadata", |old, new| match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            same_but(old, new, "managedFields", |old, new| {
                let list = |entries: Option<&'_ Value>| entries.and_then(Value::as_array).map_or(0, Vec::len);
                let entries = |entries: Option<&'_ Value>| {
                    let list = entries.and_then(Value::as_array).cloned().unwrap_or_default();
                    list.into_iter().map(|mut entry| {
                        entry.as_object_mut().map(|e| e.remove("time"));
                        entry
                    })
                };
                list(old) == list(new) && entries(old).eq(entries(new))
            })
        }
        (old, new) => old == new,
    })
}

/// Whether two objects are the same but for one member, which `same` looks at.
fn same_but(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    key: &str,
    same: impl Fn(Option<&Value>, Option<&Value>) -> bool,
) -> bool {
    let rest = |map: &'_ Map<String, Value>| map.len() - usize::from(map.contains_key(key));
    rest(old) == rest(new)
        && old
            .iter()
            .filter(|(k, _)| *k != key)
            .all(|(k, v)| new.get(k) == Some(v))
        && same(old.get(key), new.get(key))
}
