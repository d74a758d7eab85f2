//! Egress selection (KEP-1281): which proxy the server's own connections into a network go through. Mirrors `pkg/server/egressselector`.
//!
//! Three networks are told apart: the control plane (webhooks by URL, webhooks of tokens, of authorization and of auditing, issuers of
//! tokens), the cluster (nodes, pods, services, webhooks and aggregated servers behind services), and the one of etcd. A network without a
//! proxy is reached directly. Addresses go to the proxy as they are, since names may mean something else there: of rules about addresses
//! only those about literal ones hold for proxied connections.
//!
//! Called by [`super::connect`], [`super::dial`] and [`super::Outgoing`]. A proxied connection is bounded by its caller's deadline, as a direct one.

mod http_connect;
mod metrics;
mod tunnel;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::tcp::{self, Fault};
use super::wire::{Io, Wire};
use crate::spawn::Tasks;

pub use metrics::EgressMetrics;
use metrics::{Stage, Way};

/// What connections are made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Webhooks by URL, and issuers of tokens.
    ControlPlane,
    /// Nodes, pods and services.
    Cluster,
    /// The members of an etcd.
    Etcd,
}

impl Network {
    /// All of them, with the names that configurations give them.
    pub const ALL: [(&'static str, Network); 3] = [
        ("controlplane", Network::ControlPlane),
        ("cluster", Network::Cluster),
        ("etcd", Network::Etcd),
    ];
}

/// The ways into the networks. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct EgressSelector(Option<Arc<Vec<(Network, Route)>>>);

impl EgressSelector {
    /// A selector of a configuration.
    pub fn new(routes: Vec<(Network, Route)>) -> Self {
        EgressSelector(Some(Arc::new(routes)))
    }

    /// The way into a network: directly where nothing else is configured.
    pub fn route(&self, network: Network) -> Route {
        self.configured(network).cloned().unwrap_or_default()
    }

    /// The way into a network that a configuration names.
    pub fn configured(&self, network: Network) -> Option<&Route> {
        let routes = self.0.iter().flat_map(|routes| routes.iter());
        routes
            .into_iter()
            .find(|(of, _)| *of == network)
            .map(|(_, route)| route)
    }

    /// Whether there is a configuration.
    pub fn is_given(&self) -> bool {
        self.0.is_some()
    }
}

/// The way into a network.
#[derive(Debug, Clone, Default)]
pub enum Route {
    /// Connections lead to the address itself.
    #[default]
    Direct,
    /// Connections lead to a proxy.
    Proxy(Arc<Proxy>),
}

/// A proxy, and how it is asked.
#[derive(Debug)]
pub struct Proxy {
    /// Where it is, and what it speaks.
    pub at: ProxyEndpoint,
    /// Counts of connections; shared by all proxies of a server.
    pub metrics: Arc<EgressMetrics>,
    /// The tasks of tunnels, which end with their connections.
    pub tasks: Tasks,
}

/// Where a proxy is, and what it speaks.
pub enum ProxyEndpoint {
    /// HTTP CONNECT over TCP, in plain text without `tls`.
    HttpTcp {
        /// `host:port`.
        authority: String,
        /// How the proxy is trusted, and by which name.
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    },
    /// HTTP CONNECT over a Unix socket.
    HttpUds(PathBuf),
    /// The `ProxyService` of konnectivity over a Unix socket, a gRPC connection for each connection.
    Grpc(PathBuf),
}

impl std::fmt::Debug for ProxyEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProxyEndpoint::HttpTcp { authority, .. } => f.debug_tuple("HttpTcp").field(authority).finish(),
            ProxyEndpoint::HttpUds(path) => f.debug_tuple("HttpUds").field(path).finish(),
            ProxyEndpoint::Grpc(path) => f.debug_tuple("Grpc").field(path).finish(),
        }
    }
}

impl Route {
    /// Connects to `authority` (`host:port`). Addresses that are not `permitted` are not connected to directly, nor asked of a proxy.
    pub(super) async fn dial(&self, authority: &str, permitted: fn(IpAddr) -> bool) -> Result<Wire, Fault> {
        let Route::Proxy(proxy) = self else {
            return tcp::dial_any(authority, permitted).await.map(Wire::Direct);
        };
        tcp::check_literal(authority, permitted)?;
        proxy.dial(authority).await.map(Wire::Proxied)
    }

    /// Whether there is a proxy.
    pub fn is_proxied(&self) -> bool {
        matches!(self, Route::Proxy(_))
    }
}

impl Proxy {
    /// Connects to `authority` through the proxy.
    ///
    /// # Errors
    /// Why not, in upstream's words.
    pub async fn dial(&self, authority: &str) -> Result<Io, Fault> {
        let counted = self.metrics.begin(self.at.way());
        match self.at.dial(authority, &self.tasks).await {
            Ok(io) => {
                counted.succeeded();
                Ok(io)
            }
            Err((stage, fault)) => {
                counted.failed(stage);
                Err(fault)
            }
        }
    }
}

impl ProxyEndpoint {
    fn way(&self) -> Way {
        match self {
            ProxyEndpoint::HttpTcp { .. } => Way::ConnectTcp,
            ProxyEndpoint::HttpUds(_) => Way::ConnectUds,
            ProxyEndpoint::Grpc(_) => Way::GrpcUds,
        }
    }

    async fn dial(&self, authority: &str, tasks: &Tasks) -> Result<Io, (Stage, Fault)> {
        let connecting = |fault| (Stage::Connect, fault);
        let proxying = |fault| (Stage::Proxy, fault);
        match self {
            ProxyEndpoint::HttpTcp { authority: at, tls } => {
                let stream = tcp::dial_any(at, |_| true).await.map_err(connecting)?;
                let io = secured(stream, tls.as_ref()).await.map_err(connecting)?;
                http_connect::ask(io, at, authority).await.map_err(proxying)
            }
            ProxyEndpoint::HttpUds(path) => {
                let shown = path.display().to_string();
                let stream = UnixStream::connect(path)
                    .await
                    .map_err(|error| connecting(Fault(tcp::dial_fault("unix", &shown, &error))))?;
                http_connect::ask(Box::new(stream), &shown, authority)
                    .await
                    .map_err(proxying)
            }
            ProxyEndpoint::Grpc(path) => tunnel::open(path, authority, tasks).await,
        }
    }
}

async fn secured(
    stream: TcpStream,
    tls: Option<&(Arc<ClientConfig>, ServerName<'static>)>,
) -> Result<Io, Fault> {
    let Some((config, name)) = tls else {
        return Ok(Box::new(stream));
    };
    let connector = TlsConnector::from(config.clone());
    let stream = connector.connect(name.clone(), stream).await;
    let stream = stream.map_err(|error| Fault(tcp::tls_fault(&error, name)))?;
    Ok(Box::new(stream))
}
