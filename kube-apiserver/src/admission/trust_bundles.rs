//! ClusterTrustBundleAttest: who names a signer in a ClusterTrustBundle has to have the verb `attest` for it.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use generic_server::authz::Authorizer;
use machinery::GroupVersionResource;
use serde_json::Value;

use super::certificates::{GROUP, may};
use super::{forbidden, is};
use crate::json::{Json, same};

#[derive(Debug)]
pub(super) struct ClusterTrustBundleAttest(pub(super) Arc<dyn Authorizer>);

#[async_trait::async_trait]
impl AdmissionPlugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, _subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update) && is(gvr, GROUP, "clustertrustbundles")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(object) = object else { return Ok(()) };
        let signer = object.text("spec.signerName");
        let collected = attributes.operation == Operation::Update
            && attributes
                .old
                .is_some_and(|old| differs_for_collection(object, old));
        if signer.is_empty() || collected || may(&*self.0, attributes, "attest", signer).await {
            return Ok(());
        }
        let why = format!(
            "user not permitted to attest for signerName {}",
            machinery::go::quote(signer)
        );
        Err(forbidden(attributes, None, why))
    }
}

/// Whether two states of an object differ in no more than what garbage collection writes. So they do when they are stored again.
fn differs_for_collection(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata") {
            for key in ["ownerReferences", "finalizers", "managedFields"] {
                metadata.take_key(key);
            }
        }
        object
    };
    same(&rest(new), &rest(old))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_garbage_collection_writes() {
        let old = json!({"metadata": {"name": "a", "finalizers": ["b"]}, "spec": {"signerName": "a.b/c"}});
        for (new, expected) in [
            (old.clone(), true),
            (
                json!({"metadata": {"name": "a", "ownerReferences": [{}], "managedFields": [{}]}, "spec": {"signerName": "a.b/c"}}),
                true,
            ),
            (
                json!({"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"signerName": "a.b/c"}}),
                false,
            ),
            (
                json!({"metadata": {"name": "a"}, "spec": {"signerName": "a.b/d"}}),
                false,
            ),
        ] {
            assert_eq!(differs_for_collection(&new, &old), expected, "{new}");
        }
    }
}
