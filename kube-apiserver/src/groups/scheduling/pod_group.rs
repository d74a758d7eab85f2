//! PodGroup: pods that are scheduled together.

use machinery::names::conditions::validate_conditions;
use machinery::names::{long_name, short_name};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::policy;
use crate::errors::Errors;
use crate::json::{Json, same};
use crate::rules::{Rules, StatusMeta};
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    status: true,
    status_meta: StatusMeta::Reset,
    // Its feature is off, which upstream shows by leaving it out of what it stores; whatever is read has the default again.
    default: |object| object.ensure("spec").fill("disruptionMode", "Pod"),
    drop_disabled: |_, object, old| {
        let spec = object.ensure("spec");
        policy::drop_disabled(spec, old.dig("spec"));
        if !old.has("spec.disruptionMode") {
            spec.put("disruptionMode", "Pod");
        }
    },
    validate: |errors, object| {
        let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
        if spec.has("podGroupTemplateRef") {
            let path = path.child("podGroupTemplateRef");
            template(errors, &path, spec.dig("podGroupTemplateRef"));
        }
        let policy = spec.dig("schedulingPolicy");
        policy::scheduling_policy(errors, &path.child("schedulingPolicy"), policy);
    },
    validate_update,
    prepare_status: |object, old| {
        if old.list("spec.resourceClaims").is_empty() {
            object.ensure("status").take_key("resourceClaimStatuses");
        }
    },
    validate_status,
    ..Rules::PLAIN
};

/// The most claims of a PodGroup, as upstream has it.
const CLAIMS: usize = 4;

fn template(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value) {
    if !reference.has("workload") {
        return errors.invalid(path, "", "must specify one of: `workload`");
    }
    let (path, workload) = (path.child("workload"), reference.dig("workload"));
    let name = workload.text("workloadName");
    if errors.need(&path.child("workloadName"), name) {
        errors.text(&path.child("workloadName"), name, long_name(name));
    }
    let name = workload.text("podGroupTemplateName");
    if errors.need(&path.child("podGroupTemplateName"), name) {
        errors.text(&path.child("podGroupTemplateName"), name, short_name(name));
    }
}

fn validate_update(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    let (new, old) = (object.dig("spec"), old.dig("spec"));
    for key in ["podGroupTemplateRef", "schedulingPolicy"] {
        policy::is_changed(errors, &path.child(key), new.dig(key), old.dig(key));
    }
    // What an old object has of a feature that is off may stay or go, and not change.
    let forbid = |errors: &mut Errors, key: &str| {
        if policy::is_set(new.dig(key)) && !same(new.dig(key), old.dig(key)) {
            errors.forbidden(&path.child(key), "");
        }
    };
    forbid(errors, "schedulingConstraints");
    let claims = path.child("resourceClaims");
    let list = new.list("resourceClaims");
    let changed = policy::is_changed(
        errors,
        &claims,
        new.dig("resourceClaims"),
        old.dig("resourceClaims"),
    );
    if changed && list.len() > CLAIMS {
        errors.push(FieldError::too_many(&claims, list.len(), CLAIMS));
    }
    for key in ["disruptionMode", "priorityClassName", "priority"] {
        forbid(errors, key);
    }
}

