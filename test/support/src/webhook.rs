//! An HTTPS server that answers as a test wants, for conversion webhooks and the like.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::https::{HttpsServer, json_answer};

/// A webhook's reply.
#[derive(Debug)]
pub enum Reply {
    /// 200 with JSON.
    Json(Value),
    /// Anything.
    Raw(u16, Bytes),
    /// Nothing, ever.
    Never,
}

type Answer = dyn Fn(&Value) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    questions: Mutex<Vec<Value>>,
}

/// A webhook on this machine; it ends when it is dropped.
pub struct Webhook {
    server: HttpsServer,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// Starts one on a free port, with a certificate for `localhost` and the service `webhook` in `default` of an authority of its own.
    pub async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            questions: Mutex::default(),
        });
        let asked = shared.clone();
        let server = HttpsServer::start(|_| move |request| reply(asked.clone(), request)).await;
        Webhook { server, shared }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("{}/", self.server.url())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Its authority as `caBundle` has it.
    pub fn ca_bundle(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.server.ca())
    }

    /// A kubeconfig that leads to it.
    pub fn kubeconfig(&self) -> String {
        let cluster = json!({"server": self.url(), "certificate-authority-data": self.ca_bundle()});
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "w", "user": "u"}}],
            "clusters": [{"name": "w", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
        });
        config.to_string()
    }

    /// The reviews that it has received, in order.
    pub fn questions(&self) -> Vec<Value> {
        self.shared.questions.lock().clone()
    }

    /// How many connections were opened.
    pub fn connections(&self) -> usize {
        self.server.connections()
    }
}

async fn reply(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request
        .into_body()
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = (shared.answer)(&question);
    shared.questions.lock().push(question);
    match reply {
        Reply::Json(value) => json_answer(200, value.to_string()),
        Reply::Raw(status, body) => json_answer(status, body),
        Reply::Never => std::future::pending().await,
    }
}
