//! The batch group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod cron_job;
mod indexes;
mod job;
mod job_status;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("cronjobs", "CronJob")
            .short(&["cj"])
            .category("all")
            .table(&table::CRON_JOB)
            .rules(&cron_job::RULES),
        b.kind("jobs", "Job")
            .category("all")
            .table(&table::JOB)
            .rules(&job::RULES),
    ]
}
