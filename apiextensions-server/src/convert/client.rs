//! The connection to a conversion webhook: pooled, over TLS, trusted by the CRD's CA bundle alone.
//!
//! One client per CRD and configuration, made when the first object has to be converted. A bundle that does not parse is an
//! error of every call, never a reason to trust anybody.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Services, review};

/// The largest answer, in bytes. A question has up to 8 MiB of objects.
const MAX_ANSWER: usize = 64 << 20;
/// Where systems keep the authorities that they trust, for URLs without a bundle of their own.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Whom to ask.
#[derive(Debug, Clone, PartialEq)]
enum Target {
    Url(String),
    Service {
        namespace: String,
        name: String,
        path: String,
        port: u16,
    },
}

/// A conversion webhook.
#[derive(Debug)]
pub(crate) struct WebhookClient {
    target: Target,
    /// The review versions that it takes, in its order.
    versions: Vec<String>,
    /// How long one question may take, connecting included.
    timeout: Duration,
    /// Or why there can be none.
    client: Result<Client<HttpsConnector<Connector>, Full<Bytes>>, String>,
}

impl WebhookClient {
    /// From `spec.conversion`. A question may take as long as `timeout`.
    pub(crate) fn new(conversion: &Value, services: Services, timeout: Duration) -> Self {
        let webhook = conversion.get("webhook").unwrap_or(&Value::Null);
        let text = |path: &str| {
            webhook
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        let versions = webhook.get("conversionReviewVersions").and_then(Value::as_array);
        let versions = versions.into_iter().flatten().filter_map(Value::as_str);
        let port = webhook
            .pointer("/clientConfig/service/port")
            .and_then(Value::as_u64);
        let target = match webhook.pointer("/clientConfig/service") {
            Some(service) if service.is_object() => Target::Service {
                namespace: text("/clientConfig/service/namespace"),
                name: text("/clientConfig/service/name"),
                path: text("/clientConfig/service/path"),
                port: port.and_then(|p| u16::try_from(p).ok()).unwrap_or(443),
            },
            _ => Target::Url(text("/clientConfig/url")),
        };
        let connector = Connector {
            service: match &target {
                Target::Service { namespace, name, .. } => Some((namespace.clone(), name.clone())),
                Target::Url(_) => None,
            },
            services,
        };
        let client = tls(&text("/clientConfig/caBundle")).map(|config| {
            let https = HttpsConnector::from((connector, config));
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(Duration::from_secs(90))
                .build(https)
        });
        WebhookClient {
            target,
            versions: versions.map(str::to_string).collect(),
            timeout,
            client,
        }
    }

    fn url(&self) -> String {
        match &self.target {
            Target::Url(url) => url.clone(),
            Target::Service {
                namespace,
                name,
                path,
                port,
            } => {
                let path = path.trim_start_matches('/');
                format!("https://{name}.{namespace}.svc:{port}/{path}")
            }
        }
    }

    /// Asks for objects in another version; answers what it said, or why there is nothing to go by.
    pub(crate) async fn ask(&self, objects: &[&Value], version: &str) -> Result<Vec<Value>, String> {
        let uid = uuid::Uuid::new_v4().to_string();
        let (review_version, question) = review::request(&self.versions, &uid, objects, version)?;
        let url = self.url();
        let failed = |why: String| format!("Post \"{url}\": {why}");
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .body(Full::new(Bytes::from(question.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = client
                .request(request)
                .await
                .map_err(|error| failed(told(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body
                .map_err(|error| match error.is::<LengthLimitError>() {
                    true => failed(format!("the answer is larger than {MAX_ANSWER} bytes")),
                    false => failed(error.to_string()),
                })?
                .to_bytes();
            if !status.is_success() {
                let text = String::from_utf8_lossy(&body);
                let text: String = text.trim().chars().take(1024).collect();
                return Err(match text.as_str() {
                    "" => format!("the server responded with the status code {}", status.as_u16()),
                    text => text.to_string(),
                });
            }
            machinery::codec::json::value(&body).map_err(|error| format!("the answer is not JSON: {error}"))
        };
        let answer = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| failed("context deadline exceeded".into()))??;
        review::response(&review_version, &uid, answer)
    }
}

/// An error with its causes: the connector's own words are the useful ones.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// TLS that trusts the bundle, or the system's authorities when there is none.
fn tls(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let pem = base64::engine::general_purpose::STANDARD
        .decode(bundle.trim())
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
    let pem = match pem.trim_ascii().is_empty() {
        false => pem,
        true => SYSTEM_BUNDLES
            .iter()
            .find_map(|path| std::fs::read(path).ok())
            .unwrap_or_default(),
    };
    let mut roots = RootCertStore::empty();
    let unreadable = "unable to load root certificates: unable to parse bytes as PEM block";
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| unreadable.to_string())?;
        roots
            .add(certificate)
            .map_err(|error| format!("{unreadable}: {error}"))?;
    }
    if roots.is_empty() {
        return Err(unreadable.into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Opens connections: to the URL's host, or to where the service is at that moment.
#[derive(Debug, Clone)]
struct Connector {
    service: Option<(String, String)>,
    services: Services,
}

type Connecting = Pin<
    Box<dyn Future<Output = Result<TokioIo<TcpStream>, Box<dyn std::error::Error + Send + Sync>>> + Send>,
>;

impl tower::Service<http::Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Connecting;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Connecting {
        let this = self.clone();
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(443);
            let host = uri.host().unwrap_or_default();
            let (host, port) = match &this.service {
                Some((namespace, name)) => this.services.resolve(namespace, name, port).await?,
                None => (host.trim_matches(['[', ']']).to_string(), port),
            };
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}
