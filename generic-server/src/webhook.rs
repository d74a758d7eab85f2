//! Asking a webhook: a pooled HTTPS client for one `clientConfig`, which trusts the configuration's CA bundle alone.
//!
//! A bundle that does not parse is an error of every call, never a reason to trust anybody. Failures are worded as Go's client
//! words them, because people search for those texts.

mod services;
mod users;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::TokioExecutor;
use machinery::meta;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::client::trust::{self, TrustedPeers};
use crate::client::{self, DeprecatedCertificates, Fault, TlsIo};
use crate::request::{ReadError, read_bounded};

pub use services::Services;
pub use users::{WebhookUser, WebhookUsers};

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(90);
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(30);

/// The user agent of requests to webhooks. Upstream's, which endpoints let past their own checks.
const USER_AGENT: &str = "kube-apiserver-admission";

/// A call without an answer to go by, in the words of upstream's client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// The code of the answer, or 503 when there was none.
    pub code: u16,
    /// No connection came about.
    pub unreachable: bool,
    text: String,
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        CallError {
            code: 503,
            unreachable: false,
            text,
        }
    }
}

impl CallError {
    fn unreachable(self, unreachable: bool) -> Self {
        CallError { unreachable, ..self }
    }
}

/// A webhook's endpoint.
pub struct WebhookClient {
    url: String,
    /// Or why there can be none.
    client: Result<Client<Connector, Full<Bytes>>, String>,
    /// What this server shows of itself there.
    user: Option<Arc<WebhookUser>>,
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
        Self::with_users(config, services, &WebhookUsers::default())
    }

    /// The same, as the user that `users` has for the endpoint.
    pub fn with_users(config: &Value, services: Services, users: &WebhookUsers) -> Self {
        let text = |path: &[&str]| meta::dig_str(config, path).to_string();
        let service = config.get("service").filter(|service| service.is_object());
        let url = match service {
            None => cleaned(&text(&["url"])),
            Some(service) => {
                let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
                let (name, namespace) = (text(&["service", "name"]), text(&["service", "namespace"]));
                let path = clean_path(&text(&["service", "path"]));
                format!("https://{name}.{namespace}.svc:{port}{path}")
            }
        };
        let service = service.map(|_| (text(&["service", "namespace"]), text(&["service", "name"])));
        // On one HTTP/2 connection all requests would meet the same endpoint of a service.
        let http2 = service.is_none() && is_local(&url);
        let user = users.of(&target(&url)).cloned();
        let settings = settings(&text(&["caBundle"]), services.certificates());
        let client = settings
            .map(|settings| tls(settings, http2, user.as_ref()))
            .map(|tls| {
                let connector = Connector(Arc::new(ConnectorConfig {
                    tls: TlsConnector::from(tls),
                    service,
                    services,
                }));
                Client::builder(TokioExecutor::new())
                    .pool_idle_timeout(IDLE)
                    .build(connector)
            });
        WebhookClient { url, client, user }
    }

    /// Posts JSON and reads a JSON answer of at most `most` bytes, all within `patience`, which is sent along as `timeout`.
    ///
    /// # Errors
    /// Why there is no answer to go by, in the words of upstream's client.
    pub async fn post(&self, body: Bytes, patience: Duration, most: usize) -> Result<Value, CallError> {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}timeout={}s", self.url, patience.as_secs().max(1));
        let failed = |why: String| CallError::from(format!("Post \"{url}\": {why}"));
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let mut request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .header(http::header::USER_AGENT, USER_AGENT);
        if let Some(user) = &self.user
            && let Some(header) = user.authorization().await
        {
            request = request.header(http::header::AUTHORIZATION, header);
        }
        let mut request = request
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string()))?;
        let connection = capture_connection(&mut request);
        let exchange = async {
            let response = client
                .request(request)
                .await
                .map_err(|error| failed(client::fault_of(&error)).unreachable(error.is_connect()))?;
            let status = response.status();
            let body = read_bounded(response.into_body(), most).await;
            let body = body.map_err(|error| match error {
                ReadError::TooLarge(most) => failed(format!("the answer is larger than {most} bytes")),
                ReadError::Failed(error) => failed(error.to_string()),
            })?;
            if !status.is_success() {
                let code = status.as_u16();
                let text = client::refusal_of(code, &body);
                return Err(CallError {
                    code,
                    ..CallError::from(text)
                });
            }
            machinery::codec::json::value(&body)
                .map_err(|error| format!("couldn't get version/kind; json parse error: {error}").into())
        };
        tokio::time::timeout(patience, exchange).await.map_err(|_| {
            let unreachable = connection.connection_metadata().is_none();
            failed("context deadline exceeded".into()).unreachable(unreachable)
        })?
    }
}

