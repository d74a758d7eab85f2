//! ReplicationController.

use generic_server::registry::strategy::{DefaultPropagation, MetadataRules, SelectableField};
use machinery::selector::LabelSelector;
use machinery::{FieldPath, Map};
use serde_json::Value;

use super::pod_spec::{self, drop_disabled_at};
use super::pod_template::{
    always_running, default_template, is_changed, named_workload_warnings, selected, validate_template,
};
use crate::errors::Errors;
use crate::json::Json;
use crate::replicas::replica_counts;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| drop_disabled_at(features, "spec.template.spec", object, old),
    metadata: MetadataRules::CREATE,
    status: true,
    generation: &["spec"],
    propagation: DefaultPropagation::Orphan,
    default,
    validate,
    validate_update: |errors, object, _| validate(errors, object),
    validate_status: |errors, object, _| replica_counts(errors, object),
    warnings: |object, old| match old.is_null() {
        true => named_workload_warnings(object, old),
        // Upstream's are about the template that was.
        false if is_changed(object, old) => pod_spec::warnings("spec.template", old.dig("spec.template")),
        false => Vec::new(),
    },
    fields: || vec![SelectableField::path("status.replicas")],
    ..Rules::PLAIN
};

fn default(object: &mut Value) {
    let labels = object.dig("spec.template.metadata.labels").clone();
    let spec = object.ensure("spec");
    spec.fill("replicas", 1);
    if spec.has("template") {
        default_template(spec.ensure("template"));
    }
    if labels.is_object() {
        if spec.entries("selector").next().is_none() {
            spec.put("selector", labels.clone());
        }
        let metadata = object.ensure("metadata");
        if metadata.entries("labels").next().is_none() {
            metadata.put("labels", labels);
        }
    }
    object.ensure("status").fill("replicas", 0);
}

fn validate(errors: &mut Errors, object: &Value) {
    let path = FieldPath::new("spec");
    let spec = object.dig("spec");
    errors.non_negative(&path.child("minReadySeconds"), spec.int("minReadySeconds"));
    let empty = Map::new();
    let labels = spec.object_at("selector").unwrap_or(&empty);
    if labels.is_empty() {
        errors.required(&path.child("selector"), "");
    }
    errors.non_negative(&path.child("replicas"), spec.int("replicas"));
    let at = path.child("template");
    let template = spec.dig("template");
    if template.is_null() {
        return errors.required(&at, "");
    }
    let selector = LabelSelector::from_set(labels);
    selected(errors, &at, template, &selector, true);
    validate_template(errors, &at, template);
    always_running(errors, &at, template, "ReplicationController");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, with_spec};

    fn with(spec: Value) -> Value {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let base = json!({"spec": {"template": template}});
        with_spec(base, &spec)
    }

    #[test]
    fn controllers_select_their_template() {
        let controllers = kind("replicationcontrollers");
        controllers.defaults(
            &with(json!({})),
            &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1, "selector": {"a": "b"}}, "status": {"replicas": 0}}),
        );
        controllers.create(
            &with(json!({"selector": {"a": "c"}, "replicas": -1})),
            &[
                "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
            ],
        );
        controllers.create(
            &json!({"spec": {"selector": {"a": "b"}}}),
            &["spec.template: Required value"],
        );
    }
}
