//! Metrics of JWT authenticators and of their configuration, under upstream's names. Issuers, keys and configurations are named by hashes.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use generic_server::metrics::{Collect, family, sample};
use parking_lot::Mutex;
use ring::digest;

/// Upstream's buckets of `apiserver_authentication_jwt_authenticator_latency_seconds`.
const BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// By the index of an outcome.
const RESULTS: [&str; 2] = ["success", "failure"];

/// Counted as it happens. The number of series is bounded by the issuers of the configuration.
#[derive(Debug, Default)]
pub(crate) struct JwtMetrics {
    /// By the hash of the issuer.
    issuers: Mutex<BTreeMap<String, Row>>,
    config: Mutex<ConfigFigures>,
}

#[derive(Debug, Default)]
struct Row {
    latency: [Histogram; 2],
    fetched: [Option<u64>; 2],
    /// The hash of the keys that were last fetched.
    keys: Option<String>,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len() + 1],
    sum: Duration,
}

#[derive(Debug, Default)]
struct ConfigFigures {
    /// Of the file in use; `None` without a file.
    hash: Option<String>,
    /// How many reloads, and when the last one was.
    reloads: [(u64, u64); 2],
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

fn hash_of(data: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in digest::digest(&digest::SHA256, data).as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl JwtMetrics {
    /// A token of this issuer was verified, or not, in this time.
    pub(super) fn authenticated(&self, issuer: &str, good: bool, took: Duration) {
        let bucket = BUCKETS.iter().position(|bound| took.as_secs_f64() <= *bound);
        let mut issuers = self.issuers.lock();
        let row = issuers.entry(hash_of(issuer.as_bytes())).or_default();
        let histogram = &mut row.latency[usize::from(!good)];
        histogram.buckets[bucket.unwrap_or(BUCKETS.len())] += 1;
        histogram.sum += took;
    }

    /// The keys of an issuer were fetched, or could not be.
    pub(super) fn fetched(&self, issuer: &str, keys: Option<&[u8]>) {
        let mut issuers = self.issuers.lock();
        let row = issuers.entry(hash_of(issuer.as_bytes())).or_default();
        row.fetched[usize::from(keys.is_none())] = Some(now());
        if let Some(keys) = keys {
            row.keys = Some(hash_of(keys));
        }
    }

    /// Forgets the keys of issuers that are not among these any more.
    pub(super) fn keep_issuers<'i>(&self, issuers: impl Iterator<Item = &'i str>) {
        let kept: HashSet<String> = issuers.map(|issuer| hash_of(issuer.as_bytes())).collect();
        self.issuers.lock().retain(|hash, _| kept.contains(hash));
    }

    /// This configuration is in use from now on.
    pub(super) fn configured(&self, data: &[u8]) {
        self.config.lock().hash = Some(hash_of(data));
    }

    /// A changed configuration was taken over, or not.
    pub(super) fn reloaded(&self, good: bool) {
        let (count, last) = &mut self.config.lock().reloads[usize::from(!good)];
        *count += 1;
        *last = now();
    }

    fn collect_config(&self, out: &mut String) {
        let config = self.config.lock();
        let Some(hash) = &config.hash else { return };
        let reloads = || {
            RESULTS
                .into_iter()
                .zip(config.reloads)
                .filter(|(_, (count, _))| *count > 0)
        };
        let name = "apiserver_authentication_config_controller_automatic_reloads_total";
        family(
            out,
            name,
            "counter",
            "Reloads of the changed authentication configuration.",
        );
        for (status, (count, _)) in reloads() {
            sample(out, name, &[("status", status)], count);
        }
        let name = "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds";
        family(out, name, "gauge", "Time of the last reload.");
        for (status, (_, last)) in reloads() {
            sample(out, name, &[("status", status)], last);
        }
        let name = "apiserver_authentication_config_controller_last_config_info";
        family(
            out,
            name,
            "gauge",
            "The hash of the authentication configuration in use.",
        );
        sample(out, name, &[("hash", hash)], 1);
    }
}

impl Collect for JwtMetrics {
    fn collect(&self, out: &mut String) {
        let issuers = self.issuers.lock();
        let name = "apiserver_authentication_jwt_authenticator_latency_seconds";
        family(
            out,
            name,
            "histogram",
            "How long tokens took to be verified, in seconds, by issuer and outcome.",
        );
        for (issuer, row) in &*issuers {
            for (result, histogram) in RESULTS.into_iter().zip(&row.latency) {
                let labels = [("result", result), ("jwt_issuer_hash", issuer.as_str())];
                histogram.write(out, name, labels);
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
        family(
            out,
            name,
            "gauge",
            "Time of the last fetch of keys, by issuer and outcome.",
        );
        for (issuer, row) in &*issuers {
            for (result, fetched) in RESULTS.into_iter().zip(row.fetched) {
                if let Some(at) = fetched {
                    let labels = [("result", result), ("jwt_issuer_hash", issuer.as_str())];
                    sample(out, name, &labels, at);
                }
            }
        }
        let name = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";
        family(
            out,
            name,
            "gauge",
            "The hash of the keys that were last fetched, by issuer.",
        );
        for (issuer, row) in &*issuers {
            if let Some(keys) = &row.keys {
                sample(out, name, &[("jwt_issuer_hash", issuer), ("hash", keys)], 1);
            }
        }
        drop(issuers);
        self.collect_config(out);
    }
}

impl Histogram {
    fn write(&self, out: &mut String, name: &str, labels: [(&str, &str); 2]) {
        let mut running = 0;
        if self.buckets == [0; BUCKETS.len() + 1] {
            return;
        }
        for (bound, count) in BUCKETS.iter().map(Some).chain([None]).zip(self.buckets) {
            running += count;
            let bound = bound.map_or("+Inf".to_owned(), f64::to_string);
            let labels = [labels[0], labels[1], ("le", &bound)];
            sample(out, &format!("{name}_bucket"), &labels, running);
        }
        sample(out, &format!("{name}_sum"), &labels, self.sum.as_secs_f64());
        sample(out, &format!("{name}_count"), &labels, running);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_name_issuers_by_their_hash() {
        let metrics = JwtMetrics::default();
        metrics.authenticated("https://a", true, Duration::from_millis(3));
        metrics.authenticated("https://a", true, Duration::from_secs(60));
        metrics.fetched("https://a", Some(b"{}"));
        metrics.fetched("https://a", None);
        let mut out = String::new();
        metrics.collect(&mut out);
        let hash = hash_of(b"https://a");
        for expected in [
            format!(
                "_latency_seconds_bucket{{result=\"success\",jwt_issuer_hash=\"{hash}\",le=\"0.005\"}} 1\n"
            ),
            format!(
                "_latency_seconds_bucket{{result=\"success\",jwt_issuer_hash=\"{hash}\",le=\"+Inf\"}} 2\n"
            ),
            format!("_latency_seconds_count{{result=\"success\",jwt_issuer_hash=\"{hash}\"}} 2\n"),
            format!(
                "_jwks_fetch_last_key_set_info{{jwt_issuer_hash=\"{hash}\",hash=\"{}\"}} 1\n",
                hash_of(b"{}")
            ),
            format!("_jwks_fetch_last_timestamp_seconds{{result=\"failure\",jwt_issuer_hash=\"{hash}\"}} "),
        ] {
            assert!(out.contains(&expected), "{expected}\n{out}");
        }
        assert!(!out.contains("config_controller"), "there is no file");
        metrics.keep_issuers(["https://b"].into_iter());
        metrics.configured(b"file");
        metrics.reloaded(false);
        let mut out = String::new();
        metrics.collect(&mut out);
        assert!(!out.contains(&hash), "{out}");
        assert!(
            out.contains("_automatic_reloads_total{status=\"failure\"} 1\n"),
            "{out}"
        );
        let info = format!("_last_config_info{{hash=\"{}\"}} 1\n", hash_of(b"file"));
        assert!(out.contains(&info), "{out}");
    }
}
