//! The scheduling.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod priority_class;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("priorityclasses", "PriorityClass")
            .cluster()
            .short(&["pc"])
            .table(&table::PRIORITY_CLASS)
            .rules(&priority_class::RULES),
    ]
}
