//! An extension API server that the adversary runs itself: it answers every request and keeps what it was sent.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use generic_server::pki::Authority;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::Error;

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
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Requests that are kept.
const KEPT: usize = 1_000;

impl Backend {
    /// Starts one on a free port, with a certificate that need not be trusted.
    pub(crate) async fn start() -> Result<Self, Error> {
        let issued = Authority::generate("adversary")?.server("localhost", &["localhost".to_string()])?;
        let chain =
            CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let arrived: Arc<Mutex<Vec<Arrived>>> = Arc::default();
        let seen = arrived.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, acceptor.clone(), seen.clone()));
            }
        });
        Ok(Backend { port, arrived, task })
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

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: Arc<Mutex<Vec<Arrived>>>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move { Ok::<_, Infallible>(answer(&seen, &request)) }
    });
    // A proxy that goes away is no failure.
    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
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
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
