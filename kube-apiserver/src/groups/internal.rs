//! The internal.apiserver.k8s.io group: off unless the runtime configuration turns it on, as upstream has it.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod storage_version;

pub(crate) fn v1alpha1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("storageversions", "StorageVersion")
            .cluster()
            .table(&table::STORAGE_VERSION)
            .rules(&storage_version::RULES),
    ]
}
