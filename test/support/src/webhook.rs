//! An HTTPS server that answers as a test wants, for conversion webhooks and the like.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use bytes::Bytes;
use generic_server::pki::Authority;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

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
    connections: AtomicUsize,
}

/// A webhook on this machine; it ends when it is dropped.
pub struct Webhook {
    address: SocketAddr,
    ca: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// Starts one on a free port, with a certificate for `localhost` of an authority of its own.
    pub async fn start(answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::generate("webhook").expect("an authority");
        let issued = authority
            .server("localhost", &["localhost".to_string()])
            .expect("a certificate");
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("a chain");
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            questions: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, acceptor, shared.clone()));
        Webhook {
            address,
            ca: authority.certificate,
            shared,
            task,
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/", self.address.port())
    }

    /// Its authority as `caBundle` has it.
    pub fn ca_bundle(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.ca)
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
        self.shared.connections.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, acceptor.clone(), shared.clone()));
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    shared.connections.fetch_add(1, Ordering::Relaxed);
    let service = service_fn(|request: Request<Incoming>| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(answer(&shared, request).await) }
    });
    // A client that goes away is no failure of a test.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = request
        .into_body()
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let question: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = (shared.answer)(&question);
    shared.questions.lock().push(question);
    let (status, body) = match reply {
        Reply::Json(value) => (200, value.to_string().into()),
        Reply::Raw(status, body) => (status, body),
        Reply::Never => return std::future::pending().await,
    };
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(body))
        .expect("a response")
}
