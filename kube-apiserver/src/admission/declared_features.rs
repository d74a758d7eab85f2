//! NodeDeclaredFeatureValidator: a pod that runs on a node is not updated in a way that the node does not say it knows (KEP-5328). Mirrors upstream's
//! `component-helpers/nodedeclaredfeatures` as far as its features are about updates.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::GroupVersionResource;
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::json::{Json, same};

/// A feature that some updates need, as nodes name it in `status.declaredFeatures`, and whether an update does. In upstream's order.
type Feature = (&'static str, fn(&Value, &Value) -> bool);

const FEATURES: [Feature; 2] = [
    ("InPlacePodLevelResourcesVerticalScaling", resizes_pod),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_containers),
];

#[derive(Debug)]
pub(super) struct NodeDeclaredFeatureValidator(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && ["", "resize"].contains(&subresource) && is(gvr, "", "pods")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(pod), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        let name = pod.text("spec.nodeName");
        // The generation follows the specification.
        let generation = "metadata.generation";
        if name.is_empty() || pod.int(generation) == old.int(generation) {
            return Ok(());
        }
        let needed = needed(old, pod);
        if needed.is_empty() {
            return Ok(());
        }
        let Some(node) = self.0.find(("", "nodes"), "", name).await? else {
            return Err(forbidden(
                attributes,
                object,
                format!("node \"{name}\" not found"),
            ));
        };
        let declared: Vec<&str> = node.strings("status.declaredFeatures").collect();
        let mut missing = needed;
        missing.retain(|feature| !declared.contains(feature));
        match missing.is_empty() {
            true => Ok(()),
            false => {
                let features = missing.join(", ");
                let why = format!(
                    "pod update requires features {features} which are not available on node \"{name}\""
                );
                Err(forbidden(attributes, object, why))
            }
        }
    }
}

/// The features that an update needs.
fn needed(old: &Value, pod: &Value) -> Vec<&'static str> {
    let needed = FEATURES.iter().filter(|(_, needs)| needs(old, pod));
    needed.map(|(feature, _)| *feature).collect()
}

/// Whether the pod's own resources change, from or to none, too.
fn resizes_pod(old: &Value, pod: &Value) -> bool {
    let path = "spec.resources";
    !same(old.dig(path), pod.dig(path))
}

/// Whether an init container that is no sidecar is resized.
fn resizes_init_containers(old: &Value, pod: &Value) -> bool {
    let path = "spec.initContainers";
    let pairs = old.list(path).iter().zip(pod.list(path));
    let mut others = pairs.filter(|(old, _)| old.text("restartPolicy") != "Always");
    others.any(|(old, new)| !same(old.dig("resources"), new.dig("resources")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn updates_need_features() {
        let pod = |pod: Value, init: Value, sidecar: Value| {
            json!({"spec": {"resources": pod, "initContainers": [{"name": "i", "resources": init},
                {"name": "s", "restartPolicy": "Always", "resources": sidecar}],
                "containers": [{"name": "c", "resources": sidecar}]}})
        };
        let check = |new: &Value, expected: &[&str]| {
            let old = pod(json!({}), json!({}), json!({}));
            assert_eq!(needed(&old, new), expected, "{new}");
        };
        let one = || json!({"requests": {"cpu": "1"}});
        check(&pod(json!({}), json!({}), json!({})), &[]);
        check(
            &pod(Value::Null, json!({}), json!({})),
            &["InPlacePodLevelResourcesVerticalScaling"],
        );
        check(&pod(json!({}), json!({}), one()), &[]);
        check(
            &pod(one(), json!({}), json!({})),
            &["InPlacePodLevelResourcesVerticalScaling"],
        );
        check(
            &pod(json!({}), one(), json!({})),
            &["InPlacePodVerticalScalingInitContainers"],
        );
    }
}
