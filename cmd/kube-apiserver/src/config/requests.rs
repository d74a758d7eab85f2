//! Options about how requests are served and how serving ends.

use std::time::Duration;

use generic_server::filters::cors::Cors;
use http::HeaderValue;

use super::Findings;

/// The largest share of requests that end a connection. Upstream's figure.
const MOST_GOAWAYS: f64 = 0.02;

/// How requests are served and how serving ends.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) max_inflight: usize,
    pub(crate) max_mutating_inflight: usize,
    /// Priority and fairness, which divides the sum of the two.
    pub(crate) fairness: bool,
    pub(crate) timeout: Duration,
    pub(crate) min_timeout: Duration,
    pub(crate) shutdown_delay: Duration,
    pub(crate) shutdown_watches: Duration,
    pub(crate) shutdown_send_retry_after: bool,
    pub(crate) goaway_chance: f64,
    pub(crate) hsts: Option<HeaderValue>,
    pub(crate) cors: Cors,
}

/// The options that they are made of.
pub(super) struct RequestFlags {
    pub(super) max_inflight: usize,
    pub(super) max_mutating_inflight: usize,
    pub(super) fairness: bool,
    pub(super) timeout: Duration,
    pub(super) min_timeout_seconds: u64,
    pub(super) shutdown_delay: Duration,
    pub(super) shutdown_watches: Duration,
    pub(super) shutdown_send_retry_after: bool,
    pub(super) goaway_chance: f64,
    pub(super) hsts_directives: Vec<String>,
    pub(super) cors_allowed_origins: Vec<String>,
}

impl RequestFlags {
    pub(super) fn read(self, found: &mut Findings) -> Requests {
        let requests = Requests {
            max_inflight: self.max_inflight,
            max_mutating_inflight: self.max_mutating_inflight,
            fairness: self.fairness,
            timeout: self.timeout,
            min_timeout: Duration::from_secs(self.min_timeout_seconds),
            shutdown_delay: self.shutdown_delay,
            shutdown_watches: self.shutdown_watches,
            shutdown_send_retry_after: self.shutdown_send_retry_after,
            goaway_chance: self.goaway_chance,
            hsts: hsts(found, &self.hsts_directives),
            cors: cors(found, &self.cors_allowed_origins),
        };
        requests.check(found);
        requests
    }
}

impl Requests {
    fn check(&self, found: &mut Findings) {
        if self.timeout.is_zero() {
            found.fault("--request-timeout must be more than zero");
        }
        if self.fairness && self.max_inflight == 0 && self.max_mutating_inflight == 0 {
            found.fault("invalid configuration: MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up to something positive");
        }
        if !(0.0..=MOST_GOAWAYS).contains(&self.goaway_chance) {
            found.fault("--goaway-chance can not be less than 0 or greater than 0.02");
        }
    }
}

/// The value of `Strict-Transport-Security`, of the form that RFC 6797 has.
fn hsts(found: &mut Findings, directives: &[String]) -> Option<HeaderValue> {
    for directive in directives {
        if directive.trim().is_empty() {
            found.fault("empty value in strict-transport-security-directives");
            return None;
        }
        let seconds = directive
            .strip_prefix("max-age=")
            .filter(|value| !value.contains('='));
        if seconds.is_none() && !["includeSubDomains", "preload"].contains(&directive.as_str()) {
            found.fault("--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information");
            return None;
        }
    }
    if directives.is_empty() {
        return None;
    }
    let value = HeaderValue::try_from(directives.join("; "));
    found.take(value.map(Some).map_err(|_| {
        "--strict-transport-security-directives: a directive has characters that no header may have"
            .to_string()
    }))
}

fn cors(found: &mut Findings, origins: &[String]) -> Cors {
    Cors::new(origins).unwrap_or_else(|faults| {
        for fault in faults {
            found.fault(fault);
        }
        Cors::default()
    })
}
