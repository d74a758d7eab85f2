//! `pods/ephemeralcontainers`: adds containers to a pod that runs.

use generic_server::registry::strategy::{Strategy, WriteContext};
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::{NOWHERE, fill_in, generation, is_mirror, metadata_and_spec};
use crate::deps::KindFeatures;
use crate::errors::Errors;
use crate::groups::core::pod_spec::drop_disabled_at;
use crate::json::{Json, same};
use crate::unique::first_by;

/// The strategy of the subresource.
#[derive(Debug)]
pub(crate) struct EphemeralContainers(pub(crate) KindFeatures);

impl Strategy for EphemeralContainers {
    fn default(&self, object: &mut Value) {
        fill_in(object);
    }

    fn prepare_for_update(&self, _ctx: &WriteContext<'_>, object: &mut Value, old: &Value) {
        let wanted = object.dig("spec.ephemeralContainers").clone();
        let mut new = old.clone();
        let meta_keys = ["name", "namespace", "uid", "resourceVersion", "managedFields"];
        let asked = object.dig("metadata").clone();
        let metadata = new.ensure("metadata");
        for key in meta_keys {
            metadata.copy_key(key, &asked);
        }
        let spec = new.ensure("spec");
        match wanted.is_null() {
            true => {
                spec.take_key("ephemeralContainers");
            }
            false => spec.put("ephemeralContainers", wanted),
        }
        *object = new;
        drop_disabled_at(self.0, "spec", object, old);
        generation(object, old);
    }

    fn validate_update(&self, _ctx: &WriteContext<'_>, pod: &Value, old: &Value) -> Vec<FieldError> {
        Errors::collect(|errors| {
            metadata_and_spec(errors, pod);
            if is_mirror(old) {
                errors.forbidden(
                    &FieldPath::new(NOWHERE),
                    "static pods do not support ephemeral containers",
                );
                return;
            }
            let spec = FieldPath::new("spec");
            let path = spec.child("ephemeralContainers");
            let now = first_by(pod.list("spec.ephemeralContainers"), "name");
            for before in old.list("spec.ephemeralContainers") {
                let name = before.text("name");
                match now.get(name).copied() {
                    None => errors.forbidden(
                        &path,
                        format!("existing ephemeral containers \"{name}\" may not be removed\n"),
                    ),
                    Some(now) if !same(now, before) => errors.forbidden(
                        &path,
                        format!("existing ephemeral containers \"{name}\" may not be changed\n"),
                    ),
                    Some(_) => {}
                }
            }
        })
    }

    fn reset_fields(&self) -> &'static [&'static str] {
        &["status"]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::groups::check::{kind, pod};

    #[track_caller]
    fn check(containers: Value, expected: &[&str]) {
        let change = json!({"spec": {"ephemeralContainers": containers}});
        kind("pods").update_of("ephemeralcontainers", &pod(&json!({})), &change, expected);
    }

    #[test]
    fn they_are_plain_and_of_names_of_their_own() {
        check(
            json!([{"name": "d", "image": "i", "targetContainerName": "c"}]),
            &[],
        );
        check(
            json!([{"name": "c", "image": "i"}]),
            &[r#"spec.ephemeralContainers[0].name: Duplicate value: "c""#],
        );
        check(
            json!([{"name": "d", "image": "i", "targetContainerName": "x"}]),
            &[r#"spec.ephemeralContainers[0].targetContainerName: Not found: "x""#],
        );
        check(
            json!([{"name": "d", "image": "i", "ports": [{"containerPort": 80}]}]),
            &["spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"],
        );
        check(
            json!([{"name": "d", "image": "i", "resources": {"requests": {"cpu": "1"}}}]),
            &["spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"],
        );
    }
}
