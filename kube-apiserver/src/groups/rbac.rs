//! The rbac.authorization.k8s.io group.

use std::sync::Arc;

use generic_server::resource::ServedResource;

use crate::kind::Builder;
use crate::table;

mod cluster_role;
mod cluster_role_binding;
mod role;
mod role_binding;
mod rules;

pub(crate) fn v1(b: &Builder<'_>) -> Vec<Arc<ServedResource>> {
    vec![
        b.kind("clusterrolebindings", "ClusterRoleBinding")
            .cluster()
            .table(&table::ROLE_BINDING)
            .rules(&cluster_role_binding::RULES),
        b.kind("clusterroles", "ClusterRole")
            .cluster()
            .table(&table::DEFAULT)
            .rules(&cluster_role::RULES),
        b.kind("rolebindings", "RoleBinding")
            .table(&table::ROLE_BINDING)
            .rules(&role_binding::RULES),
        b.kind("roles", "Role").table(&table::DEFAULT).rules(&role::RULES),
    ]
}
