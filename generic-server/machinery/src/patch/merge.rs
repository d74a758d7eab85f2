//! JSON merge patch (RFC 7386), with the habits of the library that upstream uses.

use serde_json::{Map, Value};

use super::PatchError;
use crate::go::json_kind;

/// Merges `patch` into `doc`: null removes, objects merge, everything else replaces.
///
/// # Errors
/// 400 when the patch is no object.
pub fn apply(doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(match patch {
            Value::Null => PatchError::BadRequest("Invalid JSON Patch".into()),
            other => PatchError::BadRequest(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                json_kind(other)
            )),
        });
    };
    Ok(match doc {
        Value::Object(doc) => Value::Object(merge(doc, patch)),
        _ => pruned(&Value::Object(patch.clone())),
    })
}

fn merge(doc: &Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    let mut out = doc.clone();
    merge_into(&mut out, patch);
    out
}

fn merge_into(doc: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (doc.get_mut(key), value) {
            (_, Value::Null) => {
                doc.remove(key);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge_into(old, new),
            // A list or scalar in the place of an object is taken as it is; in any other place nulls inside go.
            (Some(slot @ Value::Object(_)), new) => *slot = new.clone(),
            (Some(slot), new) => *slot = pruned(new),
            (None, new) => {
                doc.insert(key.clone(), pruned(new));
            }
        }
    }
}

/// The value without the null members of its objects. Null items of lists stay.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, v)| !v.is_null());
            Value::Object(kept.map(|(k, v)| (k.clone(), pruned(v))).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(pruned).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cases() {
        for (doc, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [1, 2]}),
                json!({"a": [3, null]}),
                json!({"a": [3, null]}),
            ),
            (
                json!({}),
                json!({"a": {"b": null, "c": [{"d": null}]}}),
                json!({"a": {"c": [{}]}}),
            ),
            (
                json!({"a": {"x": 1}}),
                json!({"a": [{"b": null}]}),
                json!({"a": [{"b": null}]}),
            ),
            (json!({"a": 1}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
            (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
        ] {
            assert_eq!(apply(&doc, &patch).unwrap(), expected, "{doc} {patch}");
        }
    }

    #[test]
    fn not_an_object() {
        assert_eq!(
            apply(&json!({}), &json!([])).unwrap_err(),
            PatchError::BadRequest(
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".into()
            )
        );
        assert!(apply(&json!({}), &json!(null)).is_err());
    }
}
