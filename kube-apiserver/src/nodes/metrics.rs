//! What is counted of streams to nodes, under upstream's names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use generic_server::metrics::{Collect, family, sample};
use parking_lot::Mutex;

/// How many requests ended with which status code.
type Codes = Mutex<BTreeMap<u16, u64>>;

/// Counts of streams.
#[derive(Debug, Default)]
pub(crate) struct StreamMetrics {
    translated: Codes,
    tunnelled: Codes,
    /// By subresource, and whether the kubelet was left to it.
    websockets: Mutex<BTreeMap<(&'static str, bool), u64>>,
    logs_enforced: AtomicU64,
    logs_skipped: AtomicU64,
    logs_failed: AtomicU64,
}

impl StreamMetrics {
    /// A command over WebSocket ended.
    pub(crate) fn translated(&self, code: u16) {
        *self.translated.lock().entry(code).or_default() += 1;
    }

    /// A tunnel was opened or refused.
    pub(crate) fn tunnelled(&self, code: u16) {
        *self.tunnelled.lock().entry(code).or_default() += 1;
    }

    /// A request for a stream came, and is left to the kubelet or not.
    pub(crate) fn came(&self, subresource: &'static str, to_kubelet: bool) {
        *self
            .websockets
            .lock()
            .entry((subresource, to_kubelet))
            .or_default() += 1;
    }

    /// A log was asked for, from a kubelet that has to be verified or not.
    pub(crate) fn log(&self, verified: bool) {
        let count = if verified {
            &self.logs_enforced
        } else {
            &self.logs_skipped
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A kubelet's certificate was not good.
    pub(crate) fn log_failed(&self) {
        self.logs_failed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Collect for StreamMetrics {
    fn collect(&self, out: &mut String) {
        let by_code = [
            (
                "apiserver_stream_translator_requests_total",
                "Total number of requests that were handled by the StreamTranslatorProxy, which processes streaming RemoteCommand/V5",
                &self.translated,
            ),
            (
                "apiserver_stream_tunnel_requests_total",
                "Total number of requests that were handled by the StreamTunnelProxy, which processes streaming PortForward/V2",
                &self.tunnelled,
            ),
        ];
        for (name, help, codes) in by_code {
            family(out, name, "counter", help);
            for (code, count) in &*codes.lock() {
                sample(out, name, &[("code", &code.to_string())], *count);
            }
        }
        let name = "apiserver_websocket_streaming_requests_total";
        family(
            out,
            name,
            "counter",
            "Total number of WebSocket streaming requests (exec/attach/portforward) routed by the API server, labeled by subresource and proxy_type. proxy_type is proxied_to_kubelet when the kubelet handles the request directly; otherwise translated_at_apiserver.",
        );
        for ((subresource, to_kubelet), count) in &*self.websockets.lock() {
            let kind = if *to_kubelet {
                "proxied_to_kubelet"
            } else {
                "translated_at_apiserver"
            };
            sample(
                out,
                name,
                &[("proxy_type", kind), ("subresource", subresource)],
                *count,
            );
        }
        let name = "kube_apiserver_pod_logs_insecure_backend_total";
        family(
            out,
            name,
            "counter",
            "Total number of requests for pods/logs sliced by usage type: enforce_tls, skip_tls_allowed, skip_tls_denied",
        );
        for (usage, count) in [
            ("enforce_tls", &self.logs_enforced),
            ("skip_tls_allowed", &self.logs_skipped),
        ] {
            sample(out, name, &[("usage", usage)], count.load(Ordering::Relaxed));
        }
        let name = "kube_apiserver_pod_logs_backend_tls_failure_total";
        family(
            out,
            name,
            "counter",
            "Total number of requests for pods/logs that failed due to kubelet server TLS verification",
        );
        sample(out, name, &[], self.logs_failed.load(Ordering::Relaxed));
    }
}
