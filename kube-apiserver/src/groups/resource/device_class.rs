//! DeviceClass. Its selectors are not compiled here.

use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::groups::core::pod_spec::csi_driver;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    generation: &["spec"],
    returns_deleted: true,
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    ..Rules::PLAIN
};

/// The most selectors, and the most configurations.
const ITEMS: usize = 32;
/// The longest expression of a selector (upstream's `CELSelectorExpressionMaxLength`).
const EXPRESSION_BYTES: usize = 10 * 1024;

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    let at = path.child("selectors");
    let selectors = spec.list("selectors");
    if selectors.len() > ITEMS {
        errors.push(FieldError::too_many(&at, selectors.len(), ITEMS));
    } else {
        for (index, selector) in selectors.iter().enumerate() {
            let at = at.index(index);
            let at = at.child("cel");
            if !selector.has("cel") {
                errors.required(&at, "");
            }
            if selector.text("cel.expression").len() > EXPRESSION_BYTES {
                errors.too_long(&at.child("expression"), EXPRESSION_BYTES);
            }
        }
    }
    let at = path.child("config");
    let configurations = spec.list("config");
    if configurations.len() > ITEMS {
        return errors.push(FieldError::too_many(&at, configurations.len(), ITEMS));
    }
    for (index, configuration) in configurations.iter().enumerate() {
        let at = at.index(index);
        let at = at.child("opaque");
        if !configuration.has("opaque") {
            errors.required(&at, "");
            continue;
        }
        csi_driver(errors, &at.child("driver"), configuration.text("opaque.driver"));
        if !configuration.has("opaque.parameters") {
            errors.required(&at.child("parameters"), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        kind("deviceclasses.resource.k8s.io").create(&json!({"spec": spec}), expected);
    }

    #[test]
    fn classes_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"selectors": [{}]}),
            &["spec.selectors[0].cel: Required value"],
        );
        check(
            json!({"config": [{}, {"opaque": {"driver": "", "parameters": {"a": 1}}}]}),
            &[
                "spec.config[0].opaque: Required value",
                "spec.config[1].opaque.driver: Required value",
            ],
        );
        let many: Vec<Value> = (0..33).map(|_| json!({})).collect();
        check(
            json!({"selectors": many}),
            &["spec.selectors: Too many: 33: must have at most 32 items"],
        );
    }
}
