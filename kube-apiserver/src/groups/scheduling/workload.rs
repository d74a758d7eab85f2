//! Workload: templates of the groups of pods that something runs.

use machinery::names::{long_name, path_segment_name, short_name};
use machinery::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::policy;
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;
use crate::unique::Seen;

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |_, object, old| {
        let before = old.list("spec.podGroupTemplates");
        let templates = object.list_mut("spec.podGroupTemplates").iter_mut();
        for (index, template) in templates.enumerate() {
            let old = before.get(index).unwrap_or(&Value::Null);
            policy::drop_disabled(template, old);
            // Upstream writes this one though it is not there.
            template.fill("schedulingConstraints", Value::Null);
            if !old.has("disruptionMode") {
                template.take_key("disruptionMode");
            }
        }
    },
    validate,
    validate_update: |errors, object, old| {
        let path = FieldPath::new("spec");
        let (new, old) = (object.dig("spec"), old.dig("spec"));
        for key in ["controllerRef", "podGroupTemplates"] {
            policy::is_changed(errors, &path.child(key), new.dig(key), old.dig(key));
        }
        too_many(errors, &path, new, old);
    },
    ..Rules::PLAIN
};

/// The most templates of a Workload, as upstream has it.
const TEMPLATES: usize = 8;

fn validate(errors: &mut Errors, object: &Value) {
    let (path, spec) = (FieldPath::new("spec"), object.dig("spec"));
    if spec.has("controllerRef") {
        controller(errors, &path.child("controllerRef"), spec.dig("controllerRef"));
    }
    let (path, list) = (path.child("podGroupTemplates"), spec.list("podGroupTemplates"));
    if list.is_empty() {
        return errors.required(&path, "");
    }
    if list.len() > TEMPLATES {
        return errors.push(FieldError::too_many(&path, list.len(), TEMPLATES));
    }
    let mut names = Seen::default();
    for (index, template) in list.iter().enumerate() {
        if names.again(template.text("name")) {
            let error = FieldError::duplicate(&path.index(index), &Value::Null);
            errors.shown(error, shown(template));
        }
    }
    for (index, template) in list.iter().enumerate() {
        let path = path.index(index);
        let name = template.text("name");
        if errors.need(&path.child("name"), name) {
            errors.text(&path.child("name"), name, short_name(name));
        }
        let policy = template.dig("schedulingPolicy");
        policy::scheduling_policy(errors, &path.child("schedulingPolicy"), policy);
    }
}

/// A list that changes is counted, too. One that cannot change is as long as it was.
fn too_many(errors: &mut Errors, path: &FieldPath<'_>, new: &Value, old: &Value) {
    let count = |spec: &Value| spec.list("podGroupTemplates").len();
    let path = path.child("podGroupTemplates");
    if count(new) == count(old) {
        return;
    }
    if count(new) > TEMPLATES {
        errors.push(FieldError::too_many(&path, count(new), TEMPLATES));
    }
    if count(new) == 0 {
        errors.required(&path, "");
    }
}

fn controller(errors: &mut Errors, path: &FieldPath<'_>, reference: &Value) {
    let group = reference.text("apiGroup");
    if !group.is_empty() {
        errors.text(&path.child("apiGroup"), group, long_name(group));
    }
    for key in ["kind", "name"] {
        let text = reference.text(key);
        if errors.need(&path.child(key), text) {
            errors.text(&path.child(key), text, path_segment_name(text));
        }
    }
}

