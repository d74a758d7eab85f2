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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(types: &[&str], expected: &[&str]) {
        let all: Vec<Value> = types.iter().map(|kind| json!({"type": kind})).collect();
        let object = json!({"status": {"conditions": all}});
        check_errors(|errors| conditions(errors, &object), expected);
    }

    #[test]
    fn types_are_there_once() {
        check(&["Dangling", "Other"], &[]);
        check(&[""], &["status.conditions[0].type: Required value"]);
        check(
            &["A", "A"],
            &[r#"status.conditions[1].type: Duplicate value: "A""#],
        );
    }
}
