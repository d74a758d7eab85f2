//! The conditions of both kinds.

use machinery::FieldPath;
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::unique::Seen;

/// Their types are unique and not empty.
pub(super) fn conditions(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("status");
    let path = path.child("conditions");
    let mut seen = Seen::default();
    for (index, condition) in object.list("status.conditions").iter().enumerate() {
        let at = path.index(index);
        let kind = condition.text("type");
        if seen.again(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        errors.need(&at.child("type"), kind);
    }
}
