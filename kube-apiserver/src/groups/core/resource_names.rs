//! Names of resources (`cpu`, `hugepages-2Mi`, `example.com/gpu`) and amounts of them.

use machinery::FieldPath;
use machinery::names::qualified_name;
use serde_json::Value;

use crate::errors::{Errors, NEGATIVE};
use crate::quantity::amount;

/// An amount of a resource: not negative, and whole where parts make no sense.
pub(crate) fn quantity_value(errors: &mut Errors, path: &FieldPath<'_>, name: &str, raw: &Value) {
    let Some(quantity) = amount(raw) else { return };
    if quantity.signum() < 0 {
        errors.invalid(path, quantity.to_string(), NEGATIVE);
    }
    let whole = name.starts_with("hugepages-")
        || (name.contains('/') && !name.starts_with("kubernetes.io/"))
        || matches!(
            name,
            "pods"
                | "services"
                | "replicationcontrollers"
                | "resourcequotas"
                | "secrets"
                | "configmaps"
                | "persistentvolumeclaims"
                | "services.nodeports"
                | "services.loadbalancers"
        );
    if whole && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, quantity.to_string(), "must be an integer");
    }
}

/// Whether more of a resource may be promised than there is.
pub(crate) fn overcommit_allowed(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native && !name.starts_with("hugepages-")
}

/// Resource names that need no prefix.
pub(crate) const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// The name of a resource of containers.
pub(crate) fn resource_name(errors: &mut Errors, path: &FieldPath<'_>, name: &str) {
    let texts = qualified_name(name);
    if !texts.is_empty() {
        return errors.text(path, name, texts);
    }
    let huge = name.starts_with("hugepages-");
    if !name.contains('/') {
        if !STANDARD.contains(&name) && !huge {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !huge {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !name.contains("kubernetes.io/") {
        let quota_form = format!("requests.{name}");
        if name.starts_with("requests.") || !qualified_name(&quota_form).is_empty() {
            errors.invalid(path, name, "doesn't follow extended resource name standard");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[test]
    fn names() {
        #[track_caller]
        fn check(name: &str, expected: &[&str]) {
            let path = FieldPath::new("r");
            check_errors(|errors| resource_name(errors, &path, name), expected);
        }
        for good in [
            "cpu",
            "memory",
            "ephemeral-storage",
            "hugepages-2Mi",
            "example.com/gpu",
            "kubernetes.io/x",
        ] {
            check(good, &[]);
        }
        check(
            "pods",
            &[r#"r: Invalid value: "pods": must be a standard resource for containers"#],
        );
        check(
            "disk",
            &[
                r#"r: Invalid value: "disk": must be a standard resource type or fully qualified"#,
                r#"r: Invalid value: "disk": must be a standard resource for containers"#,
            ],
        );
        check(
            "requests.example.com/gpu",
            &[
                r#"r: Invalid value: "requests.example.com/gpu": doesn't follow extended resource name standard"#,
            ],
        );
    }

    #[test]
    fn amounts() {
        #[track_caller]
        fn check(name: &str, amount: Value, expected: &[&str]) {
            let path = FieldPath::new("r");
            check_errors(|errors| quantity_value(errors, &path, name, &amount), expected);
        }
        check("cpu", json!("500m"), &[]);
        check("cpu", json!("many"), &[]);
        check(
            "cpu",
            json!("-1"),
            &[r#"r: Invalid value: "-1": must be greater than or equal to 0"#],
        );
        for whole in ["pods", "hugepages-2Mi", "example.com/gpu"] {
            check(whole, json!("2"), &[]);
            check(
                whole,
                json!("500m"),
                &[r#"r: Invalid value: "500m": must be an integer"#],
            );
        }
    }

    #[test]
    fn overcommitment() {
        for (name, expected) in [
            ("cpu", true),
            ("kubernetes.io/x", true),
            ("hugepages-2Mi", false),
            ("example.com/gpu", false),
        ] {
            assert_eq!(overcommit_allowed(name), expected, "{name}");
        }
    }
}
