//! An HTTPS server on this machine that answers as its maker wants: the base of issuers, webhooks and extension servers.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use generic_server::pki::Authority;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The other name in the certificate: a service's.
const SERVICE: &str = "webhook.default.svc";

/// A server on a free port, with a certificate for `localhost` and for the service `webhook` in `default`, of an authority of its own. It ends when it
/// is dropped.
#[derive(Debug)]
pub struct HttpsServer {
    port: u16,
    ca: String,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpsServer {
    /// Starts one. `answer` gives the future that answers a request, given the server's URL without a path.
    pub async fn start<A, F>(answer: impl FnOnce(&str) -> A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let authority = Authority::generate("test").expect("an authority");
        let issued = authority
            .server("localhost", &["localhost".to_string(), SERVICE.to_string()])
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
        let port = listener.local_addr().expect("an address").port();
        let answer = answer(&url(port));
        let connections: Arc<AtomicUsize> = Arc::default();
        let count = connections.clone();
        let task = tokio::spawn(async move {
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                serving.spawn(serve(stream, acceptor.clone(), count.clone(), answer.clone()));
            }
        });
        HttpsServer {
            port,
            ca: authority.certificate,
            connections,
            task,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The certificate of its authority, PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// How many connections were opened.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn url(port: u16) -> String {
    format!("https://localhost:{port}")
}

async fn serve<A, F>(stream: TcpStream, acceptor: TlsAcceptor, connections: Arc<AtomicUsize>, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    connections.fetch_add(1, Ordering::Relaxed);
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // A client that goes away is no failure of a test.
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// An answer of JSON.
pub fn json_answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .expect("a response")
}
