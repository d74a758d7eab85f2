//! JSON values as Go decodes them into its types.

use machinery::go::json_kind;
use serde_json::Value;

/// What Go says of a value of another kind than is wanted.
pub(super) fn mismatch(value: &Value, wanted: &str) -> String {
    let kind = json_kind(value);
    format!("json: cannot unmarshal {kind} into Go value of type {wanted}")
}

/// A string as Go decodes it: null is an empty one.
pub(super) fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        other => Err(mismatch(other, "string")),
    }
}

/// A string, or a list of them.
pub(super) fn text_or_texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => match items.iter().map(text).collect() {
            Ok(texts) => Ok(texts),
            Err(_) => Err(mismatch(value, "string")),
        },
        one => Ok(vec![text(one)?]),
    }
}