fn validate_status(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("status");
    for error in validate_conditions(object.list("status.conditions"), &path.child("conditions")) {
        errors.push(error);
    }
    let path = path.child("resourceClaimStatuses");
    let list = object.list("status.resourceClaimStatuses");
    let claims: Seen<&str> = object
        .list("spec.resourceClaims")
        .iter()
        .map(|claim| claim.text("name"))
        .collect();
    for (index, status) in list.iter().enumerate() {
        let name = status.text("name");
        if !claims.has(name) {
            let text = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&path.index(index).child("name"), name, text);
        }
    }
    let before = old.dig("status.resourceClaimStatuses");
    if same(object.dig("status.resourceClaimStatuses"), before) {
        return;
    }
    if list.len() > CLAIMS {
        return errors.push(FieldError::too_many(&path, list.len(), CLAIMS));
    }
    let mut names = Seen::default();
    for (index, status) in list.iter().enumerate() {
        if names.again(status.text("name")) {
            errors.duplicate(&path.index(index), status.clone());
        }
    }
    for (index, status) in list.iter().enumerate() {
        let unchanged = before.as_array().is_some_and(|all| all.contains(status));
        let name = status.text("resourceClaimName");
        if !unchanged && status.has("resourceClaimName") {
            let at = path.index(index);
            errors.text(&at.child("resourceClaimName"), name, long_name(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::{kind, with_spec};

    fn group(over: &Value) -> Value {
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}},
            "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}});
        with_spec(json!({"spec": spec}), over)
    }

    #[track_caller]
    fn check(over: Value, expected: &[&str]) {
        kind("podgroups.scheduling.k8s.io").create(&group(&over), expected);
    }

    #[test]
    fn groups_are_validated() {
        check(json!({}), &[]);
        check(
            json!({"podGroupTemplateRef": null, "schedulingPolicy": {"basic": {}}}),
            &[],
        );
        check(
            json!({"podGroupTemplateRef": {}, "schedulingPolicy": {}}),
            &[
                r#"spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`"#,
                r#"spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`"#,
            ],
        );
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        let at = "spec.podGroupTemplateRef.workload";
        check(
            json!({"podGroupTemplateRef": {"workload": {"workloadName": "", "podGroupTemplateName": "A"}}}),
            &[
                &format!("{at}.workloadName: Required value"),
                &format!("{at}.podGroupTemplateName: Invalid value: \"A\": {label}"),
            ],
        );
    }

    #[test]
    fn fields_of_features_that_are_off_are_dropped() {
        let over = json!({"disruptionMode": "PodGroup", "priority": 3, "priorityClassName": "p",
            "schedulingConstraints": {"topology": []}, "resourceClaims": [{"name": "c", "resourceClaimName": "x"}]});
        let made = kind("podgroups.scheduling.k8s.io").created(&group(&over));
        assert_eq!(made["spec"], group(&json!({"disruptionMode": "Pod"}))["spec"]);
        assert_eq!(made["status"], json!({}));
    }

    #[test]
    fn groups_do_not_change() {
        let groups = kind("podgroups.scheduling.k8s.io");
        groups.update(
            &group(&json!({})),
            &json!({"metadata": {"labels": {"a": "b"}}}),
            &[],
        );
        groups.update(
            &group(&json!({})),
            &json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "podGroupTemplateRef": null}}),
            &[
                "spec.podGroupTemplateRef: Invalid value: null: field is immutable",
                "spec.schedulingPolicy: Invalid value: null: field is immutable",
            ],
        );
        groups.update(
            &group(&json!({})),
            &json!({"spec": {"disruptionMode": "PodGroup"}}),
            &["spec.disruptionMode: Forbidden"],
        );
        groups.update(
            &group(&json!({})),
            &json!({"spec": {"disruptionMode": null, "priority": 3}}),
            &[],
        );
    }

    #[test]
    fn a_status_has_conditions_and_claims() {
        let groups = kind("podgroups.scheduling.k8s.io");
        groups.update_of(
            "status",
            &group(&json!({})),
            &json!({"status": {"conditions": [{"type": "PodGroupScheduled", "status": "Maybe"}], "resourceClaimStatuses": [{"name": "x"}]}}),
            &[
                r#"status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown""#,
                "status.conditions[0].lastTransitionTime: Required value",
                "status.conditions[0].reason: Required value",
            ],
        );
        // Claims are there where the group was made while their feature was on.
        let claims =
            |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"name": name})).collect() };
        let errors = |statuses: Vec<Value>| -> Vec<String> {
            let object = json!({"spec": {"resourceClaims": claims(&["a", "b"])}, "status": {"resourceClaimStatuses": statuses}});
            let found = Errors::collect(|errors| validate_status(errors, &object, &json!({})));
            found.iter().map(ToString::to_string).collect()
        };
        assert!(errors(claims(&["a", "b"])).is_empty());
        assert_eq!(
            errors(claims(&["a", "c", "a"])),
            [
                r#"status.resourceClaimStatuses[1].name: Invalid value: "c": must match the name of an entry in `spec.resourceClaims`"#,
                r#"status.resourceClaimStatuses[2]: Duplicate value: {"name":"a"}"#,
            ]
        );
        assert_eq!(
            errors(claims(&["a", "b", "a", "b", "a"])),
            ["status.resourceClaimStatuses: Too many: 5: must have at most 4 items"]
        );
        assert_eq!(
            errors(vec![json!({"name": "a", "resourceClaimName": "-"})]).len(),
            1
        );
    }
}
