//! The metrics of a configuration file that is read again while the server runs, under upstream's names.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use super::{Collect, family, sample};
use crate::identity;

/// Counts the reloads of one configuration: `apiserver_NAME_config_controller_...`.
#[derive(Debug)]
pub struct Reloads {
    name: &'static str,
    /// The hash of this server's identity.
    server: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Successes and failures: how many, and when the last one was, in seconds since 1970.
    counts: [(u64, u64); 2],
    /// The hash of the content in use; `None` without a file.
    applied: Option<String>,
}

impl Reloads {
    /// `name`: such as `authorization`. Without a file there are no metrics.
    pub fn new(name: &'static str) -> Self {
        Reloads {
            name,
            server: server_hash(),
            state: Mutex::default(),
        }
    }

    /// This content of the file is in use from now on.
    pub fn applied(&self, content: &[u8]) {
        self.state.lock().applied = Some(content_hash(content));
    }

    /// Counts a reload: the changed content is in use, or cannot be used.
    pub fn reloaded(&self, good: bool) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (count, last) = &mut self.state.lock().counts[usize::from(!good)];
        *count += 1;
        *last = now.as_secs();
    }
}

/// The hash that metrics name this server by: `apiserver_id_hash`.
pub fn server_hash() -> String {
    content_hash(identity::of_host(&identity::host()).as_bytes())
}

/// The hash that metrics name a content by.
pub fn content_hash(content: &[u8]) -> String {
    let hex: String = digest(&SHA256, content)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

impl Collect for Reloads {
    fn collect(&self, out: &mut String) {
        let name = self.name;
        let state = self.state.lock();
        let Some(applied) = &state.applied else { return };
        let rows = || ["success", "failure"].into_iter().zip(state.counts);
        let total = format!("apiserver_{name}_config_controller_automatic_reloads_total");
        let help = format!(
            "Total number of automatic reloads of {name} configuration split by status and apiserver identity."
        );
        family(out, &total, "counter", &help);
        for (status, (count, _)) in rows().filter(|(_, (count, _))| *count > 0) {
            let labels = [("apiserver_id_hash", &*self.server), ("status", status)];
            sample(out, &total, &labels, count);
        }
        let last = format!("apiserver_{name}_config_controller_automatic_reload_last_timestamp_seconds");
        let help = format!(
            "Timestamp of the last automatic reload of {name} configuration split by status and apiserver identity."
        );
        family(out, &last, "gauge", &help);
        for (status, (_, at)) in rows().filter(|(_, (count, _))| *count > 0) {
            let labels = [("apiserver_id_hash", &*self.server), ("status", status)];
            sample(out, &last, &labels, at);
        }
        let info = format!("apiserver_{name}_config_controller_last_config_info");
        let help = format!(
            "Information about the last applied {name} configuration with hash as label, split by apiserver identity."
        );
        family(out, &info, "gauge", &help);
        let labels = [("apiserver_id_hash", &*self.server), ("hash", &**applied)];
        sample(out, &info, &labels, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reloads_are_counted_by_outcome() {
        let reloads = Reloads::new("authorization");
        let mut out = String::new();
        reloads.collect(&mut out);
        assert_eq!(out, "", "there is no file");
        reloads.applied(b"one");
        reloads.reloaded(false);
        reloads.applied(b"two");
        reloads.reloaded(true);
        reloads.collect(&mut out);
        let server = reloads.server.clone();
        for expected in [
            format!(
                "apiserver_authorization_config_controller_automatic_reloads_total{{apiserver_id_hash=\"{server}\",status=\"success\"}} 1\n"
            ),
            format!(
                "apiserver_authorization_config_controller_automatic_reloads_total{{apiserver_id_hash=\"{server}\",status=\"failure\"}} 1\n"
            ),
            format!(
                "apiserver_authorization_config_controller_last_config_info{{apiserver_id_hash=\"{server}\",hash=\"{}\"}} 1\n",
                content_hash(b"two")
            ),
        ] {
            assert!(out.contains(&expected), "{out}");
        }
    }
}