/// A URL with its path cleaned: upstream joins paths before it asks, and many servers redirect what is not clean.
fn cleaned(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_string();
    };
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(at);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (path, query) = rest.split_at(end);
    format!("{scheme}://{host}{}{query}", clean_path(path))
}

/// As Go's `path.Join("/", path)`: no empty and no dot segments, no slash at the end.
fn clean_path(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Whether a URL leads to this machine by name or by address.
fn is_local(url: &str) -> bool {
    let uri = url.parse::<http::Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// `host:port` of a URL, as users of endpoints are named after it.
fn target(url: &str) -> String {
    let uri = url.parse::<http::Uri>().unwrap_or_default();
    let host = uri.host().unwrap_or_default();
    format!("{host}:{}", uri.port_u16().unwrap_or(443))
}

/// The trust of a bundle, or of the system's authorities when there is none.
fn settings(
    bundle: &str,
    deprecated: &Arc<DeprecatedCertificates>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let peers = match bundle.trim() {
        "" => TrustedPeers::System,
        bundle => TrustedPeers::Bundle(bundle),
    };
    trust::counting_settings(peers, deprecated)
}

/// TLS that shows the certificate of a user that has one.
fn tls(
    settings: ConfigBuilder<ClientConfig, WantsClientCert>,
    http2: bool,
    user: Option<&Arc<WebhookUser>>,
) -> Arc<ClientConfig> {
    let mut config = match user.filter(|user| user.has_certificate()) {
        Some(user) => settings.with_client_cert_resolver(user.clone()),
        None => settings.with_no_client_auth(),
    };
    let protocols: &[&[u8]] = if http2 {
        &[b"h2", b"http/1.1"]
    } else {
        &[b"http/1.1"]
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// How a webhook is connected to.
struct ConnectorConfig {
    tls: TlsConnector,
    /// Namespace and name, for services: where they are is asked for each connection.
    service: Option<(String, String)>,
    services: Services,
}

/// Opens connections: to the URL's host, or to where the service is at that moment.
#[derive(Clone)]
struct Connector(Arc<ConnectorConfig>);

impl tower::Service<http::Uri> for Connector {
    type Response = TlsIo;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<TlsIo, Fault>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let config = self.0.clone();
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(443);
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let name = ServerName::try_from(host.to_string()).map_err(|error| Fault(error.to_string()))?;
            let authority = match &config.service {
                Some((namespace, service)) => {
                    let found = config.services.resolve(namespace, service, port).await;
                    let (host, port) = found.map_err(Fault)?;
                    client::authority(&host, port)
                }
                None => client::authority(host, port),
            };
            let route = config.services.route(config.service.is_some());
            client::connect(&route, &config.tls, &name, &authority, |_| true, CONNECT).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_go_joins_them() {
        let check = |path: &str, expected: &str| assert_eq!(clean_path(path), expected, "{path}");
        check("", "/");
        check("/", "/");
        check("a", "/a");
        check("/a//b/", "/a/b");
        check("/a/../c", "/c");
        check("/../../c/./d", "/c/d");
        let check = |url: &str, expected: &str| assert_eq!(cleaned(url), expected, "{url}");
        check("https://h:1//path", "https://h:1/path");
        check("https://h", "https://h/");
        check("https://h/a/../b/?x=//", "https://h/b?x=//");
        check("not a url", "not a url");
    }

    #[test]
    fn http2_is_for_this_machine_alone() {
        let check = |url: &str, expected: bool| assert_eq!(is_local(url), expected, "{url}");
        check("https://localhost:1/a", true);
        check("https://127.0.0.1/a", true);
        check("https://[::1]:9/a", true);
        check("https://10.0.0.1/a", false);
        check("https://hooks.example.com", false);
    }
}
