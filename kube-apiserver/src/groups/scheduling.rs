//! The scheduling.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod pod_group;
mod policy;
mod priority_class;
mod workload;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("priorityclasses", "PriorityClass")
            .cluster()
            .short(&["pc"])
            .table(&table::PRIORITY_CLASS)
            .rules(&priority_class::RULES),
    ]
}

/// Off unless the feature gate and the runtime configuration turn it on, as upstream has it.
pub(crate) fn v1alpha2(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("podgroups", "PodGroup")
            .table(&table::POD_GROUP)
            .rules(&pod_group::RULES),
        b.kind("workloads", "Workload").rules(&workload::RULES),
    ]
}
