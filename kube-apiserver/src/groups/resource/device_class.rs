//! DeviceClass.

use machinery::FieldPath;
use machinery::names::{name_is_dns_subdomain, qualified_name};
use serde_json::Value;

use super::device::{configuration, fits, selectors};
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    // Upstream does not look at prefixes of names here.
    name: |name, prefix| match prefix {
        true => Vec::new(),
        false => name_is_dns_subdomain(name, false),
    },
    generation: &["spec"],
    returns_deleted: true,
    expression_faults: Some(super::selectors::of_class),
    validate: |errors, object| validate(errors, object, &Value::Null),
    validate_update: validate,
    ..Rules::PLAIN
};

/// The most configurations.
const CONFIGURATIONS: usize = 32;

fn validate(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    selectors(errors, &path.child("selectors"), spec.list("selectors"));
    let at = path.child("config");
    let configurations = spec.list("config");
    let stored = !old.is_null() && same(spec.dig("config"), old.dig("spec.config"));
    if fits(errors, &at, configurations.len(), CONFIGURATIONS) {
        for (index, item) in configurations.iter().enumerate() {
            configuration(errors, &at.index(index), item, stored);
        }
    }
    if let Some(name) = spec
        .dig("extendedResourceName")
        .as_str()
        .filter(|name| !is_extended(name))
    {
        let text = "must be a valid extended resource name";
        errors.invalid(&path.child("extendedResourceName"), name, text);
    }
}

/// Whether a resource is one of nodes that Kubernetes does not know, and whose quota can be named.
fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
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
        check(
            json!({"extendedResourceName": "cpu", "selectors": [{"cel": {"expression": "1"}}]}),
            &[
                r#"spec.selectors[0].cel.expression: Invalid value: "1": must evaluate to bool or the unknown type, not int"#,
                r#"spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name"#,
            ],
        );
        check(json!({"extendedResourceName": "example.com/gpu"}), &[]);
        let many: Vec<Value> = (0..33).map(|_| json!({})).collect();
        check(
            json!({"selectors": many}),
            &["spec.selectors: Too many: 33: must have at most 32 items"],
        );
    }
}
