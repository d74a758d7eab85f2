//! The metrics of token caches, under upstream's names (`authentication_token_cache_*`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::TokenVerdict;
use crate::metrics::{Collect, DEFAULT_BUCKETS, Histograms, family, sample};

/// What the token caches of a server do. Shared by all of them.
#[derive(Debug)]
pub struct TokenCacheMetrics {
    lookups: Histograms<1>,
    succeeded: AtomicU64,
    failed: AtomicU64,
    in_flight: AtomicUsize,
    blocked: AtomicUsize,
}

impl Default for TokenCacheMetrics {
    fn default() -> Self {
        TokenCacheMetrics {
            lookups: Histograms::new(
                "authentication_token_cache_request_duration_seconds",
                "How long the authentication of tokens took, by whether they were in the cache.",
                ["status"],
                DEFAULT_BUCKETS,
                [["hit"], ["miss"]],
            ),
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            blocked: AtomicUsize::new(0),
        }
    }
}

/// One more in a gauge, until it is dropped.
#[derive(Debug)]
pub(crate) struct Gauged<'a>(&'a AtomicUsize);

impl<'a> Gauged<'a> {
    /// One more in `gauge`.
    pub(crate) fn of(gauge: &'a AtomicUsize) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Gauged(gauge)
    }
}

impl Drop for Gauged<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The verification of a token that was not in the cache.
#[derive(Debug)]
pub(crate) struct Fetch<'a> {
    metrics: &'a TokenCacheMetrics,
    _in_flight: Gauged<'a>,
}

impl Fetch<'_> {
    /// Counts the verification by its verdict.
    pub(crate) fn done(self, verdict: &TokenVerdict) {
        let count = match verdict {
            TokenVerdict::Failed(_) => &self.metrics.failed,
            TokenVerdict::User(..) | TokenVerdict::NotMine => &self.metrics.succeeded,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl TokenCacheMetrics {
    /// A token was authenticated, or was not.
    pub(super) fn looked_up(&self, hit: bool, took: Duration) {
        self.lookups.observe([if hit { "hit" } else { "miss" }], took);
    }

    /// A request waits for a verification.
    pub(crate) fn waiting(&self) -> Gauged<'_> {
        Gauged::of(&self.blocked)
    }

    /// A token is verified.
    pub(crate) fn fetch(&self) -> Fetch<'_> {
        Fetch {
            metrics: self,
            _in_flight: Gauged::of(&self.in_flight),
        }
    }
}

impl Collect for TokenCacheMetrics {
    fn collect(&self, out: &mut String) {
        self.lookups.write_counts(
            out,
            "authentication_token_cache_request_total",
            "Tokens that were authenticated, by whether they were in the cache.",
        );
        self.lookups.write(out);
        let name = "authentication_token_cache_fetch_total";
        family(
            out,
            name,
            "counter",
            "Verifications of tokens that were not in the cache.",
        );
        for (status, count) in [("ok", &self.succeeded), ("error", &self.failed)] {
            sample(out, name, &[("status", status)], count.load(Ordering::Relaxed));
        }
        let name = "authentication_token_cache_active_fetch_count";
        family(
            out,
            name,
            "gauge",
            "Verifications of tokens under way, and requests that wait for them.",
        );
        for (status, count) in [("in_flight", &self.in_flight), ("blocked", &self.blocked)] {
            sample(out, name, &[("status", status)], count.load(Ordering::Relaxed));
        }
    }
}
