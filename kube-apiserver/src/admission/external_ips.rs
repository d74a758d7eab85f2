//! DenyServiceExternalIPs: services take no external IPs that they have not had.

use generic_server::ApiError;
use generic_server::admission::{AdmissionPlugin, Attributes, Operation};
use machinery::GroupVersionResource;
use serde_json::Value;

use super::{forbidden, is};
use crate::json::Json;

#[derive(Debug)]
pub(super) struct DenyServiceExternalIps;

#[async_trait::async_trait]
impl AdmissionPlugin for DenyServiceExternalIps {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, operation: Operation, gvr: &GroupVersionResource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && subresource.is_empty()
            && is(gvr, "", "services")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<(), ApiError> {
        let Some(service) = object else { return Ok(()) };
        let before: std::collections::HashSet<&str> = match attributes.old {
            Some(old) => old.strings("spec.externalIPs").collect(),
            None => Default::default(),
        };
        match service.strings("spec.externalIPs").all(|ip| before.contains(ip)) {
            true => Ok(()),
            false => Err(forbidden(
                attributes,
                object,
                "Use of external IPs is denied by admission control",
            )),
        }
    }
}
