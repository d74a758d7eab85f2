//! Counts of connections through proxies, under upstream's names.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::metrics::{Collect, Histogram, family, sample};

/// What is spoken with a proxy, and how it is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ConnectTcp,
    ConnectUds,
    GrpcUds,
}

/// Where a dial failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The proxy was not reached.
    Connect,
    /// The proxy did not reach the server, or did not say so.
    Proxy,
}

const WAYS: [Way; 3] = [Way::ConnectTcp, Way::ConnectUds, Way::GrpcUds];
const STAGES: [(Stage, &str); 2] = [(Stage::Connect, "connect"), (Stage::Proxy, "proxy")];
/// Upstream's buckets, in seconds.
const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 2.5, 12.5];

impl Way {
    fn labels(self) -> [(&'static str, &'static str); 2] {
        let (protocol, transport) = match self {
            Way::ConnectTcp => ("http_connect", "tcp"),
            Way::ConnectUds => ("http_connect", "uds"),
            Way::GrpcUds => ("grpc", "uds"),
        };
        [("protocol", protocol), ("transport", transport)]
    }
}

/// Counts of connections through all proxies of a server.
#[derive(Debug)]
pub struct EgressMetrics {
    ways: [Dials; WAYS.len()],
}

#[derive(Debug)]
struct Dials {
    started: AtomicU64,
    failed: [AtomicU64; STAGES.len()],
    took: Histogram,
}

impl Default for EgressMetrics {
    fn default() -> Self {
        EgressMetrics {
            ways: array::from_fn(|_| Dials {
                started: AtomicU64::new(0),
                failed: array::from_fn(|_| AtomicU64::new(0)),
                took: Histogram::new(BUCKETS),
            }),
        }
    }
}

/// A dial that is counted as begun.
#[derive(Debug)]
pub(super) struct Dial<'a> {
    dials: &'a Dials,
    began: Instant,
}

impl EgressMetrics {
    pub(super) fn begin(&self, way: Way) -> Dial<'_> {
        let dials = &self.ways[way as usize];
        dials.started.fetch_add(1, Ordering::Relaxed);
        Dial {
            dials,
            began: Instant::now(),
        }
    }
}

impl Dial<'_> {
    pub(super) fn succeeded(self) {
        self.dials.took.observe(self.began.elapsed());
    }

    pub(super) fn failed(self, stage: Stage) {
        self.dials.failed[stage as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for EgressMetrics {
    fn collect(&self, out: &mut String) {
        let used = || {
            let ways = WAYS.iter().zip(&self.ways);
            ways.filter(|(_, dials)| dials.started.load(Ordering::Relaxed) > 0)
        };
        let name = "apiserver_egress_dialer_dial_start_total";
        let help = "Dial starts, labeled by the protocol (http-connect or grpc) and transport (tcp or uds).";
        family(out, name, "counter", help);
        for (way, dials) in used() {
            sample(out, name, &way.labels(), dials.started.load(Ordering::Relaxed));
        }
        let name = "apiserver_egress_dialer_dial_failure_count";
        let help = "Dial failure count, labeled by the protocol (http-connect or grpc), transport (tcp or uds), and stage (connect or proxy).";
        family(out, name, "counter", help);
        for (way, dials) in used() {
            for ((_, stage), failed) in STAGES.iter().zip(&dials.failed) {
                let failed = failed.load(Ordering::Relaxed);
                if failed > 0 {
                    let [protocol, transport] = way.labels();
                    sample(out, name, &[protocol, ("stage", stage), transport], failed);
                }
            }
        }
        let name = "apiserver_egress_dialer_dial_duration_seconds";
        let help = "Dial latency histogram in seconds, labeled by the protocol (http-connect or grpc) and transport (tcp or uds).";
        family(out, name, "histogram", help);
        for (way, dials) in used().filter(|(_, dials)| dials.took.count() > 0) {
            dials.took.write(out, name, &way.labels());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dials_are_counted_by_their_outcome() {
        let metrics = EgressMetrics::default();
        metrics.begin(Way::GrpcUds).succeeded();
        metrics.begin(Way::GrpcUds).failed(Stage::Proxy);
        metrics.begin(Way::ConnectTcp).failed(Stage::Connect);
        let mut out = String::new();
        metrics.collect(&mut out);
        for line in [
            "apiserver_egress_dialer_dial_start_total{protocol=\"grpc\",transport=\"uds\"} 2",
            "apiserver_egress_dialer_dial_start_total{protocol=\"http_connect\",transport=\"tcp\"} 1",
            "apiserver_egress_dialer_dial_failure_count{protocol=\"grpc\",stage=\"proxy\",transport=\"uds\"} 1",
            "apiserver_egress_dialer_dial_failure_count{protocol=\"http_connect\",stage=\"connect\",transport=\"tcp\"} 1",
            "apiserver_egress_dialer_dial_duration_seconds_count{protocol=\"grpc\",transport=\"uds\"} 1",
        ] {
            assert!(out.lines().any(|found| found == line), "{line}\n{out}");
        }
    }
}
