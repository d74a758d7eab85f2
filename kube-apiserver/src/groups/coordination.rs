//! The coordination.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod lease;
mod lease_candidate;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("leases", "Lease")
            .table(&table::LEASE)
            .rules(&lease::RULES),
    ]
}

/// Off unless the runtime configuration turns it on, as upstream has it.
pub(crate) fn v1beta1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("leasecandidates", "LeaseCandidate")
            .table(&table::LEASE_CANDIDATE)
            .rules(&lease_candidate::RULES),
    ]
}
