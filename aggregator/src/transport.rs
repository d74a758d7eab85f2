//! Connections to extension servers: TCP, TLS with the service's name, HTTP/2 or HTTP/1.1 as negotiated, pooled per endpoint.

mod body;
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use generic_server::client::egress::Route;
use generic_server::client::{self, Fault, TlsIo, is_forbidden};
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;

pub(crate) use body::Held;
pub use tls::ProxyKey;
pub(crate) use tls::TransportSettings;
use tls::client_config;

use crate::remote::RemoteSpec;

/// How long a connection may take to come about; a second endpoint is tried after that.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// With the timeout below, a dead connection is found within five seconds.
const PING_EVERY: Duration = Duration::from_secs(3);
const PING_TIMEOUT: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(90);
const IDLE_PER_ENDPOINT: usize = 64;
/// The bytes of one answer that may be buffered before the client has read them.
const WINDOW: u32 = 256 * 1024;
/// Requests in flight on one connection, as many as any server allows. Its window holds all of theirs, so that clients that do not
/// read block no others.
const MAX_STREAMS_PER_CONNECTION: usize = 100;
/// Connections per endpoint.
const MAX_CONNECTIONS_PER_ENDPOINT: usize = 64;
/// A backend's head may not be larger: an endless one is an error.
const MAX_HEADERS: usize = 256 * 1024;

/// The pooled client of one APIService.
pub(crate) type Pool = Client<Connector, Held>;

/// How one APIService's servers are talked to. Made when its spec changes, never per request.
#[derive(Debug)]
pub(crate) struct Transport {
    connector: Connector,
    key: ProxyKey,
    lanes: Mutex<Lanes>,
    /// HTTP/1.1 alone, without reuse: for upgrades.
    upgrades: Connector,
}

/// The pools whose connections were shown the same certificate.
#[derive(Debug)]
struct Lanes {
    shown: Arc<CertifiedKey>,
    all: Vec<Lane>,
}

/// A pool that shares one HTTP/2 connection per endpoint.
#[derive(Debug)]
struct Lane {
    pool: Pool,
    free: Arc<Semaphore>,
}

impl Lane {
    fn new(connector: Connector) -> Self {
        let lane = u32::try_from(MAX_STREAMS_PER_CONNECTION).unwrap_or(u32::MAX);
        let pool = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_PER_ENDPOINT)
            .http1_max_buf_size(MAX_HEADERS)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW.saturating_mul(lane))
            .http2_max_header_list_size(u32::try_from(MAX_HEADERS).unwrap_or(u32::MAX))
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(connector);
        Lane {
            pool,
            free: Arc::new(Semaphore::new(MAX_STREAMS_PER_CONNECTION)),
        }
    }
}

/// A stream on a connection, until the answer has ended.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    pub(crate) pool: Pool,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Transport {
    /// # Errors
    /// When the spec's bundle cannot be used; the text is for clients.
    pub(crate) fn new(spec: &RemoteSpec, settings: &TransportSettings) -> Result<Self, String> {
        let TransportSettings { key, route, .. } = settings;
        let name = format!("{}.{}.svc", spec.service, spec.namespace);
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        let mut config = client_config(spec, settings)?;
        let upgrades = Connector {
            tls: TlsConnector::from(Arc::new(config.clone())),
            name: name.clone(),
            route: route.clone(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let connector = Connector {
            tls: TlsConnector::from(Arc::new(config)),
            name,
            route: route.clone(),
        };
        Ok(Transport {
            connector,
            key: key.clone(),
            lanes: Mutex::new(Lanes {
                shown: key.load_full(),
                all: Vec::new(),
            }),
            upgrades,
        })
    }

    /// A place on the first connection that has one; `None` when too many requests are under way.
    pub(crate) fn place(&self) -> Option<StreamPermit> {
        let mut lanes = self.lanes.lock();
        let key = self.key.load();
        if !Arc::ptr_eq(&key, &lanes.shown) {
            // Requests under way finish on their connection; new ones use the new certificate.
            lanes.all.clear();
            lanes.shown = Arc::clone(&key);
        }
        let lanes = &mut lanes.all;
        let free = |lane: &Lane| {
            Some(StreamPermit {
                permit: lane.free.clone().try_acquire_owned().ok()?,
                pool: lane.pool.clone(),
            })
        };
        if let Some(place) = lanes.iter().find_map(free) {
            return Some(place);
        }
        if lanes.len() >= MAX_CONNECTIONS_PER_ENDPOINT {
            return None;
        }
        lanes.push(Lane::new(self.connector.clone()));
        lanes.last().and_then(free)
    }

    /// A fresh HTTP/1.1 connection, for an upgrade.
    pub(crate) async fn connect(&self, authority: &str) -> Result<TlsIo, Fault> {
        self.upgrades.connect(authority).await
    }
}

/// Opens connections with the service's own name, whatever the endpoint's address.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
    route: Route,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Connector {
    async fn connect(&self, authority: &str) -> Result<TlsIo, Fault> {
        let permitted = |address| !is_forbidden(address);
        let (route, tls) = (&self.route, &self.tls);
        client::connect(route, tls, &self.name, authority, permitted, CONNECT_TIMEOUT).await
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TlsIo;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<TlsIo, Fault>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        Box::pin(async move { connector.connect(&authority).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded() {
        let spec = RemoteSpec {
            insecure: true,
            ..RemoteSpec::example()
        };
        let authority = generic_server::pki::Authority::generate("test").expect("an authority");
        let key = authority.client("proxy", "proxies").expect("a certificate");
        let key = key.certified_key().expect("a pair");
        let settings = TransportSettings {
            key: Arc::new(arc_swap::ArcSwap::from(key)),
            route: Route::Direct,
            certificates: client::DeprecatedCertificates::new("kube_aggregator"),
        };
        let transport = Transport::new(&spec, &settings).expect("a transport");
        let mut places: Vec<StreamPermit> = (0..MAX_STREAMS_PER_CONNECTION * MAX_CONNECTIONS_PER_ENDPOINT)
            .filter_map(|_| transport.place())
            .collect();
        assert_eq!(
            places.len(),
            MAX_STREAMS_PER_CONNECTION * MAX_CONNECTIONS_PER_ENDPOINT
        );
        assert!(transport.place().is_none());
        places.pop();
        assert!(transport.place().is_some());
    }
}
