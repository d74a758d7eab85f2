//! The dependencies of the server, and its name.

use std::sync::Arc;
use std::time::Duration;

use generic_server::directory::Directory;
use generic_server::handlers::ServeEnv;
use generic_server::registry::StorageFactory;
use generic_server::webhook::Services;

use crate::usage::RuleTimes;

/// The group of the CRD kind itself.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";

/// `groupPriorityMinimum` and `versionPriority` of the group of CRDs itself; `None` of others. Upstream's.
pub fn priority(group: &str) -> Option<(i32, i32)> {
    (group == GROUP).then_some((16_700, 15))
}

/// The dependencies of the server.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where CRDs and their instances are stored.
    pub storage: StorageFactory,
    /// Where all keys begin (`--etcd-prefix`): `/registry`.
    pub prefix: String,
    /// Where the stores of custom resources are registered, for garbage collection and namespace deletion.
    pub directory: Arc<Directory>,
    /// Where the services of conversion webhooks are, and how they are reached.
    pub services: Services,
    /// Admission, authorization and bounds.
    pub env: ServeEnv,
    /// How long things may take.
    pub limits: Limits,
    /// Where the times of rules are counted.
    pub rule_times: Arc<RuleTimes>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// One call of a conversion webhook, connecting included; upstream's are 30 seconds.
    pub conversion: Duration,
    /// The interval between checks for compiled CRDs that were not used since the last; they are dropped.
    pub idle_check: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            conversion: Duration::from_secs(30),
            idle_check: Duration::from_secs(300),
        }
    }
}
