//! The metrics of impersonation, under upstream's names (`apiserver_impersonation_*`).

use std::time::Duration;

use super::MODES;
use crate::metrics::{Collect, Histograms};

/// Upstream's buckets: powers of two from a millisecond on.
const BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];
const DECISIONS: [&str; 2] = ["allowed", "denied"];

/// How often users act as others, and what the checks of it take.
#[derive(Debug)]
pub(super) struct ImpersonationMetrics {
    attempts: Histograms<2>,
    checks: Histograms<2>,
}

impl Default for ImpersonationMetrics {
    fn default() -> Self {
        let labels = ["decision", "mode"];
        // A refusal is that of all modes.
        let modes = || MODES.iter().map(|mode| mode.label());
        let attempts = modes().map(|mode| ["allowed", mode]).chain([["denied", ""]]);
        let checks = modes().flat_map(|mode| DECISIONS.map(|decision| [decision, mode]));
        ImpersonationMetrics {
            attempts: Histograms::new(
                "apiserver_impersonation_attempts_duration_seconds",
                "How long attempts to impersonate took, by the mode that allowed them.",
                labels,
                BUCKETS,
                attempts,
            ),
            checks: Histograms::new(
                "apiserver_impersonation_authorization_attempts_duration_seconds",
                "How long the authorization checks of impersonation took, by mode.",
                labels,
                BUCKETS,
                checks,
            ),
        }
    }
}

impl ImpersonationMetrics {
    /// Counts an attempt: allowed by a mode, or denied.
    pub(super) fn attempted(&self, mode: Option<&'static str>, took: Duration) {
        let values = match mode {
            Some(mode) => ["allowed", mode],
            None => ["denied", ""],
        };
        self.attempts.observe(values, took);
    }

    /// Counts a question to the authorizer.
    pub(super) fn checked(&self, mode: &'static str, allowed: bool, took: Duration) {
        let decision = DECISIONS[usize::from(!allowed)];
        self.checks.observe([decision, mode], took);
    }
}

impl Collect for ImpersonationMetrics {
    fn collect(&self, out: &mut String) {
        self.attempts.write_counts(
            out,
            "apiserver_impersonation_attempts_total",
            "Attempts to impersonate, by the mode that allowed them.",
        );
        self.attempts.write(out);
        self.checks.write_counts(
            out,
            "apiserver_impersonation_authorization_attempts_total",
            "Authorization checks of impersonation, by mode.",
        );
        self.checks.write(out);
    }
}
