//! An extension API server that the adversary runs itself: it answers every request and keeps what it was sent.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::json;
use test_support::{HttpsServer, json_answer};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
}

/// The running backend; it ends with the value.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) port: u16,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    _server: HttpsServer,
}

/// Requests that are kept.
const KEPT: usize = 1_000;

impl Backend {
    /// Starts one on a free port, with a certificate that need not be trusted.
    pub(crate) async fn start() -> Self {
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let seen = arrived.clone();
        let server = HttpsServer::start(|_| {
            move |request| {
                let answered = answer(&seen, &request);
                async move { answered }
            }
        });
        let server = server.await;
        Backend {
            port: server.port(),
            arrived,
            _server: server,
        }
    }

    /// Takes what arrived since the last time for this resource.
    pub(crate) fn take(&self, resource: &str) -> Vec<Arrived> {
        let (of_it, others) = std::mem::take(&mut *self.arrived.lock())
            .into_iter()
            .partition(|arrived| arrived.target.contains(resource));
        *self.arrived.lock() = others;
        of_it
    }
}

fn answer(seen: &Mutex<Vec<Arrived>>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut seen = seen.lock();
    if seen.len() < KEPT {
        seen.push(Arrived {
            target: request
                .uri()
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            headers: request.headers().clone(),
        });
    }
    let path = request.uri().path();
    let body = match path
        .strip_prefix("/apis/")
        .and_then(|rest| rest.strip_suffix("/v1"))
    {
        Some(group) => {
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/v1"), "resources": []})
        }
        None => {
            json!({"kind": "ThingList", "apiVersion": "adversary.example.com/v1", "metadata": {}, "items": []})
        }
    };
    json_answer(200, body.to_string())
}
