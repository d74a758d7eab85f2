//! Metrics of encryption at rest, under upstream's names.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use machinery::GroupResource;
use parking_lot::Mutex;

use super::Encryption;
use crate::metrics::{Collect, family, sample};

/// Counted as it happens. The number of series is bounded by resources and providers.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    transformations: Mutex<BTreeMap<GroupResource, Vec<Row>>>,
    /// Successes and failures: how many, and when the last one was.
    reloads: Mutex<[(u64, u64); 2]>,
}

#[derive(Debug)]
struct Row {
    to_storage: bool,
    prefix: Box<[u8]>,
    good: u64,
    bad: u64,
}

impl Figures {
    pub(crate) fn transformed(&self, resource: &GroupResource, to_storage: bool, prefix: &[u8], good: bool) {
        let mut all = self.transformations.lock();
        if !all.contains_key(resource) {
            all.insert(resource.clone(), Vec::new());
        }
        let Some(rows) = all.get_mut(resource) else { return };
        let at = rows
            .iter()
            .position(|row| row.to_storage == to_storage && *row.prefix == *prefix);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                to_storage,
                prefix: prefix.into(),
                good: 0,
                bad: 0,
            });
            rows.len() - 1
        });
        match good {
            true => rows[at].good += 1,
            false => rows[at].bad += 1,
        }
    }

    pub(super) fn reloaded(&self, good: bool) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut reloads = self.reloads.lock();
        let (count, last) = &mut reloads[usize::from(!good)];
        *count += 1;
        *last = now.as_secs();
    }
}

impl Collect for Encryption {
    fn collect(&self, out: &mut String) {
        let name = "apiserver_storage_transformation_operations_total";
        family(
            out,
            name,
            "counter",
            "Values transformed for the store and back, by outcome.",
        );
        for (resource, rows) in &*self.figures.transformations.lock() {
            let resource = resource.to_string();
            for row in rows {
                let direction = if row.to_storage {
                    "to_storage"
                } else {
                    "from_storage"
                };
                let prefix = String::from_utf8_lossy(&row.prefix);
                for (status, count) in [("OK", row.good), ("Unknown", row.bad)] {
                    if count > 0 {
                        let labels = [
                            ("resource", resource.as_str()),
                            ("status", status),
                            ("transformation_type", direction),
                            ("transformer_prefix", &*prefix),
                        ];
                        sample(out, name, &labels, count);
                    }
                }
            }
        }
        let reloads = *self.figures.reloads.lock();
        let statuses = [("success", reloads[0]), ("failure", reloads[1])];
        let name = "apiserver_encryption_config_controller_automatic_reloads_total";
        family(
            out,
            name,
            "counter",
            "Reloads of the changed encryption configuration.",
        );
        for (status, (count, _)) in statuses {
            sample(out, name, &[("status", status)], count);
        }
        let name = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";
        family(out, name, "gauge", "Time of the last reload.");
        for (status, (_, last)) in statuses.into_iter().filter(|(_, (count, _))| *count > 0) {
            sample(out, name, &[("status", status)], last);
        }
        let loaded = self.current.load();
        let name = "apiserver_encryption_config_controller_last_config_info";
        family(
            out,
            name,
            "gauge",
            "The hash of the encryption configuration in use.",
        );
        sample(out, name, &[("hash", &loaded.hash)], 1);
        let name = "apiserver_envelope_encryption_dek_source_cache_size";
        if !loaded.kms.is_empty() {
            family(out, name, "gauge", "Data encryption seeds that are known.");
            for kms in &loaded.kms {
                sample(out, name, &[("provider_name", kms.name())], kms.known_keys());
            }
        }
    }
}
