//! `/metrics/slis`: the outcomes of health checks, as clients have asked for them. Mirrors `component-base/metrics/prometheus/slis`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderValue, header};
use parking_lot::Mutex;

use super::Health;
use crate::endpoint::Endpoint;
use crate::metrics::{Metrics, family, process_start, sample};
use crate::request::{Authorized, Request, Response, full};

/// The outcomes of one check in one document.
#[derive(Debug, Default)]
struct Outcomes {
    is_passed: bool,
    passed: u64,
    failed: u64,
}

/// By the name of the check and that of the document: as many as there are checks.
#[derive(Debug, Default)]
pub(super) struct Slis(Mutex<BTreeMap<(String, &'static str), Outcomes>>);

impl Slis {
    pub(super) fn observe(&self, check: &str, document: &'static str, is_passed: bool) {
        let mut all = self.0.lock();
        let outcomes = all.entry((check.to_owned(), document)).or_default();
        outcomes.is_passed = is_passed;
        match is_passed {
            true => outcomes.passed += 1,
            false => outcomes.failed += 1,
        }
    }

    fn render(&self, started: SystemTime) -> String {
        let all = self.0.lock();
        let mut out = String::new();
        let name = "kubernetes_healthcheck";
        let help = "This metric records the result of a single healthcheck.";
        family(&mut out, name, "gauge", help);
        for ((check, document), outcomes) in all.iter() {
            let labels = [("name", &**check), ("type", *document)];
            sample(&mut out, name, &labels, u8::from(outcomes.is_passed));
        }
        let name = "kubernetes_healthchecks_total";
        let help = "This metric records the results of all healthcheck.";
        family(&mut out, name, "counter", help);
        for ((check, document), outcomes) in all.iter() {
            for (status, count) in [("error", outcomes.failed), ("success", outcomes.passed)] {
                let labels = [("name", &**check), ("status", status), ("type", *document)];
                if count > 0 {
                    sample(&mut out, name, &labels, count);
                }
            }
        }
        process_start(&mut out, started);
        out
    }
}

/// Serves them.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) health: Arc<Health>,
    pub(super) metrics: Arc<Metrics>,
}

#[async_trait::async_trait]
impl Endpoint for Document {
    async fn serve(&self, _authorized: &Authorized, _request: Request) -> Response {
        let document = self.health.slis.render(self.health.started);
        let mut response = Response::new(full(self.metrics.present(&document)));
        let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
