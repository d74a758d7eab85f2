//! `/debug/status`: what no other path says about this server. Figures and dates, no secrets; for users who may get the path.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use generic_server::ApiError;
use generic_server::endpoint::Endpoint;
use generic_server::lifecycle::Lifecycle;
use generic_server::pki;
use generic_server::request::{Authorized, Request, Response, full};
use generic_server::respond;
use http::{HeaderValue, Method, header};
use serde_json::{Value, json};
use storage::Store;
use tokio::io::AsyncReadExt as _;

/// How long an engine may take for its figures before the document says that it does not answer.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(2);
/// The bytes of a certificate file that are looked at; its first certificate counts.
const CERTIFICATE_BYTES: u64 = 64 * 1024;

/// Where a certificate is.
#[derive(Debug, Clone)]
pub(crate) enum CertificateSource {
    /// In a file, which may be replaced while the server runs.
    File(PathBuf),
    /// In memory: PEM.
    Pem(String),
}

/// The endpoint.
#[derive(Debug)]
pub(crate) struct Status {
    engines: Vec<Arc<dyn Store>>,
    lifecycle: Lifecycle,
    certificates: Vec<(&'static str, CertificateSource)>,
    started: SystemTime,
    ready: OnceLock<SystemTime>,
}

impl Status {
    pub(crate) fn new(
        engines: Vec<Arc<dyn Store>>,
        lifecycle: Lifecycle,
        certificates: Vec<(&'static str, CertificateSource)>,
    ) -> Arc<Self> {
        Arc::new(Status {
            engines,
            lifecycle,
            certificates,
            started: SystemTime::now(),
            ready: OnceLock::new(),
        })
    }

    /// Records when the server is ready.
    pub(crate) async fn note_readiness(self: Arc<Self>) {
        self.lifecycle.ready().await;
        let _ = self.ready.set(SystemTime::now());
    }

    async fn document(&self) -> Value {
        let mut stores = Vec::with_capacity(self.engines.len());
        for engine in &self.engines {
            stores.push(store(engine.as_ref()).await);
        }
        let mut certificates = Vec::with_capacity(self.certificates.len());
        for (purpose, source) in &self.certificates {
            certificates.push(certificate(purpose, source).await);
        }
        json!({
            "startedAt": seconds(self.started),
            "readySince": self.ready.get().copied().map(seconds),
            "stopping": self.lifecycle.is_stop_requested(),
            "requestsRunning": self.lifecycle.running(),
            "stores": stores,
            "certificates": certificates,
        })
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

async fn store(engine: &dyn Store) -> Value {
    match tokio::time::timeout(ENGINE_TIMEOUT, engine.status()).await {
        Ok(Ok(status)) => json!({
            "engine": status.engine,
            "revision": status.revision.0,
            "oldestRevision": status.oldest.0,
            "sizeBytes": status.size_bytes,
            "keys": status.keys,
        }),
        // Addresses and paths are for the log.
        Ok(Err(error)) => {
            tracing::warn!(%error, "the figures of a store cannot be read");
            json!({"error": "the store cannot be read: the log says why"})
        }
        Err(_) => json!({"error": "the store does not answer"}),
    }
}

async fn certificate(purpose: &str, source: &CertificateSource) -> Value {
    let valid = match source {
        CertificateSource::Pem(pem) => pki::validity(pem),
        CertificateSource::File(file) => match beginning(file).await {
            Ok(pem) => pki::validity(&pem),
            Err(_) => None,
        },
    };
    match valid {
        Some((from, to)) => json!({"purpose": purpose, "notBefore": from, "notAfter": to}),
        None => json!({"purpose": purpose, "error": "the certificate cannot be read"}),
    }
}

async fn beginning(file: &PathBuf) -> std::io::Result<String> {
    let mut text = String::new();
    let opened = tokio::fs::File::open(file).await?;
    opened.take(CERTIFICATE_BYTES).read_to_string(&mut text).await?;
    Ok(text)
}

#[async_trait::async_trait]
impl Endpoint for Status {
    async fn serve(&self, _authorized: &Authorized, request: Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::error(&ApiError::method_not_allowed());
        }
        let mut response = Response::new(full(self.document().await.to_string()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        response
    }
}
