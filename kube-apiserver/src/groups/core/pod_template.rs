//! PodTemplate, and what every kind with a template of pods shares.

use generic_server::registry::strategy::MetadataRules;
use machinery::names::dns1123_label;
use machinery::names::object_meta::validate_annotations;
use machinery::selector::LabelSelector;
use machinery::{FieldPath, Map, meta};
use serde_json::Value;

use super::pod_spec::{self, SpecOwner, profiles};
use crate::errors::Errors;
use crate::json::Json;
use crate::rules::Rules;

pub(crate) static RULES: Rules = Rules {
    drop_disabled: |features, object, old| pod_spec::drop_disabled_at(features, "template.spec", object, old),
    metadata: MetadataRules::CREATE,
    generation: &["template"],
    returns_deleted: true,
    default: |object| default_template(object.ensure("template")),
    validate: |errors, object| {
        validate_template(errors, &FieldPath::new("template"), object.dig("template"));
    },
    validate_update: |errors, object, _| {
        validate_template(errors, &FieldPath::new("template"), object.dig("template"));
    },
    warnings: |object, old| match is_changed(object, old) {
        true => pod_spec::warnings("template", object.dig("template")),
        false => Vec::new(),
    },
    ..Rules::PLAIN
};

/// Fills in a template.
pub(crate) fn default_template(template: &mut Value) {
    template.ensure("metadata");
    pod_spec::default_spec(template.ensure("spec"));
}

/// Checks a template at `path`.
pub(crate) fn validate_template(errors: &mut Errors, path: &FieldPath<'_>, template: &Value) {
    if let Some(labels) = template.object_at("metadata.labels") {
        pod_spec::labels_at(errors, &path.child("labels"), labels);
    }
    annotations(errors, &path.child("annotations"), template);
    let spec = path.child("spec");
    pod_spec::validate(errors, &spec, template.dig("spec"), SpecOwner::default());
    profiles::forms_agree(errors, &spec, template);
    if !template.list("spec.ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

fn annotations(errors: &mut Errors, path: &FieldPath<'_>, template: &Value) {
    if let Some(annotations) = template.object_at("metadata.annotations") {
        for error in validate_annotations(annotations, path) {
            errors.push(error);
        }
    }
    super::pod::pod_annotations(errors, path, template);
}

/// Checks a selector that must be there and select something; gives it when it can be used.
pub(crate) fn selector(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    value: &Value,
    kind: &str,
    invalid: &str,
) -> Option<LabelSelector> {
    if value.is_null() {
        errors.required(path, "");
    } else {
        errors.selector(path, value, None);
        if value.entries("matchLabels").count() + value.list("matchExpressions").len() == 0 {
            errors.invalid_value(path, value, format!("empty selector is invalid for {kind}"));
        }
    }
    match parse(value) {
        Ok(selector) => Some(selector),
        Err(_) => {
            errors.invalid_value(path, value, invalid);
            None
        }
    }
}

/// A selector of a workload; none selects nothing.
pub(crate) fn parse(value: &Value) -> Result<LabelSelector, String> {
    match value.is_null() {
        true => Ok(LabelSelector::nothing()),
        false => LabelSelector::from_value(value),
    }
}

/// Checks that a template's pods are selected. `spare_empty`: a selector of everything is another rule's business.
pub(crate) fn selected(
    errors: &mut Errors,
    path: &FieldPath<'_>,
    template: &Value,
    selector: &LabelSelector,
    spare_empty: bool,
) {
    let none = Map::new();
    let labels = template.object_at("metadata.labels");
    if spare_empty && selector.is_empty() && !selector.is_nothing() {
        return;
    }
    if !selector.matches(labels.unwrap_or(&none)) {
        let metadata = path.child("metadata");
        errors.invalid_value(
            &metadata.child("labels"),
            template.dig("metadata.labels"),
            "`selector` does not match template `labels`",
        );
    }
}

/// The fields that templates of restarted pods may not set.
pub(crate) fn always_running(errors: &mut Errors, path: &FieldPath<'_>, template: &Value, kind: &str) {
    let spec = path.child("spec");
    errors.one_of(
        &spec.child("restartPolicy"),
        template.text("spec.restartPolicy"),
        &["Always"],
    );
    if template.has("spec.activeDeadlineSeconds") {
        errors.forbidden(
            &spec.child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// Warnings for a workload whose template is new or changed.
pub(crate) fn workload_warnings(object: &Value, old: &Value) -> Vec<String> {
    let path = "spec.template";
    match is_changed(object, old) {
        true => pod_spec::warnings(path, object.dig(path)),
        false => Vec::new(),
    }
}

/// Whether an object is new or has another generation than before: else nobody is warned again.
pub(crate) fn is_changed(object: &Value, old: &Value) -> bool {
    old.is_null() || meta::generation(object) != meta::generation(old)
}

/// The same for a workload whose name begins those of its pods.
pub(crate) fn named_workload_warnings(object: &Value, old: &Value) -> Vec<String> {
    let mut out: Vec<String> = match old.is_null() {
        true => name_warning(object).into_iter().collect(),
        false => Vec::new(),
    };
    out.extend(workload_warnings(object, old));
    out
}

/// The name of what makes pods becomes part of host names.
pub(crate) fn name_warning(object: &Value) -> Option<String> {
    let texts = dns1123_label(meta::name(object));
    (!texts.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::groups::check::kind;

    #[test]
    fn templates_are_validated() {
        let templates = kind("podtemplates");
        let pod = json!({"containers": [{"name": "c", "image": "i"}]});
        templates.create(&json!({"template": {"spec": pod}}), &[]);
        templates.create(
            &json!({"template": {"spec": {"containers": []}}}),
            &["template.spec.containers: Required value"],
        );
        let mut with = pod.clone();
        with["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]);
        templates.create(
            &json!({"template": {"spec": with}}),
            &["template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
        );
        templates.defaults(
            &json!({"template": {"spec": pod}}),
            &json!({"metadata": {"generation": 1}, "template": {"spec": {"restartPolicy": "Always"}}}),
        );
    }
}
