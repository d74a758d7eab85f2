//! The flowcontrol.apiserver.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod conditions;
mod flow_schema;
mod priority_level_configuration;
mod standard;

pub(crate) use standard::{MANDATORY, Standard, standard};

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("flowschemas", "FlowSchema")
            .cluster()
            .table(&table::FLOW_SCHEMA)
            .rules(&flow_schema::RULES),
        b.kind("prioritylevelconfigurations", "PriorityLevelConfiguration")
            .cluster()
            .table(&table::PRIORITY_LEVEL)
            .rules(&priority_level_configuration::RULES),
    ]
}
