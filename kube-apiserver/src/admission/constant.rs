//! AlwaysAdmit and AlwaysDeny: deprecated upstream, there for manifests that name them.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::GroupVersionResource;
use serde_json::Value;

use super::forbidden;

const DENIED: &str = "admission control is denying all modifications";

#[derive(Debug)]
pub(super) struct AlwaysAdmit;

#[async_trait::async_trait]
impl AdmissionPlugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn handles(&self, _: Operation, _: &GroupVersionResource, _: &str) -> bool {
        false
    }
}

#[derive(Debug)]
pub(super) struct AlwaysDeny;

#[async_trait::async_trait]
impl AdmissionPlugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, _: Operation, _: &GroupVersionResource, _: &str) -> bool {
        true
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: Option<&mut Value>) -> Result<(), ApiError> {
        Err(forbidden(attributes, object.as_deref(), DENIED))
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        Err(forbidden(attributes, object, DENIED))
    }
}