/// A template as upstream prints it: the fields in their order there.
fn shown(template: &Value) -> String {
    let policy = template.dig("schedulingPolicy");
    let mut kinds = Vec::new();
    if policy.has("basic") {
        kinds.push(r#""basic":{}"#.to_owned());
    }
    if policy.has("gang") {
        let count = policy.int("gang.minCount").unwrap_or_default();
        kinds.push(format!(r#""gang":{{"minCount":{count}}}"#));
    }
    format!(
        r#"{{"name":{},"schedulingPolicy":{{{}}},"schedulingConstraints":null}}"#,
        json!(template.text("name")),
        kinds.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::check::{kind, with_spec};

    fn workload(over: &Value) -> Value {
        let templates = json!([{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]);
        with_spec(json!({"spec": {"podGroupTemplates": templates}}), over)
    }

    #[track_caller]
    fn check(over: Value, expected: &[&str]) {
        kind("workloads.scheduling.k8s.io").create(&workload(&over), expected);
    }

    fn templates(count: usize) -> Vec<Value> {
        (0..count)
            .map(|n| json!({"name": format!("t{n}"), "schedulingPolicy": {"basic": {}}}))
            .collect()
    }

    #[test]
    fn workloads_are_validated() {
        check(json!({}), &[]);
        check(json!({"podGroupTemplates": templates(8)}), &[]);
        check(
            json!({"podGroupTemplates": templates(9)}),
            &["spec.podGroupTemplates: Too many: 9: must have at most 8 items"],
        );
        check(
            json!({"podGroupTemplates": []}),
            &["spec.podGroupTemplates: Required value"],
        );
        check(
            json!({"controllerRef": {"apiGroup": "A_b", "kind": "a/b", "name": ""}}),
            &[
                r#"spec.controllerRef.apiGroup: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
                r#"spec.controllerRef.kind: Invalid value: "a/b": may not contain '/'"#,
                "spec.controllerRef.name: Required value",
            ],
        );
        check(
            json!({"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"}}),
            &[],
        );
    }

    #[test]
    fn templates_have_a_name_and_one_policy() {
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        check(
            json!({"podGroupTemplates": [
                {"name": "t", "schedulingPolicy": {"gang": {"minCount": 0}}},
                {"name": "t", "schedulingPolicy": {"gang": {"minCount": -1}, "basic": {}}},
                {"name": "A", "schedulingPolicy": {}},
                {"schedulingPolicy": {"basic": {}}},
            ]}),
            &[
                r#"spec.podGroupTemplates[1]: Duplicate value: {"name":"t","schedulingPolicy":{"basic":{},"gang":{"minCount":-1}},"schedulingConstraints":null}"#,
                "spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Required value",
                r#"spec.podGroupTemplates[1].schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`"#,
                "spec.podGroupTemplates[1].schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
                &format!("spec.podGroupTemplates[2].name: Invalid value: \"A\": {label}"),
                r#"spec.podGroupTemplates[2].schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`"#,
                "spec.podGroupTemplates[3].name: Required value",
            ],
        );
    }

    #[test]
    fn workloads_do_not_change() {
        let workloads = kind("workloads.scheduling.k8s.io");
        let change = json!({"metadata": {"labels": {"a": "b"}}});
        workloads.update(&workload(&json!({})), &change, &[]);
        workloads.update(
            &workload(&json!({})),
            &json!({"spec": {"controllerRef": {"kind": "", "name": "a/b"}, "podGroupTemplates": templates(9)}}),
            &[
                "spec.controllerRef: Invalid value: null: field is immutable",
                "spec.podGroupTemplates: Invalid value: null: field is immutable",
                "spec.podGroupTemplates: Too many: 9: must have at most 8 items",
            ],
        );
        workloads.update(
            &workload(&json!({})),
            &json!({"spec": {"podGroupTemplates": []}}),
            &[
                "spec.podGroupTemplates: Invalid value: null: field is immutable",
                "spec.podGroupTemplates: Required value",
            ],
        );
    }

    #[test]
    fn fields_of_features_that_are_off_are_dropped() {
        let template = json!({"name": "t", "schedulingPolicy": {"basic": {}}, "disruptionMode": "Pod", "priority": 3,
            "priorityClassName": "p", "schedulingConstraints": {"topology": [{"key": "k"}]},
            "resourceClaims": [{"name": "c", "resourceClaimName": "x"}]});
        let made =
            kind("workloads.scheduling.k8s.io").created(&workload(&json!({"podGroupTemplates": [template]})));
        assert_eq!(
            made["spec"]["podGroupTemplates"],
            json!([{"name": "t", "schedulingPolicy": {"basic": {}}, "schedulingConstraints": null}])
        );
    }
}
