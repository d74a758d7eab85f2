//! The node.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod runtime_class;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("runtimeclasses", "RuntimeClass")
            .cluster()
            .table(&table::RUNTIME_CLASS)
            .rules(&runtime_class::RULES),
    ]
}
