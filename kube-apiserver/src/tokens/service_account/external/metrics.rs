//! Metrics of the program that signs, under upstream's names.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use generic_server::metrics::{Collect, Histogram, family, sample};
use parking_lot::Mutex;

/// Upstream's buckets.
const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Counted as it happens. There are as many series as codes of gRPC, and one more.
#[derive(Debug, Default)]
pub(super) struct SignerMetrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    signed: BTreeMap<&'static str, u64>,
    fetched: BTreeMap<&'static str, u64>,
    calls: BTreeMap<(&'static str, &'static str), Histogram>,
    last_fetch: f64,
    data: f64,
}

impl SignerMetrics {
    /// A call of a method has ended.
    pub(super) fn called(&self, method: &'static str, code: &'static str, took: Duration) {
        let mut counts = self.0.lock();
        let histogram = counts.calls.entry((method, code));
        histogram.or_insert_with(|| Histogram::new(BUCKETS)).observe(took);
    }

    /// A token was signed, or not.
    pub(super) fn signed(&self, code: &'static str) {
        *self.0.lock().signed.entry(code).or_default() += 1;
    }

    /// Keys of a moment were fetched, or not.
    pub(super) fn fetched(&self, code: &'static str, data: Option<f64>) {
        let mut counts = self.0.lock();
        *counts.fetched.entry(code).or_default() += 1;
        if let Some(data) = data {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            counts.last_fetch = now.unwrap_or_default().as_secs_f64();
            counts.data = data;
        }
    }
}

impl Collect for SignerMetrics {
    fn collect(&self, out: &mut String) {
        let counts = self.0.lock();
        for (name, help, by_code) in [
            (
                "apiserver_externaljwt_sign_request_total",
                "Tokens that were to be signed by the external signer, by code.",
                &counts.signed,
            ),
            (
                "apiserver_externaljwt_fetch_keys_request_total",
                "Fetches of the external signer's keys, by code.",
                &counts.fetched,
            ),
        ] {
            family(out, name, "counter", help);
            for (code, count) in by_code {
                sample(out, name, &[("code", code)], count);
            }
        }
        for (name, help, value) in [
            (
                "apiserver_externaljwt_fetch_keys_success_timestamp",
                "Time of the last successful fetch of keys, since the epoch in seconds.",
                counts.last_fetch,
            ),
            (
                "apiserver_externaljwt_fetch_keys_data_timestamp",
                "Time that the keys which were last fetched are of, since the epoch in seconds.",
                counts.data,
            ),
        ] {
            family(out, name, "gauge", help);
            sample(out, name, &[], value);
        }
        let name = "apiserver_externaljwt_request_duration_seconds";
        family(
            out,
            name,
            "histogram",
            "How long calls to the external signer took, in seconds, by method and code.",
        );
        for ((method, code), histogram) in &counts.calls {
            histogram.write(out, name, &[("method", method), ("code", code)]);
        }
    }
}
