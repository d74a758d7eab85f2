//! The coordination.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod lease;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("leases", "Lease")
            .table(&table::LEASE)
            .rules(&lease::RULES),
    ]
}
