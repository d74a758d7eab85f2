//! What the line of the log at the start says of the configuration.

use super::{Config, Engine};

/// The store, and what is on.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) store: String,
    pub(crate) on: String,
}

impl Config {
    pub(crate) fn summary(&self) -> Summary {
        let store = match (&self.storage.engine, &self.data_dir) {
            (Engine::Etcd(etcd), _) => format!("etcd at {}", etcd.servers.join(",")),
            (Engine::Embedded { kind, .. }, Some(directory)) => {
                format!("{} in {}", kind.name(), directory.display())
            }
            (Engine::Embedded { kind, .. }, None) => kind.name().to_string(),
        };
        let parts = [
            ("priority and fairness", self.requests.fairness),
            ("auditing", self.audit.policy_file.is_some()),
            ("encryption at rest", self.encryption.is_some()),
            ("status page", self.enable_ui),
            ("aggregator routing", self.enable_aggregator_routing),
        ];
        let on: Vec<&str> = parts
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
            .collect();
        Summary {
            store,
            on: on.join(", "),
        }
    }
}
