//! AlwaysPullImages: no pod runs an image that its namespace could not pull itself.

use std::collections::HashSet;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::{FieldError, FieldPath, GroupVersionResource, go};
use serde_json::Value;

use super::{forbidden, is};
use crate::json::Json;

const ALWAYS: &str = "Always";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

#[derive(Debug)]
pub(super) struct AlwaysPullImages;

#[async_trait::async_trait]
impl AdmissionPlugin for AlwaysPullImages {
    fn name(&self) -> &'static str {
        "AlwaysPullImages"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && subresource.is_empty()
            && is(gvr, "", "pods")
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        if !has_new_image(attributes, pod) {
            return Ok(());
        }
        let Some(spec) = pod.dig_mut("spec") else {
            return Ok(());
        };
        for list in LISTS {
            for container in spec.list_mut(list) {
                container.put("imagePullPolicy", ALWAYS);
            }
        }
        for volume in spec.list_mut("volumes") {
            if let Some(image) = volume.dig_mut("image") {
                image.put("pullPolicy", ALWAYS);
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(pod) = object.filter(|pod| has_new_image(attributes, pod)) else {
            return Ok(());
        };
        let faults = faults(pod);
        if faults.is_empty() {
            return Ok(());
        }
        // Upstream joins the refusals to an error that has no status of its own.
        let texts: Vec<String> = faults
            .into_iter()
            .map(|fault| forbidden(attributes, object, fault).message().to_string())
            .collect();
        Err(ApiError::raw_internal(go::aggregate(&texts)))
    }
}

/// Creates have one; updates when a container's image is none of the pod's before.
fn has_new_image(attributes: &Attributes<'_>, pod: &Value) -> bool {
    fn images(pod: &Value) -> impl Iterator<Item = &str> {
        let containers = LISTS.into_iter().flat_map(|list| pod.dig("spec").list(list));
        containers.map(|container| container.text("image"))
    }
    match attributes.old {
        Some(old) if attributes.operation == Operation::Update => {
            let before: HashSet<&str> = images(old).collect();
            images(pod).any(|image| !before.contains(image))
        }
        _ => true,
    }
}

fn faults(pod: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let path = FieldPath::new("spec");
    let mut check = |at: &FieldPath<'_>, policy: &Value| {
        if policy.as_str() != Some(ALWAYS) {
            faults.push(FieldError::not_supported(at, policy, &[ALWAYS]));
        }
    };
    for list in LISTS {
        for (index, container) in pod.dig("spec").list(list).iter().enumerate() {
            let at = path.child(list);
            let at = at.index(index);
            check(&at.child("imagePullPolicy"), container.dig("imagePullPolicy"));
        }
    }
    for (index, volume) in pod.list("spec.volumes").iter().enumerate() {
        if volume.has("image") {
            let at = path.child("volumes");
            let at = at.index(index);
            let at = at.child("image");
            check(&at.child("pullPolicy"), volume.dig("image.pullPolicy"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_policy_is_looked_at() {
        let pod = json!({"spec": {
            "containers": [{"imagePullPolicy": "Always"}, {"imagePullPolicy": "Never"}],
            "volumes": [{"image": {"pullPolicy": "IfNotPresent"}}, {"emptyDir": {}}],
        }});
        let texts: Vec<String> = faults(&pod).iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.containers[1].imagePullPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
                "spec.volumes[0].image.pullPolicy: Unsupported value: \"IfNotPresent\": supported values: \"Always\"",
            ]
        );
    }
}
