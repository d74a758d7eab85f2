//! Quantities inside objects.

use machinery::quantity::Quantity;
use serde_json::Value;

/// The quantity that a value holds, as a string or as a number; `None` when there is none.
pub(crate) fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}
