//! Namespace. Its `spec.finalizers` hold its deletion back, apart from `metadata.finalizers`; the namespace controller takes the
//! `kubernetes` one away through `finalize` when nothing is left in it.

pub(crate) mod finalize;

use generic_server::registry::strategy::{
    DefaultPropagation, NameRule, SelectableField, Strategy, WriteContext,
};
use machinery::{FieldError, FieldPath, meta, names};
use serde_json::{Value, json};

const LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that every namespace begins with.
pub(crate) const FINALIZER: &str = "kubernetes";

fn default(object: &mut Value) {
    let name = meta::name(object).to_string();
    if !name.is_empty()
        && let Some(metadata) = meta::metadata_mut(object)
    {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if !labels.is_object() {
            *labels = json!({});
        }
        labels[LABEL] = name.into();
    }
    for key in ["spec", "status"] {
        if !object.get(key).is_some_and(Value::is_object) {
            object[key] = json!({});
        }
    }
    if meta::dig_str(object, &["status", "phase"]).is_empty() {
        object["status"]["phase"] = "Active".into();
    }
}

fn spec_finalizers(object: &Value) -> &[Value] {
    let list = meta::dig(object, &["spec", "finalizers"]).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn mark(object: &mut Value) {
    object["status"]["phase"] = "Terminating".into();
    // A namespace has no grace: the mark is its timestamp alone.
    meta::set(object, "deletionGracePeriodSeconds", Value::Null);
}

/// The faults of finalizers; upstream names the item where it finalizes, and the list where it creates.
fn finalizer_errors(object: &Value, indexed: bool) -> Vec<FieldError> {
    let list = FieldPath::new("spec.finalizers");
    let mut errors = Vec::new();
    for (index, name) in spec_finalizers(object).iter().enumerate() {
        let Some(name) = name.as_str() else { continue };
        let item = list.index(index);
        let path = if indexed { &item } else { &list };
        for text in names::qualified_name(name) {
            errors.push(FieldError::invalid_str(path, name, text));
        }
        if !name.contains('/') && name != FINALIZER {
            errors.push(FieldError::invalid_str(
                path,
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    errors
}

/// Namespaces.
#[derive(Debug)]
pub(crate) struct Namespaces;

impl Strategy for Namespaces {
    fn default(&self, object: &mut Value) {
        default(object);
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_dns_label
    }

    fn prepare_for_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        object["status"] = json!({"phase": "Active"});
        let mut finalizers = spec_finalizers(object).to_vec();
        if !finalizers.iter().any(|f| f == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        object["spec"]["finalizers"] = finalizers.into();
        // Upstream adds the label of a generated name when validation is over: a bad name is one fault, not two.
        if names::dns1123_label(meta::name(object)).is_empty() {
            default(object);
        }
    }

    fn validate_create(&self, _ctx: &WriteContext<'_>, object: &Value) -> Vec<FieldError> {
        finalizer_errors(object, false)
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["spec"] = old.get("spec").cloned().unwrap_or_else(|| json!({}));
        object["status"] = old.get("status").cloned().unwrap_or_else(|| json!({}));
        default(object);
    }

    fn default_propagation(&self) -> DefaultPropagation {
        DefaultPropagation::Background
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn documents_deleted_object(&self) -> bool {
        false
    }

    fn held_back(&self, object: &Value) -> bool {
        !spec_finalizers(object).is_empty()
    }

    fn mark_deleting(&self, object: &mut Value) {
        mark(object);
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }

    fn selectable_fields(&self) -> Vec<SelectableField> {
        fields()
    }
}

pub(crate) fn fields() -> Vec<SelectableField> {
    vec![SelectableField::path("status.phase")]
}

/// `namespaces/status`.
#[derive(Debug)]
pub(crate) struct Status;

impl Strategy for Status {
    fn default(&self, object: &mut Value) {
        default(object);
    }

    fn name_rule(&self) -> NameRule {
        names::name_is_dns_label
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        object["spec"] = old.get("spec").cloned().unwrap_or_else(|| json!({}));
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, object: &Value, _old: &Value) -> Vec<FieldError> {
        let phase = meta::dig_str(object, &["status", "phase"]);
        let status = FieldPath::new("status");
        let terminating = meta::deletion_timestamp(object).is_some();
        match (terminating, phase) {
            (false, "Active") | (true, "Terminating") => Vec::new(),
            (false, _) => vec![FieldError::invalid_str(
                &status.child("Phase"),
                phase,
                "may only be 'Active' if `deletionTimestamp` is empty",
            )],
            (true, _) => vec![FieldError::invalid_str(
                &status.child("Phase"),
                phase,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            )],
        }
    }

    fn held_back(&self, object: &Value) -> bool {
        Namespaces.held_back(object)
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::finalizer_errors;

    use crate::groups::check::kind;

    #[test]
    fn finalizers_are_qualified_names() {
        let odd = json!({"spec": {"finalizers": ["kubernetes", "odd"]}});
        let fields = |indexed: bool| -> Vec<String> {
            let errors = finalizer_errors(&odd, indexed);
            errors.into_iter().map(|error| error.field).collect()
        };
        assert_eq!(fields(false), ["spec.finalizers"]);
        assert_eq!(fields(true), ["spec.finalizers[1]"]);
    }

    #[test]
    fn a_namespace_begins_with_a_finalizer() {
        let namespaces = kind("namespaces");
        namespaces.defaults(
            &json!({}),
            &json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "one"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
        );
        namespaces.create(
            &json!({"spec": {"finalizers": ["mine"]}}),
            &[r#"spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified"#],
        );
        namespaces.create(&json!({"spec": {"finalizers": ["example.com/mine"]}}), &[]);
        namespaces.update_of(
            "status",
            &json!({}),
            &json!({"status": {"phase": "Terminating"}}),
            &[r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty"#],
        );
    }

    #[test]
    fn only_finalize_changes_finalizers() {
        let namespaces = kind("namespaces");
        let change = json!({"spec": {"finalizers": []}});
        let kept = namespaces.updated("", &json!({}), &change).unwrap();
        assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
        let gone = namespaces.updated("finalize", &json!({}), &change).unwrap();
        assert_eq!(
            gone["spec"]
                .get("finalizers")
                .and_then(|f| f.as_array())
                .map_or(0, Vec::len),
            0
        );
    }
}
