//! PersistentVolumeClaimResize: a claim asks for more only once it is bound, and if its storage class allows that.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::quantity::Quantity;
use machinery::{GroupVersionResource, meta};
use serde_json::Value;

use super::{forbidden, is};
use crate::client::Client;
use crate::json::Json;

#[derive(Debug)]
pub(super) struct PersistentVolumeClaimResize(pub(super) Client);

/// The storage that a claim requests.
fn size(claim: &Value) -> Option<Quantity> {
    Quantity::parse(claim.text("spec.resources.requests.storage")).ok()
}

/// The storage class of a claim: the annotation that came before the field wins.
fn class(claim: &Value) -> &str {
    let annotations = meta::annotations(claim);
    let old = annotations.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
    match old.and_then(Value::as_str) {
        Some(class) => class,
        None => claim.text("spec.storageClassName"),
    }
}

#[async_trait::async_trait]
impl AdmissionPlugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        operation == Operation::Update && subresource.is_empty() && is(gvr, "", "persistentvolumeclaims")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let (Some(claim), Some(old)) = (object, attributes.old) else {
            return Ok(());
        };
        // Nothing asked for counts as nothing.
        if size(claim).is_none_or(|new| size(old).is_some_and(|old| new <= old)) {
            return Ok(());
        }
        if old.text("status.phase") != "Bound" {
            let why = "Only bound persistent volume claims can be expanded";
            return Err(forbidden(attributes, Some(claim), why));
        }
        let name = class(claim);
        let class = match name.is_empty() || name != class(old) {
            true => None,
            false => {
                let at = ("storage.k8s.io", "storageclasses");
                self.0.find(at, "", name).await?
            }
        };
        if class.is_some_and(|class| class.flag("allowVolumeExpansion")) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        Err(forbidden(attributes, Some(claim), why))
    }
}
