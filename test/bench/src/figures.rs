//! Shared parts of the phases: the media type of requests, and how figures are printed.

use std::time::Duration;

use serde_json::{Value, json};

/// The media type of bodies.
pub(crate) const JSON: &str = "application/json";

/// To three digits.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// `p50`, `p99` and `max` in milliseconds.
pub(crate) fn percentiles(mut times: Vec<Duration>) -> Value {
    times.sort();
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index below the length"
        )]
        let index = ((times.len() as f64 - 1.0) * share).max(0.0) as usize;
        times.get(index).map_or(0.0, |t| round(t.as_secs_f64() * 1000.0))
    };
    json!({"p50": at(0.5), "p99": at(0.99), "max": at(1.0)})
}
