//! A client of the main API server: JSON over pooled connections, verified against the kubeconfig's authorities.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::kubeconfig::Kubeconfig;
use crate::client::TlsIo;
use crate::request::BoxError;

const PATIENCE: Duration = Duration::from_secs(10);
const MOST: usize = 8 << 20;

/// The main server could not be asked, or said no.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig's certificates cannot be used.
    #[error("unusable credentials: {0}")]
    Credentials(String),
    /// No answer.
    #[error("cannot reach the API server")]
    Unreachable(#[source] BoxError),
    /// An answer that is no success.
    #[error("the API server answered {0}: {1}")]
    Status(StatusCode, String),
}

/// Asks the main server. Clones share connections.
#[derive(Debug, Clone)]
pub struct KubeClient {
    pool: Client<Connector, Full<Bytes>>,
    server: String,
    token: Option<HeaderValue>,
}

impl KubeClient {
    /// A client as a kubeconfig says.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub fn new(config: &Kubeconfig) -> Result<Self, ClientError> {
        let bad = |error: &dyn std::fmt::Display| ClientError::Credentials(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in crate::pki::certificates(&config.ca).map_err(|e| bad(&e))? {
            roots.add(certificate).map_err(|e| bad(&e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_root_certificates(roots);
        let mut tls = match &config.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = crate::pki::certificates(certificate).map_err(|e| bad(&e))?;
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| bad(&e))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| bad(&e))?
            }
        };
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let token = match &config.token {
            Some(token) => Some(HeaderValue::from_str(&format!("Bearer {token}")).map_err(|e| bad(&e))?),
            None => None,
        };
        let pool = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(Duration::from_secs(10))
            .http2_keep_alive_timeout(Duration::from_secs(5))
            .build(Connector(TlsConnector::from(Arc::new(tls))));
        Ok(KubeClient {
            pool,
            server: config.server.trim_end_matches('/').to_string(),
            token,
        })
    }

    /// Reads an object.
    ///
    /// # Errors
    /// When the server cannot be asked or does not give it.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.ask(Method::GET, path, None).await
    }

    /// Creates an object (a review), and gives the answer.
    ///
    /// # Errors
    /// When the server cannot be asked or does not take it.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ClientError> {
        self.ask(Method::POST, path, Some(object)).await
    }

    /// Waits until a watch says something, or ends.
    ///
    /// # Errors
    /// When the server cannot be asked or does not let this server watch.
    pub async fn wait_for_change(&self, path: &str) -> Result<(), ClientError> {
        let unreachable = |error: BoxError| ClientError::Unreachable(error);
        let request = self
            .request(Method::GET, path, Bytes::new())
            .map_err(unreachable)?;
        let head = tokio::time::timeout(PATIENCE, self.pool.request(request));
        let mut response = head
            .await
            .map_err(|late| unreachable(late.into()))?
            .map_err(|error| unreachable(error.into()))?;
        if !response.status().is_success() {
            return Err(ClientError::Status(response.status(), String::new()));
        }
        // The first event is enough: whoever waits reads the object anew. A dead connection is found by its pings.
        while let Some(frame) = response.body_mut().frame().await {
            let frame = frame.map_err(|error| unreachable(error.into()))?;
            if frame.data_ref().is_some_and(|data| !data.is_empty()) {
                break;
            }
        }
        Ok(())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<http::Request<Full<Bytes>>, BoxError> {
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.server).parse()?;
        let headers = request.headers_mut();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::ACCEPT, json.clone());
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static("extension-apiserver"),
        );
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        Ok(request)
    }

    async fn ask(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Value, ClientError> {
        let unreachable = |error: BoxError| ClientError::Unreachable(error);
        let body = object
            .map(|object| Bytes::from(object.to_string()))
            .unwrap_or_default();
        let request = self.request(method, path, body).map_err(unreachable)?;
        let answer = async {
            let response = self.pool.request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MOST)
                .collect()
                .await?
                .to_bytes();
            Ok::<_, BoxError>((status, body))
        };
        let (status, body) = tokio::time::timeout(PATIENCE, answer)
            .await
            .map_err(|late| unreachable(late.into()))?
            .map_err(unreachable)?;
        let object: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(object);
        }
        let message = object.get("message").and_then(Value::as_str).unwrap_or_default();
        Err(ClientError::Status(status, message.to_string()))
    }
}

#[derive(Clone)]
struct Connector(TlsConnector);

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connector")
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TlsIo;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TlsIo, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.0.clone();
        Box::pin(async move {
            let host = uri
                .host()
                .unwrap_or_default()
                .trim_matches(['[', ']'])
                .to_string();
            let stream = TcpStream::connect((host.as_str(), uri.port_u16().unwrap_or(443))).await?;
            stream.set_nodelay(true)?;
            Ok(TlsIo::new(
                tls.connect(ServerName::try_from(host)?, stream).await?,
            ))
        })
    }
}
