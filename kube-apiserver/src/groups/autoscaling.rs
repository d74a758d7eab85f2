//! The autoscaling group. Autoscalers are stored as v2; v1 shows the CPU target and keeps the rest in annotations.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod conversion;
mod defaults;
mod horizontal_pod_autoscaler;

pub(crate) fn v2(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("horizontalpodautoscalers", "HorizontalPodAutoscaler")
            .short(&["hpa"])
            .category("all")
            .table(&table::HPA)
            .rules(&horizontal_pod_autoscaler::RULES),
    ]
}

pub(crate) fn v1(b: &Builder<'_>, v2: &[Arc<ServedResource>]) -> Vec<Arc<ServedResource>> {
    let stored = v2.first();
    stored
        .map(|stored| {
            b.kind("horizontalpodautoscalers", "HorizontalPodAutoscaler")
                .short(&["hpa"])
                .category("all")
                .table(&table::HPA)
                .stored_as(stored, conversion::V1)
                .rules(&horizontal_pod_autoscaler::RULES_V1)
        })
        .into_iter()
        .collect()
}
