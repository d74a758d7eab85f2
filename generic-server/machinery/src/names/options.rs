//! Checks of request options (`CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`, `TableOptions`). They take
//! the options as JSON objects, whether they came in a query or a body.

use serde_json::{Map, Value};

use super::object_meta::validate_field_manager;
use crate::{FieldError, FieldPath};

fn text<'a>(options: &'a Map<String, Value>, key: &str) -> &'a str {
    options.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn has(options: &Map<String, Value>, key: &str) -> bool {
    options.get(key).is_some_and(|v| !v.is_null())
}

fn dry_run(options: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let Some(value) = options.get("dryRun") else {
        return;
    };
    let all = |v: &Value| v.as_str() == Some("All");
    if !value.as_array().is_some_and(|list| list.iter().all(all)) {
        errors.push(FieldError::not_supported(
            &FieldPath::new("dryRun"),
            value,
            &["All"],
        ));
    }
}

fn field_validation(options: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let value = text(options, "fieldValidation");
    if !matches!(value, "" | "Ignore" | "Warn" | "Strict") {
        errors.push(FieldError::not_supported(
            &FieldPath::new("fieldValidation"),
            &value.into(),
            &["", "Ignore", "Strict", "Warn"],
        ));
    }
}

/// Checks `CreateOptions` and `UpdateOptions`.
pub fn validate_write_options(options: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = validate_field_manager(text(options, "fieldManager"), &FieldPath::new("fieldManager"));
    dry_run(options, &mut errors);
    field_validation(options, &mut errors);
    errors
}

/// Checks `PatchOptions`; `apply` says that the patch is a server-side apply.
pub fn validate_patch_options(options: &Map<String, Value>, apply: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if apply {
        if text(options, "fieldManager").is_empty() {
            errors.push(FieldError::required(
                &FieldPath::new("fieldManager"),
                "is required for apply patch",
            ));
        }
    } else if has(options, "force") {
        errors.push(FieldError::forbidden(
            &FieldPath::new("force"),
            "may not be specified for non-apply patch",
        ));
    }
    errors.extend(validate_write_options(options));
    errors
}

/// Checks `DeleteOptions`.
pub fn validate_delete_options(options: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::new("propagationPolicy");
    let policy = options.get("propagationPolicy").filter(|p| !p.is_null());
    if let Some(policy) = policy {
        if has(options, "orphanDependents") {
            errors.push(FieldError::invalid(
                &path,
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        if !matches!(policy.as_str(), Some("Foreground" | "Background" | "Orphan")) {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(&path, policy, &supported));
        }
    }
    dry_run(options, &mut errors);
    let key = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if options.get(key) == Some(&Value::Bool(true)) {
        let dry = options
            .get("dryRun")
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty());
        for (set, name) in [
            (dry, "dryRun"),
            (has(options, "propagationPolicy"), "propagationPolicy"),
            (has(options, "orphanDependents"), "orphanDependents"),
            (has(options, "gracePeriodSeconds"), "gracePeriodSeconds"),
            (has(options, "preconditions"), "preconditions"),
        ] {
            if set {
                let detail = format!("cannot be set together with .{name}");
                errors.push(FieldError::invalid(
                    &FieldPath::new(key),
                    &Value::Bool(true),
                    detail,
                ));
            }
        }
    }
    errors
}

/// Checks `includeObject` of `TableOptions`.
pub fn validate_include_object(include_object: &str) -> Option<FieldError> {
    let known = matches!(include_object, "" | "None" | "Metadata" | "Object");
    (!known).then(|| {
        FieldError::invalid_str(
            &FieldPath::new("includeObject"),
            include_object,
            "must be 'Metadata', 'Object', 'None', or empty",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(errors: Vec<FieldError>, expected: &[&str]) {
        let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(got, expected);
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn options() {
        check(
            validate_patch_options(&map(json!({"force": true})), false),
            &["force: Forbidden: may not be specified for non-apply patch"],
        );
        check(
            validate_patch_options(&map(json!({})), true),
            &["fieldManager: Required value: is required for apply patch"],
        );
        check(
            validate_write_options(&map(json!({"dryRun": ["x"], "fieldValidation": "x"}))),
            &[
                "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
                "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ],
        );
        check(
            validate_delete_options(&map(json!({"propagationPolicy": "X", "orphanDependents": true}))),
            &[
                "propagationPolicy: Invalid value: \"X\": orphanDependents and deletionPropagation cannot be both set",
                "propagationPolicy: Unsupported value: \"X\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
            ],
        );
        assert!(validate_include_object("x").is_some());
    }
}
