//! Quantities inside objects.

use machinery::quantity::Quantity;
use serde_json::Value;

use crate::json::Json;

/// The quantity that a value holds, as a string or as a number; `None` when there is none.
pub(crate) fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Rounds the quantities of the lists at these paths up to thousandths, as upstream's defaults do.
pub(crate) fn round_lists(object: &mut Value, paths: &[&str]) {
    for path in paths {
        let list = object.dig_mut(path).and_then(Value::as_object_mut);
        for (_, quantity) in list.into_iter().flatten() {
            if let Some(exact) = amount(quantity).filter(|quantity| !quantity.fits_scale(-3)) {
                *quantity = format!("{}m", exact.milli_value()).into();
            }
        }
    }
}

/// The lists of what is requested and of its limits.
pub(crate) const RESOURCES: &[&str] = &["resources.limits", "resources.requests"];
