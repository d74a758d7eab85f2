//! The resource.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod claim_status;
mod device;
mod device_class;
mod request_policy;
mod requests;
mod resource_claim;
mod resource_claim_template;
mod resource_slice;
mod selectors;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("deviceclasses", "DeviceClass")
            .cluster()
            .table(&table::NAME_AGE)
            .rules(&device_class::RULES),
        b.kind("resourceclaims", "ResourceClaim")
            .table(&table::RESOURCE_CLAIM)
            .rules(&resource_claim::RULES),
        b.kind("resourceclaimtemplates", "ResourceClaimTemplate")
            .table(&table::NAME_AGE)
            .rules(&resource_claim_template::RULES),
        b.kind("resourceslices", "ResourceSlice")
            .cluster()
            .table(&table::RESOURCE_SLICE)
            .rules(&resource_slice::RULES),
    ]
}
