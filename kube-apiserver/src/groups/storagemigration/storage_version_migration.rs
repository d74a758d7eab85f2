//! StorageVersionMigration.

use machinery::names::conditions::validate_conditions;
use machinery::names::{dns1035_label, dns1123_subdomain};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::rules::{Rules, StatusMeta};

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    unconditional_update: false,
    validate,
    validate_update: |errors, object, old| {
        validate(errors, object);
        errors.immutable_at("spec", object, old);
    },
    validate_status,
    ..Rules::PLAIN
};

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let path = path.child("resource");
    let (group, resource) = (
        object.text("spec.resource.group"),
        object.text("spec.resource.resource"),
    );
    let mut judge = |at: &FieldPath<'_>, value: &str, texts: Vec<String>| {
        if !texts.is_empty() {
            errors.invalid(at, value, texts.join(","));
        }
    };
    if !resource.is_empty() {
        judge(&path.child("resource"), resource, dns1035_label(resource));
    }
    if !group.is_empty() {
        judge(&path.child("group"), group, dns1123_subdomain(group));
    }
    if resource.is_empty() {
        errors.required(&path.child("resource"), "resource is required to be set");
    }
}

/// Whether a condition says so.
pub(crate) fn says(object: &Value, kind: &str) -> bool {
    let conditions = object.list("status.conditions");
    conditions
        .iter()
        .any(|c| c.text("type") == kind && c.text("status") == "True")
}

fn validate_status(errors: &mut Errors, object: &Value, old: &Value) {
    let status = FieldPath::new("status");
    let (version, before) = (
        object.text("status.resourceVersion"),
        old.text("status.resourceVersion"),
    );
    let at = status.child("resourceVersion");
    let number = !version.starts_with('0') && version.bytes().all(|b| b.is_ascii_digit());
    if !version.is_empty() && !number {
        let why = format!("resource version is not well formed: {version}");
        errors.invalid(&at, version, why);
    }
    let conditions = status.child("conditions");
    for fault in validate_conditions(object.list("status.conditions"), &conditions) {
        errors.push(fault);
    }
    if !before.is_empty() && before != version {
        errors.invalid(&at, version, "field is immutable");
    }
    let mut odd = |why: &str| {
        errors.push(FieldError::invalid(
            &conditions,
            object.dig("status.conditions"),
            why,
        ))
    };
    if says(object, "Succeeded") && says(object, "Failed") {
        odd("Both success and failed conditions cannot be true at the same time");
    }
    if says(old, "Succeeded") && !says(object, "Succeeded") {
        odd("Success condition cannot be set to false once it is true");
    }
    if says(old, "Failed") && !says(object, "Failed") {
        odd("Failed condition cannot be set to false once it is true");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::kind;

    #[track_caller]
    fn check(resource: Value, expected: &[&str]) {
        let object = json!({"spec": {"resource": resource}});
        kind("storageversionmigrations.storagemigration.k8s.io").create(&object, expected);
    }

    #[test]
    fn migrations_are_of_a_resource() {
        check(json!({"group": "example.com", "resource": "foos"}), &[]);
        check(
            json!({"group": "", "resource": ""}),
            &["spec.resource.resource: Required value: resource is required to be set"],
        );
        let object = json!({"spec": {"resource": {"group": "", "resource": "pods"}}});
        let migrations = kind("storageversionmigrations.storagemigration.k8s.io");
        migrations.update_of(
            "status",
            &object,
            &json!({"status": {"resourceVersion": "01"}}),
            &[r#"status.resourceVersion: Invalid value: "01": resource version is not well formed: 01"#],
        );
    }
}
