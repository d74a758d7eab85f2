//! Metrics of JWT authenticators and of their configuration, under upstream's names. Issuers, keys and configurations are named by hashes.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use generic_server::metrics::{Collect, Histogram, Reloads, content_hash, family, sample, server_hash};
use parking_lot::Mutex;

/// Upstream's buckets of `apiserver_authentication_jwt_authenticator_latency_seconds`.
const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// By the index of an outcome.
const RESULTS: [&str; 2] = ["success", "failure"];

/// Counted as it happens. The number of series is bounded by the issuers of the configuration.
#[derive(Debug)]
pub(crate) struct JwtMetrics {
    /// By the hash of the issuer.
    issuers: Mutex<BTreeMap<String, Row>>,
    /// The hash of this server's identity.
    server: String,
    config: Reloads,
}

#[derive(Debug)]
struct Row {
    latency: [Histogram; 2],
    fetched: [Option<u64>; 2],
    /// The hash of the keys that were last fetched.
    keys: Option<String>,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

impl Default for JwtMetrics {
    fn default() -> Self {
        JwtMetrics {
            issuers: Mutex::default(),
            server: server_hash(),
            config: Reloads::new("authentication"),
        }
    }
}

impl Default for Row {
    fn default() -> Self {
        Row {
            latency: [Histogram::new(BUCKETS), Histogram::new(BUCKETS)],
            fetched: [None; 2],
            keys: None,
        }
    }
}

impl JwtMetrics {
    /// A token of this issuer was verified, or not, in this time.
    pub(super) fn authenticated(&self, issuer: &str, good: bool, took: Duration) {
        let mut issuers = self.issuers.lock();
        let row = issuers.entry(content_hash(issuer.as_bytes())).or_default();
        row.latency[usize::from(!good)].observe(took);
    }

    /// The keys of an issuer were fetched, or could not be.
    pub(super) fn fetched(&self, issuer: &str, keys: Option<&[u8]>) {
        let mut issuers = self.issuers.lock();
        let row = issuers.entry(content_hash(issuer.as_bytes())).or_default();
        row.fetched[usize::from(keys.is_none())] = Some(now());
        if let Some(keys) = keys {
            row.keys = Some(content_hash(keys));
        }
    }

    /// Forgets the keys of issuers that are not among these any more.
    pub(super) fn keep_issuers<'i>(&self, issuers: impl Iterator<Item = &'i str>) {
        let kept: HashSet<String> = issuers.map(|issuer| content_hash(issuer.as_bytes())).collect();
        self.issuers.lock().retain(|hash, _| kept.contains(hash));
    }

    /// This configuration is in use from now on.
    pub(super) fn configured(&self, data: &[u8]) {
        self.config.applied(data);
    }

    /// A changed configuration was taken over, or not.
    pub(super) fn reloaded(&self, good: bool) {
        self.config.reloaded(good);
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
                if histogram.count() > 0 {
                    histogram.write(out, name, &labels);
                }
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
                    let labels = [
                        ("result", result),
                        ("jwt_issuer_hash", issuer.as_str()),
                        ("apiserver_id_hash", self.server.as_str()),
                    ];
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
                let labels = [
                    ("jwt_issuer_hash", issuer.as_str()),
                    ("apiserver_id_hash", self.server.as_str()),
                    ("hash", keys.as_str()),
                ];
                sample(out, name, &labels, 1);
            }
        }
        drop(issuers);
        self.config.collect(out);
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
        let hash = content_hash(b"https://a");
        let server = server_hash();
        for expected in [
            format!(
                "_latency_seconds_bucket{{result=\"success\",jwt_issuer_hash=\"{hash}\",le=\"0.005\"}} 1\n"
            ),
            format!(
                "_latency_seconds_bucket{{result=\"success\",jwt_issuer_hash=\"{hash}\",le=\"+Inf\"}} 2\n"
            ),
            format!("_latency_seconds_count{{result=\"success\",jwt_issuer_hash=\"{hash}\"}} 2\n"),
            format!(
                "_jwks_fetch_last_key_set_info{{jwt_issuer_hash=\"{hash}\",apiserver_id_hash=\"{server}\",hash=\"{}\"}} 1\n",
                content_hash(b"{}")
            ),
            format!(
                "_jwks_fetch_last_timestamp_seconds{{result=\"failure\",jwt_issuer_hash=\"{hash}\",apiserver_id_hash=\"{server}\"}} "
            ),
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
        assert!(out.contains("status=\"failure\"} 1\n"), "{out}");
        let info = format!("hash=\"{}\"}} 1\n", content_hash(b"file"));
        assert!(out.contains(&info), "{out}");
    }
}
