//! The policy group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod pod_disruption_budget;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("poddisruptionbudgets", "PodDisruptionBudget")
            .short(&["pdb"])
            .table(&table::PDB)
            .rules(&pod_disruption_budget::RULES),
    ]
}
