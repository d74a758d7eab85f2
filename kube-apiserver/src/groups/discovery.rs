//! The discovery.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod endpoint_slice;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("endpointslices", "EndpointSlice")
            .table(&table::ENDPOINT_SLICE)
            .rules(&endpoint_slice::RULES),
    ]
}
