//! The storage.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod csi_driver;
mod csi_node;
mod csi_storage_capacity;
mod storage_class;
mod volume_attachment;
mod volume_attributes_class;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("csidrivers", "CSIDriver")
            .cluster()
            .table(&table::CSI_DRIVER)
            .rules(&csi_driver::RULES),
        b.kind("csinodes", "CSINode")
            .cluster()
            .table(&table::CSI_NODE)
            .rules(&csi_node::RULES),
        b.kind("csistoragecapacities", "CSIStorageCapacity")
            .table(&table::DEFAULT)
            .rules(&csi_storage_capacity::RULES),
        b.kind("storageclasses", "StorageClass")
            .cluster()
            .short(&["sc"])
            .table(&table::STORAGE_CLASS)
            .rules(&storage_class::RULES),
        b.kind("volumeattachments", "VolumeAttachment")
            .cluster()
            .table(&table::VOLUME_ATTACHMENT)
            .rules(&volume_attachment::RULES),
        b.kind("volumeattributesclasses", "VolumeAttributesClass")
            .cluster()
            .short(&["vac"])
            .table(&table::VOLUME_ATTRIBUTES_CLASS)
            .rules(&volume_attributes_class::RULES),
    ]
}
