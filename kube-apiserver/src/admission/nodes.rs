//! TaintNodesByCondition and DefaultTolerationSeconds: new nodes take nothing until they are ready, and pods stay for a
//! while on nodes that stop being so.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::GroupVersionResource;
use serde_json::{Value, json};

use super::is;
use crate::json::Json;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

#[derive(Debug)]
pub(super) struct TaintNodesByCondition;

#[async_trait::async_trait]
impl AdmissionPlugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && is(gvr, "", "nodes")
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(node) = object else { return Ok(()) };
        let spec = node.ensure("spec");
        let mut taints = spec.list("taints").to_vec();
        let has = |t: &Value| t.text("key") == NOT_READY && t.text("effect") == "NoSchedule";
        if !taints.iter().any(has) {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            spec.put("taints", taints);
        }
        Ok(())
    }
}

/// How long pods stay on a node that is not ready, and on one that cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TolerationSeconds {
    /// `--default-not-ready-toleration-seconds`.
    pub not_ready: i64,
    /// `--default-unreachable-toleration-seconds`.
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> Self {
        TolerationSeconds {
            not_ready: 300,
            unreachable: 300,
        }
    }
}

#[derive(Debug)]
pub(super) struct DefaultTolerationSeconds(pub(super) TolerationSeconds);

#[async_trait::async_trait]
impl AdmissionPlugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && subresource.is_empty()
            && is(gvr, "", "pods")
    }

    async fn admit(&self, _: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        let Some(pod) = object else { return Ok(()) };
        let spec = pod.ensure("spec");
        let mut tolerations = spec.list("tolerations").to_vec();
        let before = tolerations.len();
        for (key, seconds) in [(NOT_READY, self.0.not_ready), (UNREACHABLE, self.0.unreachable)] {
            let tolerated = tolerations[..before].iter().any(|t| {
                matches!(t.text("key"), "" | NOT_READY | UNREACHABLE)
                    && (t.text("key").is_empty() || t.text("key") == key)
                    && matches!(t.text("effect"), "" | "NoExecute")
            });
            if !tolerated {
                tolerations.push(
                    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}),
                );
            }
        }
        if tolerations.len() > before {
            spec.put("tolerations", tolerations);
        }
        Ok(())
    }
}
