//! The apps group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use machinery::FieldPath;
use serde_json::Value;

use crate::errors::Errors;
use crate::json::Json;
use crate::kind::Builder;
use crate::table;

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("controllerrevisions", "ControllerRevision")
            .table(&table::CONTROLLER_REVISION)
            .rules(&controller_revision::RULES),
        b.kind("daemonsets", "DaemonSet")
            .short(&["ds"])
            .category("all")
            .table(&table::DAEMON_SET)
            .rules(&daemon_set::RULES),
        b.kind("deployments", "Deployment")
            .short(&["deploy"])
            .category("all")
            .scale()
            .table(&table::DEPLOYMENT)
            .rules(&deployment::RULES),
        b.kind("replicasets", "ReplicaSet")
            .short(&["rs"])
            .category("all")
            .scale()
            .table(&table::REPLICA_SET)
            .rules(&replica_set::RULES),
        b.kind("statefulsets", "StatefulSet")
            .short(&["sts"])
            .category("all")
            .scale()
            .table(&table::STATEFUL_SET)
            .rules(&stateful_set::RULES),
    ]
}

/// The selector of a workload does not change.
fn selector_stays(errors: &mut Errors, object: &Value, old: &Value) {
    let path = FieldPath::new("spec");
    errors.immutable(&path, "selector", object.dig("spec"), old.dig("spec"));
}
