//! `pods/resize`: changes what the containers of a pod request and are limited to.

use generic_server::registry::strategy::{Strategy, WriteContext};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::{EntriesOf, Pods, generation, is_mirror, metadata_and_spec, qos_class};
use crate::errors::Errors;
use crate::json::Json;
use crate::unique::first_by;

/// The strategy of the subresource.
#[derive(Debug)]
pub(crate) struct Resize;

impl Strategy for Resize {
    fn default(&self, object: &mut Value) {
        Pods.default(object);
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let asked = object.clone();
        let mut new = old.clone();
        let metadata = new.ensure("metadata");
        for key in ["name", "namespace", "uid", "resourceVersion", "managedFields"] {
            metadata.copy_key(key, asked.dig("metadata"));
        }
        for list in ["containers", "initContainers"] {
            let path = format!("spec.{list}");
            let asked = first_by(asked.list(&path), "name");
            for container in new.list_mut(&path) {
                if let Some(from) = asked.get(container.text("name")).copied() {
                    container.copy_key("resources", from);
                    container.copy_key("resizePolicy", from);
                }
            }
        }
        *object = new;
        generation(object, old);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, pod: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| resize(errors, pod, old))
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

fn resize(errors: &mut Errors, pod: &Value, old: &Value) {
    metadata_and_spec(errors, pod);
    let path = FieldPath::new("spec");
    if is_mirror(old) {
        errors.forbidden(&FieldPath::new(""), "static pods cannot be resized");
        return;
    }
    if qos_class(pod) != qos_class(old) {
        errors.invalid(
            &path,
            old.text("status.qosClass"),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    for list in ["containers", "initContainers"] {
        let at = path.child(list);
        let full = format!("spec.{list}");
        for (index, (now, before)) in pod.list(&full).iter().zip(old.list(&full)).enumerate() {
            let at = at.index(index);
            let at = at.child("resources");
            for kind in ["requests", "limits"] {
                let (new, gone) = (now.dig("resources").dig(kind), before.dig("resources").dig(kind));
                let removed = |name: &&str| gone.get(*name).is_some() && new.get(*name).is_none();
                if ["cpu", "memory"].iter().any(removed) {
                    errors.forbidden(&at.child(kind), format!("resource {kind} cannot be removed"));
                }
                for (name, value) in gone.entries_of() {
                    match name {
                        "cpu" | "memory" => {}
                        _ if new.get(name) != Some(value) => {
                            errors.forbidden(&path, "only cpu and memory resources are mutable");
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, pod_of};

    /// The resources of a container change from one to the other.
    #[track_caller]
    fn check(old: Value, new: Value, expected: &[&str]) {
        let pod = pod_of(&json!({"resources": old}));
        let change = pod_of(&json!({"resources": new}));
        kind("pods").update_of("resize", &pod, &change, expected);
    }

    #[test]
    fn cpu_and_memory_change_within_their_class() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        check(cpu("1"), cpu("2"), &[]);
        check(
            cpu("1"),
            json!({}),
            &[
                r#"spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing"#,
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ],
        );
        check(
            json!({"requests": {"cpu": "1", "ephemeral-storage": "1"}}),
            json!({"requests": {"cpu": "1", "ephemeral-storage": "2"}}),
            &["spec: Forbidden: only cpu and memory resources are mutable"],
        );
    }
}
