//! The resource.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use self::access::{AdminAccess, StatusAccess};
use crate::kind::Builder;
use crate::table;

mod access;
mod claim_status;
mod device;
mod device_class;
mod device_taint_rule;
mod request_policy;
mod requests;
mod resource_claim;
mod resource_claim_template;
mod resource_pool_status_request;
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
            .rules_with(
                &resource_claim::RULES,
                AdminAccess::new(b.deps),
                Some(Arc::new(StatusAccess::new(b.deps))),
            ),
        b.kind("resourceclaimtemplates", "ResourceClaimTemplate")
            .table(&table::NAME_AGE)
            .rules_with(&resource_claim_template::RULES, AdminAccess::new(b.deps), None),
        b.kind("resourceslices", "ResourceSlice")
            .cluster()
            .table(&table::RESOURCE_SLICE)
            .rules(&resource_slice::RULES),
    ]
}

/// Off unless the runtime configuration turns it on, as upstream has it.
pub(crate) fn v1alpha3(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("devicetaintrules", "DeviceTaintRule")
            .cluster()
            .table(&table::DEVICE_TAINT_RULE)
            .deprecated(
                "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
            )
            .rules(&device_taint_rule::RULES),
        b.kind("resourcepoolstatusrequests", "ResourcePoolStatusRequest")
            .cluster()
            .table(&table::RESOURCE_POOL_STATUS_REQUEST)
            .rules(&resource_pool_status_request::RULES),
    ]
}

/// Rules for taints, stored as v1alpha3.
pub(crate) fn v1beta2(b: &Builder<'_>, v1alpha3: &[Arc<ServedResource>]) -> Vec<Arc<ServedResource>> {
    let rules = v1alpha3.first().map(|stored| {
        b.kind("devicetaintrules", "DeviceTaintRule")
            .cluster()
            .table(&table::DEVICE_TAINT_RULE)
            .stored_as(stored, device_taint_rule::V1Beta2)
            .rules(&device_taint_rule::RULES)
    });
    rules.into_iter().collect()
}
