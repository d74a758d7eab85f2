//! PodResizeValidator: a pod that runs on a node is not resized beyond what the node has, nor on nodes of other systems than Linux.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::quantity::Quantity;
use machinery::status::Cause;
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::json::Json;
use crate::resources::{amounts, pod_requests};

const OS: &str = "kubernetes.io/os";

#[derive(Debug)]
pub(super) struct PodResizeValidator(pub(super) Client);

#[async_trait::async_trait]
impl AdmissionPlugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource == "resize" && is(gvr, "", "pods")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(pod), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        let node = pod.text("spec.nodeName");
        // The generation follows the specification.
        let generation = "metadata.generation";
        if node.is_empty() || pod.int(generation) == old.int(generation) {
            return Ok(());
        }
        let Some(node) = self.0.find(("", "nodes"), "", node).await? else {
            return Err(forbidden(
                attributes,
                object,
                format!("node \"{node}\" not found"),
            ));
        };
        match fault(pod, &node) {
            None => Ok(()),
            Some((reason, why)) => Err(forbidden(attributes, object, why).with_cause(Cause {
                reason: reason.into(),
                ..Cause::default()
            })),
        }
    }
}

/// The reason and text why a node cannot hold a resized pod.
fn fault(pod: &Value, node: &Value) -> Option<(&'static str, String)> {
    let os = meta::labels(node).and_then(|labels| labels.get(OS)?.as_str());
    if let Some(os) = os.filter(|os| *os != "linux") {
        let name = meta::name(node);
        let why = format!("pod resize is only supported on linux nodes, node \"{name}\" is \"{os}\"");
        return Some(("UnsupportedPlatform", why));
    }
    let requested = pod_requests(pod.dig("spec"));
    let allocatable = amounts(node.dig("status.allocatable"));
    let mut short = Vec::new();
    for (name, shown) in [
        ("cpu", Quantity::milli_value as fn(&Quantity) -> i64),
        ("memory", Quantity::value),
    ] {
        let figure = |amount: Option<&Quantity>| amount.map_or(0, shown);
        let (asked, there) = (requested.get(name), allocatable.get(name));
        let fits = match (asked, there) {
            (None, _) => true,
            (Some(asked), None) => asked.signum() <= 0,
            (Some(asked), Some(there)) => asked <= there,
        };
        if !fits {
            short.push(format!(
                "{name}, requested: {}, allocatable: {}",
                figure(asked),
                figure(there)
            ));
        }
    }
    let short = short.join("; ");
    (!short.is_empty()).then(|| {
        let why = format!("node didn't have enough allocatable resources: {short}");
        ("NodeCapacity", why)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes() {
        #[track_caller]
        fn check(node: Value, expected: Option<(&str, &str)>) {
            let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Ki"}}}]}});
            let fault = fault(&pod, &node);
            let fault = fault.as_ref().map(|(reason, why)| (*reason, why.as_str()));
            assert_eq!(fault, expected);
        }
        let allocatable =
            |cpu: &str, memory: &str| json!({"status": {"allocatable": {"cpu": cpu, "memory": memory}}});
        check(allocatable("1500m", "1024"), None);
        check(
            allocatable("1499m", "1023"),
            Some((
                "NodeCapacity",
                "node didn't have enough allocatable resources: cpu, requested: 1500, allocatable: 1499; memory, requested: 1024, allocatable: 1023",
            )),
        );
        check(
            json!({"status": {"allocatable": {"cpu": "2"}}}),
            Some((
                "NodeCapacity",
                "node didn't have enough allocatable resources: memory, requested: 1024, allocatable: 0",
            )),
        );
        let mut windows = allocatable("2", "1Gi");
        windows["metadata"] = json!({"name": "n", "labels": {"kubernetes.io/os": "windows"}});
        check(
            windows,
            Some((
                "UnsupportedPlatform",
                "pod resize is only supported on linux nodes, node \"n\" is \"windows\"",
            )),
        );
    }
}
