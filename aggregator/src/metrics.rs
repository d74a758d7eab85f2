//! Metrics of remote servers. The first family is upstream's; the others are this server's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use generic_server::metrics::{Collect, family, sample};

use crate::backend::BUCKETS;
use crate::published::Published;

/// Reports the state of the backends.
#[derive(Debug)]
pub(crate) struct BackendMetrics(pub(crate) Arc<Published>);

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Collect for BackendMetrics {
    fn collect(&self, out: &mut String) {
        let backends = self.0.backends();
        family(
            out,
            "aggregator_unavailable_apiservice",
            "gauge",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
        );
        for (backend, available) in &backends {
            let labels = [("name", backend.spec.name.as_str())];
            sample(
                out,
                "aggregator_unavailable_apiservice",
                &labels,
                u8::from(!available),
            );
        }
        family(
            out,
            "aggregator_proxy_requests_in_flight",
            "gauge",
            "Requests that wait for the first byte of a backend's answer.",
        );
        for (backend, _) in &backends {
            let labels = [("name", backend.spec.name.as_str())];
            let count = backend.stats.in_flight.load(Ordering::Relaxed);
            sample(out, "aggregator_proxy_requests_in_flight", &labels, count);
        }
        family(
            out,
            "aggregator_proxy_requests_total",
            "counter",
            "Requests that a backend answered, by class of the status code.",
        );
        for (backend, _) in &backends {
            for (class, count) in CLASSES.iter().zip(&backend.stats.codes) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = [("name", backend.spec.name.as_str()), ("code", *class)];
                    sample(out, "aggregator_proxy_requests_total", &labels, count);
                }
            }
        }
        for (name, help, refused) in [
            (
                "aggregator_proxy_failures_total",
                "Requests that a backend did not answer.",
                false,
            ),
            (
                "aggregator_proxy_refused_total",
                "Requests refused because a backend has too many or keeps failing.",
                true,
            ),
        ] {
            family(out, name, "counter", help);
            for (backend, _) in &backends {
                let stats = &backend.stats;
                let count = if refused { &stats.refused } else { &stats.failures };
                let labels = [("name", backend.spec.name.as_str())];
                sample(out, name, &labels, count.load(Ordering::Relaxed));
            }
        }
        let name = "aggregator_proxy_request_duration_seconds";
        family(
            out,
            name,
            "histogram",
            "Time until the first byte of a backend's answer.",
        );
        for (backend, _) in &backends {
            let stats = &backend.stats;
            let own = backend.spec.name.as_str();
            let mut total = 0;
            for (bound, count) in BUCKETS.iter().zip(&stats.buckets) {
                total += count.load(Ordering::Relaxed);
                let bound = std::time::Duration::from_millis(*bound).as_secs_f64().to_string();
                sample(
                    out,
                    &format!("{name}_bucket"),
                    &[("name", own), ("le", &bound)],
                    total,
                );
            }
            total += stats
                .buckets
                .last()
                .map_or(0, |count| count.load(Ordering::Relaxed));
            sample(
                out,
                &format!("{name}_bucket"),
                &[("name", own), ("le", "+Inf")],
                total,
            );
            let sum = std::time::Duration::from_micros(stats.sum_micros.load(Ordering::Relaxed));
            sample(out, &format!("{name}_sum"), &[("name", own)], sum.as_secs_f64());
            sample(out, &format!("{name}_count"), &[("name", own)], total);
        }
    }
}
