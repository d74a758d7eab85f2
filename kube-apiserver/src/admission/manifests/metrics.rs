//! The metrics of manifests, under upstream's names: reloads by plugin and outcome, and what is in use.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use generic_server::metrics::{Collect, family, sample, server_hash};
use parking_lot::Mutex;

use super::Plugin;

const NAME: &str = "apiserver_manifest_admission_config_controller";

/// What was reloaded, of all plugins.
#[derive(Debug)]
pub(in crate::admission) struct ManifestReloads {
    server: String,
    state: Mutex<BTreeMap<Plugin, State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Successes and failures: how many, and when the last one was, in seconds since 1970.
    counts: [(u64, u64); 2],
    /// The hash of what is in use.
    applied: String,
}

impl Default for ManifestReloads {
    fn default() -> Self {
        ManifestReloads {
            server: server_hash(),
            state: Mutex::default(),
        }
    }
}

impl ManifestReloads {
    /// Manifests with this hash are in use from now on.
    pub(super) fn succeeded(&self, plugin: Plugin, hash: &str) {
        self.count(plugin, 0).applied = hash.to_string();
    }

    /// Manifests cannot be used.
    pub(super) fn failed(&self, plugin: Plugin) {
        drop(self.count(plugin, 1));
    }

    fn count(&self, plugin: Plugin, outcome: usize) -> parking_lot::MappedMutexGuard<'_, State> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = self.state.lock();
        let mut state = parking_lot::MutexGuard::map(state, |state| state.entry(plugin).or_default());
        let (count, last) = &mut state.counts[outcome];
        *count += 1;
        *last = now.as_secs();
        state
    }
}

impl Collect for ManifestReloads {
    fn collect(&self, out: &mut String) {
        let state = self.state.lock();
        if state.is_empty() {
            return;
        }
        let rows = || {
            let rows = state.iter().flat_map(|(plugin, state)| {
                let counts = ["success", "failure"].into_iter().zip(state.counts);
                counts.map(|(status, counts)| (plugin.name(), status, counts))
            });
            rows.filter(|(_, _, (count, _))| *count > 0)
        };
        let server = &*self.server;
        let labels = |plugin, status| {
            [
                ("apiserver_id_hash", server),
                ("plugin", plugin),
                ("status", status),
            ]
        };
        let total = format!("{NAME}_automatic_reloads_total");
        let help = "Total number of automatic reloads of admission manifest configuration split by status, plugin, and apiserver identity.";
        family(out, &total, "counter", help);
        for (plugin, status, (count, _)) in rows() {
            sample(out, &total, &labels(plugin, status), count);
        }
        let last = format!("{NAME}_automatic_reload_last_timestamp_seconds");
        let help = "Timestamp of the last automatic reload of admission manifest configuration split by status, plugin, and apiserver identity.";
        family(out, &last, "gauge", help);
        for (plugin, status, (_, at)) in rows() {
            sample(out, &last, &labels(plugin, status), at);
        }
        let info = format!("{NAME}_last_config_info");
        let help = "Information about the last applied admission manifest configuration with hash as label, split by plugin and apiserver identity.";
        family(out, &info, "gauge", help);
        for (plugin, state) in &*state {
            let labels = [
                ("apiserver_id_hash", server),
                ("hash", &*state.applied),
                ("plugin", plugin.name()),
            ];
            sample(out, &info, &labels, 1);
        }
    }
}
