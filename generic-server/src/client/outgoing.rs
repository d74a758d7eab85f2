//! The HTTP client of the server's own requests: one configured builder, over reqwest; over hyper where connections go through a proxy of
//! [`super::egress`] or to a server of another name than its URL's, for which reqwest has no place.
//!
//! For requests whose answer is read to its end or as one stream of bytes. A request that pins a connection (a service's address
//! with another name to verify), upgrades it or passes bodies on unread uses hyper with [`super::connect`] itself.
//!
//! Its rules: HTTPS alone; only the given TLS settings decide on trust; no redirects, which would lead around both; no proxies of the
//! environment. [`Outgoing::new`] has no rule about addresses, since an administrator has named the server; [`Outgoing::within`] is for URLs that come
//! from elsewhere.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as PooledClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use machinery::go::Quoted;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::TlsIo;
use super::connect::{self, fault_of};
use super::egress::Route;
use super::tcp::{Fault, authority, dial_fault, forbidden, tls_fault};
use crate::request::{Body, BoxError};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// With the timeout below, a dead connection is found within fifteen seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one answer that may be under way.
const WINDOW: u32 = 1 << 20;

/// Sends requests of the server's own. Clones share connections.
#[derive(Debug, Clone)]
pub struct Outgoing {
    client: Backend,
    permitted: fn(IpAddr) -> bool,
}

#[derive(Debug, Clone)]
enum Backend {
    Direct(Client),
    Routed(Box<PooledClient<Routed, Full<Bytes>>>),
}

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct SendError {
    #[source]
    cause: BoxError,
    /// No connection came about.
    pub is_connect: bool,
}

impl SendError {
    fn new(cause: impl Into<BoxError>) -> Self {
        SendError {
            cause: cause.into(),
            is_connect: false,
        }
    }
}

/// An answer, whose body is read piece by piece.
#[derive(Debug)]
pub struct Answer(http::Response<Body>);

impl Answer {
    /// Its status code.
    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// The next bytes of its body; `None` at the end.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BoxError> {
        while let Some(frame) = self.0.body_mut().frame().await {
            // Trailers are of no use here.
            if let Ok(bytes) = frame?.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl Outgoing {
    /// A client with the trust and the client certificate of `tls`, whose connections go by `route`.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn new(tls: ClientConfig, route: &Route) -> Result<Self, Fault> {
        Outgoing::within(tls, route, |_| true)
    }

    /// The same, for servers at permitted addresses alone: names are resolved to no other ones.
    ///
    /// # Errors
    /// When the client cannot be made of these settings.
    pub fn within(
        mut tls: ClientConfig,
        route: &Route,
        permitted: fn(IpAddr) -> bool,
    ) -> Result<Self, Fault> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = match route.is_proxied() {
            false => Backend::Direct(direct(tls, permitted)?),
            true => Backend::Routed(Box::new(routed(tls, route.clone(), None, permitted))),
        };
        Ok(Outgoing { client, permitted })
    }

    /// The same as [`Outgoing::new`], for a server whose certificate names it so, whatever the URL says.
    pub fn named(mut tls: ClientConfig, route: &Route, name: ServerName<'static>) -> Self {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let permitted = |_| true;
        Outgoing {
            client: Backend::Routed(Box::new(routed(tls, route.clone(), Some(name), permitted))),
            permitted,
        }
    }

    /// Sends a request, and gives the answer once its head is there.
    ///
    /// # Errors
    /// When the URL is none or not of HTTPS, names an address that is not permitted, or when there is no answer.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, SendError> {
        let url = self.checked(url).map_err(SendError::new)?;
        match &self.client {
            Backend::Direct(client) => {
                let request = client
                    .request(method.clone(), url.clone())
                    .headers(headers)
                    .body(body);
                let response = request.send().await.map_err(|error| SendError {
                    is_connect: error.is_connect(),
                    cause: in_gos_words(&method, &url, &error).into(),
                })?;
                let response: http::Response<reqwest::Body> = response.into();
                let boxed = |body: reqwest::Body| body.map_err(Into::into).boxed_unsync();
                Ok(Answer(response.map(boxed)))
            }
            Backend::Routed(client) => {
                let mut request = http::Request::new(Full::new(body));
                *request.method_mut() = method.clone();
                *request.uri_mut() = url.as_str().parse::<Uri>().map_err(SendError::new)?;
                *request.headers_mut() = headers;
                let response = client.request(request).await.map_err(|error| SendError {
                    is_connect: error.is_connect(),
                    cause: in_gos_words(&method, &url, &error).into(),
                })?;
                Ok(Answer(
                    response.map(|body| body.map_err(Into::into).boxed_unsync()),
                ))
            }
        }
    }

    fn checked(&self, url: &str) -> Result<Url, Fault> {
        let parsed = Url::parse(url).map_err(|error| Fault(format!("parse {}: {error}", Quoted(url))))?;
        if parsed.scheme() != "https" {
            return Err(Fault(format!(
                "unsupported protocol scheme {}",
                Quoted(parsed.scheme())
            )));
        }
        // Addresses are not resolved, so the resolver does not see them.
        let host = parsed.host_str().unwrap_or_default();
        let literal = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>();
        match literal.is_ok_and(|address| !(self.permitted)(address)) {
            true => Err(forbidden(host)),
            false => Ok(parsed),
        }
    }
}

