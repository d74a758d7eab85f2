//! The storagemigration.k8s.io group: off unless the feature gate and the runtime configuration turn it on, as upstream has it.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;

mod storage_version_migration;

pub(crate) use storage_version_migration::says;

pub(crate) fn v1beta1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("storageversionmigrations", "StorageVersionMigration")
            .cluster()
            .rules(&storage_version_migration::RULES),
    ]
}
