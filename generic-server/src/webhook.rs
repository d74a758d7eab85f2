//! Asking a webhook: a pooled HTTPS client for one `clientConfig`, which trusts the configuration's CA bundle alone.
//!
//! A bundle that does not parse is an error of every call, never a reason to trust anybody. Failures are worded as Go's client
//! words them, because people search for those texts.

mod services;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use machinery::meta;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::TlsIo;
use crate::client::trust::Bundle;

pub use services::Services;

/// The most text of an answer that is repeated in an error.
const QUOTED: usize = 2048;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);

/// A webhook's endpoint.
pub struct WebhookClient {
    url: String,
    /// Or why there can be none.
    client: Result<Client<Connector, Full<Bytes>>, String>,
}

impl std::fmt::Debug for WebhookClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookClient")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl WebhookClient {
    /// From a `clientConfig`: a `url`, or a `service` with namespace, name, path and port; and a `caBundle`.
    pub fn new(config: &Value, services: Services) -> Self {
        let text = |path: &[&str]| meta::dig_str(config, path).to_string();
        let service = config.get("service").filter(|service| service.is_object());
        let url = match service {
            None => text(&["url"]),
            Some(service) => {
                let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
                let path = text(&["service", "path"]);
                format!(
                    "https://{}.{}.svc:{port}/{}",
                    text(&["service", "name"]),
                    text(&["service", "namespace"]),
                    path.trim_start_matches('/')
                )
            }
        };
        let service = service.map(|_| (text(&["service", "namespace"]), text(&["service", "name"])));
        let client = tls(&text(&["caBundle"])).map(|tls| {
            let connector = Connector(Arc::new(Way {
                tls: TlsConnector::from(tls),
                service,
                services,
            }));
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .build(connector)
        });
        WebhookClient { url, client }
    }

    /// Posts JSON and reads a JSON answer of at most `most` bytes, all within `patience`, which the endpoint is told of.
    ///
    /// # Errors
    /// Why there is no answer to go by, in the words of upstream's client.
    pub async fn post(&self, body: Bytes, patience: Duration, most: usize) -> Result<Value, String> {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}timeout={}s", self.url, patience.as_secs().max(1));
        let failed = |why: String| format!("Post \"{url}\": {why}");
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = client
                .request(request)
                .await
                .map_err(|error| failed(told(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), most).collect().await;
            let body = body
                .map_err(|error| match error.is::<LengthLimitError>() {
                    true => failed(format!("the answer is larger than {most} bytes")),
                    false => failed(error.to_string()),
                })?
                .to_bytes();
            if !status.is_success() {
                return Err(refusal(status.as_u16(), &body));
            }
            machinery::codec::json::value(&body)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))
        };
        tokio::time::timeout(patience, exchange)
            .await
            .map_err(|_| failed("context deadline exceeded".into()))?
    }
}

/// What upstream's client makes of an answer that is none.
fn refusal(code: u16, body: &[u8]) -> String {
    if let Ok(status) = serde_json::from_slice::<Value>(body)
        && status.get("kind").and_then(Value::as_str) == Some("Status")
    {
        return meta::dig_str(&status, &["message"]).to_string();
    }
    let text: String = String::from_utf8_lossy(body)
        .trim()
        .chars()
        .take(QUOTED)
        .collect();
    match code {
        401 => "the server has asked for the client to provide credentials".into(),
        403 => "the server does not allow access to the requested resource".into(),
        404 => "the server could not find the requested resource".into(),
        400..=499 => "the server rejected our request for an unknown reason".into(),
        _ => format!(
            "an error on the server ({}) has prevented the request from succeeding",
            machinery::field::go_quote(if text.is_empty() { "unknown" } else { &text })
        ),
    }
}

/// The innermost error that says something of its own; the connector's are worded like Go's.
fn told(error: &dyn std::error::Error) -> String {
    let mut last = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        if inner
            .downcast_ref::<hyper::Error>()
            .is_some_and(hyper::Error::is_incomplete_message)
        {
            return "EOF".into();
        }
        last = inner.to_string();
        source = inner.source();
    }
    last
}

/// TLS that trusts the bundle, or the system's authorities when there is none.
fn tls(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bundle = Some(bundle.trim()).filter(|bundle| !bundle.is_empty());
    let trusted = Bundle::new(bundle, &provider)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trusted))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

struct Way {
    tls: TlsConnector,
    /// Namespace and name, for services: where they are is asked for each connection.
    service: Option<(String, String)>,
    services: Services,
}

/// Opens connections: to the URL's host, or to where the service is at that moment.
#[derive(Clone)]
struct Connector(Arc<Way>);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl tower::Service<http::Uri> for Connector {
    type Response = TlsIo;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TlsIo, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let way = self.0.clone();
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(443);
            let name = uri
                .host()
                .unwrap_or_default()
                .trim_matches(['[', ']'])
                .to_string();
            let (host, port) = match &way.service {
                Some((namespace, service)) => way.services.resolve(namespace, service, port).await?,
                None => (name.clone(), port),
            };
            let stream = TcpStream::connect((host.as_str(), port))
                .await
                .map_err(|error| dial_fault(&host, port, &error))?;
            stream.set_nodelay(true)?;
            let server = ServerName::try_from(name.clone())?;
            let stream = way
                .tls
                .connect(server, stream)
                .await
                .map_err(|error| tls_fault(&error, &name))?;
            Ok(TlsIo::new(stream))
        })
    }
}

fn dial_fault(host: &str, port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {host}:{port}: connect: connection refused"),
        io::ErrorKind::TimedOut => format!("dial tcp {host}:{port}: connect: connection timed out"),
        io::ErrorKind::HostUnreachable => format!("dial tcp {host}:{port}: connect: no route to host"),
        _ if error.raw_os_error().is_none() => {
            format!("dial tcp: lookup {host}: no such host")
        }
        _ => format!("dial tcp {host}:{port}: {error}"),
    }
}

fn tls_fault(error: &io::Error, name: &str) -> String {
    let cause = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let x509 = |text: String| format!("tls: failed to verify certificate: x509: {text}");
    match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            x509("certificate signed by unknown authority".into())
        }
        Some(rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )) => x509("certificate has expired or is not yet valid".into()),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForName)) => x509(format!(
            "certificate is not valid for any names, but wanted to match {name}"
        )),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            presented,
            ..
        })) => x509(format!(
            "certificate is valid for {}, not {name}",
            presented.join(", ")
        )),
        Some(other) => format!("tls: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => error.to_string(),
    }
}
