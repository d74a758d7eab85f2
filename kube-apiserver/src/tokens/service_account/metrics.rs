//! How service account tokens are used, counted under upstream's names.

use std::sync::atomic::{AtomicU64, Ordering};

use generic_server::metrics::{Collect, family, sample};

/// The counters.
#[derive(Debug, Default)]
pub struct TokenMetrics {
    /// Tokens without audiences, which are those of secrets.
    pub(super) legacy: AtomicU64,
    /// Tokens that are used past the time that was asked for.
    pub(super) stale: AtomicU64,
    /// Tokens that hold longer than was asked for, and are used within it.
    pub(super) valid: AtomicU64,
    /// Tokens of secrets that somebody made.
    pub(super) manual: AtomicU64,
    /// Tokens of secrets that were made with their service account.
    pub(super) generated: AtomicU64,
    /// Tokens of secrets that are marked invalid.
    pub(super) invalid: AtomicU64,
}

impl TokenMetrics {
    /// Counts one.
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for TokenMetrics {
    fn collect(&self, out: &mut String) {
        for (name, help, counter) in [
            (
                "serviceaccount_legacy_tokens_total",
                "Cumulative legacy service account tokens used",
                &self.legacy,
            ),
            (
                "serviceaccount_stale_tokens_total",
                "Cumulative stale projected service account tokens used",
                &self.stale,
            ),
            (
                "serviceaccount_valid_tokens_total",
                "Cumulative valid projected service account tokens used",
                &self.valid,
            ),
            (
                "serviceaccount_legacy_manual_token_uses_total",
                "Cumulative manually created legacy tokens used",
                &self.manual,
            ),
            (
                "serviceaccount_legacy_auto_token_uses_total",
                "Cumulative auto-generated legacy tokens used",
                &self.generated,
            ),
            (
                "serviceaccount_invalid_legacy_auto_token_uses_total",
                "Cumulative invalid auto-generated legacy tokens used",
                &self.invalid,
            ),
        ] {
            family(out, name, "counter", help);
            sample(out, name, &[], counter.load(Ordering::Relaxed));
        }
    }
}