/// A failed request as Go's client tells it.
fn in_gos_words(method: &Method, url: &Url, error: &(dyn Error + 'static)) -> Fault {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let why = network_fault(error, host, &authority(host, port)).unwrap_or_else(|| fault_of(error));
    failed(method, url, &why)
}

/// A request that failed for this reason. A password in the URL is not shown.
fn failed(method: &Method, url: &Url, why: &str) -> Fault {
    let mut shown = url.clone();
    if shown.password().is_some() {
        // It fails for URLs without a host, which have no password.
        let _ = shown.set_password(Some("xxxxx"));
    }
    let method = match *method {
        Method::GET => "Get",
        Method::POST => "Post",
        _ => method.as_str(),
    };
    Fault(format!("{method} {}: {why}", Quoted(shown.as_str())))
}

/// A request whose time was over before there was an answer.
pub fn late(method: &Method, url: &str) -> Fault {
    let why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    match Url::parse(url) {
        Ok(url) => failed(method, &url, why),
        Err(_) => Fault(why.to_string()),
    }
}

/// The failure of a connection to `host` that is behind an error, if it is one.
fn network_fault(error: &(dyn Error + 'static), host: &str, authority: &str) -> Option<String> {
    let mut at = Some(error);
    while let Some(error) = at {
        if error.is::<Fault>() {
            return None;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let is_of_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            return match error.kind() {
                _ if is_of_tls => {
                    let name = ServerName::try_from(host).ok()?;
                    Some(tls_fault(error, &name))
                }
                io::ErrorKind::UnexpectedEof => Some("EOF".to_string()),
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable => Some(dial_fault("tcp", authority, error)),
                _ => None,
            };
        }
        at = error.source();
    }
    None
}

fn direct(tls: ClientConfig, permitted: fn(IpAddr) -> bool) -> Result<Client, Fault> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .https_only(true)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .referer(false)
        .dns_resolver(Resolver(permitted))
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(WINDOW)
        .build()
        .map_err(|error| Fault(super::fault_of(&error)))
}

fn routed(
    tls: ClientConfig,
    route: Route,
    name: Option<ServerName<'static>>,
    permitted: fn(IpAddr) -> bool,
) -> PooledClient<Routed, Full<Bytes>> {
    let connector = Routed {
        tls: TlsConnector::from(Arc::new(tls)),
        route,
        name,
        permitted,
    };
    PooledClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(WINDOW)
        .build(connector)
}

/// Opens connections by a route.
#[derive(Clone)]
struct Routed {
    tls: TlsConnector,
    route: Route,
    /// The name of the server, where it is not that of the URL.
    name: Option<ServerName<'static>>,
    permitted: fn(IpAddr) -> bool,
}

impl std::fmt::Debug for Routed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routed")
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}

impl tower::Service<Uri> for Routed {
    type Response = TlsIo;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<TlsIo, Fault>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let name = match connector.name {
                Some(name) => name,
                None => ServerName::try_from(host.to_string()).map_err(|error| Fault(error.to_string()))?,
            };
            let at = authority(host, uri.port_u16().unwrap_or(443));
            let (route, tls) = (&connector.route, &connector.tls);
            connect::connect(route, tls, &name, &at, connector.permitted, CONNECT_TIMEOUT).await
        })
    }
}

/// Resolves names as the system does, to permitted addresses, and fails in the words of Go's client.
struct Resolver(fn(IpAddr) -> bool);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let permitted = self.0;
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0))
                .await
                .map_err(|_| Fault(format!("dial tcp: lookup {host}: no such host")))?;
            let found: Vec<SocketAddr> = found.filter(|address| permitted(address.ip())).collect();
            if found.is_empty() {
                return Err(forbidden(host).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::trust::{TrustedPeers, settings};

    fn client(permitted: fn(IpAddr) -> bool) -> Outgoing {
        let tls = settings(TrustedPeers::Anyone)
            .expect("settings")
            .with_no_client_auth();
        Outgoing::within(tls, &Route::Direct, permitted).expect("a client")
    }

    #[test]
    fn other_schemes_than_https_are_refused() {
        let client = client(|_| true);
        let refused = |url: &str| client.checked(url).expect_err("no HTTPS").to_string();
        assert_eq!(
            refused("http://127.0.0.1:1/"),
            "unsupported protocol scheme \"http\""
        );
        assert!(refused("no url").starts_with("parse \"no url\": "));
    }

    #[test]
    fn forbidden_addresses_are_refused() {
        let client = client(|address| !crate::client::is_forbidden(address));
        #[track_caller]
        fn check(client: &Outgoing, url: &str, permitted: bool) {
            assert_eq!(client.checked(url).is_ok(), permitted, "{url}");
        }
        check(&client, "https://127.0.0.1/", true);
        check(&client, "https://[::1]/", true);
        check(&client, "https://issuer.example/", true);
        check(&client, "https://169.254.169.254/", false);
        check(&client, "https://0xa9fea9fe/", false);
        check(&client, "https://[fe80::1]/", false);
        check(&client, "https://[::ffff:169.254.169.254]/", false);
    }
}
