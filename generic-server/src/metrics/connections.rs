//! Metrics of connections.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{family, sample};

/// Counters of a server's connections.
#[derive(Debug, Default)]
pub struct ConnectionMetrics {
    /// Connections now.
    pub(crate) open: AtomicI64,
    /// Connections that were accepted and kept.
    pub(crate) accepted: AtomicU64,
    /// Connections closed at once, because there were too many and none was idle.
    pub(crate) refused: AtomicU64,
    /// Failures of the operating system to accept, such as for want of descriptors.
    pub(crate) accept_errors: AtomicU64,
    /// TLS handshakes that failed or took too long.
    pub(crate) handshake_errors: AtomicU64,
    closed: [AtomicU64; 4],
}

/// Why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The head of a request did not come in time.
    Head,
    /// There was no request for too long.
    Idle,
    /// It was idle longest when there were too many connections.
    Evicted,
    /// It had waited longest for its first request when too many did.
    HandshakeEvicted,
}

const REASONS: [(Closed, &str); 4] = [
    (Closed::Head, "header_timeout"),
    (Closed::Idle, "idle_timeout"),
    (Closed::Evicted, "too_many_connections"),
    (Closed::HandshakeEvicted, "too_many_handshakes"),
];

impl ConnectionMetrics {
    pub(crate) fn closed(&self, why: Closed) {
        self.closed[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Writes them in the Prometheus text format.
    pub(crate) fn render(&self, out: &mut String) {
        let counters = [
            (
                "apiserver_tls_handshake_errors_total",
                "TLS handshakes that failed or took too long.",
                &self.handshake_errors,
            ),
            (
                "apiserver_connections_accepted_total",
                "Connections that were accepted and kept.",
                &self.accepted,
            ),
            (
                "apiserver_connections_refused_total",
                "Connections closed at once because there were too many and none was idle.",
                &self.refused,
            ),
            (
                "apiserver_accept_errors_total",
                "Failures of the operating system to accept a connection.",
                &self.accept_errors,
            ),
        ];
        for (name, help, value) in counters {
            family(out, name, "counter", help);
            sample(out, name, &[], value.load(Ordering::Relaxed));
        }
        let name = "apiserver_connections_closed_total";
        family(
            out,
            name,
            "counter",
            "Connections that the server closed, by reason.",
        );
        for (why, reason) in REASONS {
            let count = self.closed[why as usize].load(Ordering::Relaxed);
            sample(out, name, &[("reason", reason)], count);
        }
        family(out, "apiserver_connections", "gauge", "Connections now.");
        sample(
            out,
            "apiserver_connections",
            &[],
            self.open.load(Ordering::Relaxed),
        );
    }
}
