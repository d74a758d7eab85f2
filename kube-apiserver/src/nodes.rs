//! Kubelets: where they are, and how they are reached and trusted. Mirrors `pkg/kubelet/client`.
//!
//! Called by the streams of pods and nodes. The certificate and the authority are read again when their files change: connections that
//! come after it use what was read last.

mod metrics;
mod seats;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::client::egress::Route;
use generic_server::client::is_forbidden;
use generic_server::client::trust::{TrustedPeers, settings};
use generic_server::metrics::Collect;
use generic_server::reload::Reload;
use generic_server::request::User;
use generic_server::serve::{certified_key, stream_connections};
use generic_server::spawn::Tasks;
use generic_server::streaming::Peer;
use machinery::{ApiError, GroupResource};
use rustls::ClientConfig;
use rustls::sign::SingleCertAndKey;
use serde_json::Value;

use metrics::StreamMetrics;
use seats::Seats;

use crate::client::Client;
use crate::json::Json;

/// The feature by which a kubelet says that it takes commands over WebSocket itself.
const TAKES_WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

/// How kubelets are reached: `--kubelet-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletOptions {
    /// The types of a node's addresses, the preferred one first.
    pub preferred_address_types: Vec<String>,
    /// The port of a node that does not say its own.
    pub port: u16,
    /// How long a connection may take to come about.
    pub timeout: Duration,
    /// The certificate that kubelets are shown, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The authorities of kubelets' certificates; without a file these are not verified, as upstream.
    pub authority: Option<PathBuf>,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        let types = [
            "Hostname",
            "InternalDNS",
            "InternalIP",
            "ExternalDNS",
            "ExternalIP",
        ];
        KubeletOptions {
            preferred_address_types: types.map(str::to_string).to_vec(),
            port: 10_250,
            timeout: Duration::from_secs(5),
            client: None,
            authority: None,
        }
    }
}

/// TLS to kubelets.
#[derive(Debug)]
struct Trust {
    verified: Arc<ClientConfig>,
    /// For a client that does not want the kubelet verified.
    unverified: Arc<ClientConfig>,
}

impl Trust {
    /// # Errors
    /// Which file cannot be used, and why.
    fn read(options: &KubeletOptions) -> Result<Self, String> {
        let authority = options.authority.as_deref().map(bundle).transpose()?;
        let peers = authority
            .as_deref()
            .map_or(TrustedPeers::Anyone, TrustedPeers::Bundle);
        Ok(Trust {
            verified: config(options, peers)?,
            unverified: config(options, TrustedPeers::Anyone)?,
        })
    }
}

fn bundle(file: &Path) -> Result<String, String> {
    let flag = "--kubelet-certificate-authority";
    let pem = std::fs::read(file).map_err(|error| format!("{flag}: {}: {error}", file.display()))?;
    Ok(BASE64_STANDARD.encode(pem))
}

fn config(options: &KubeletOptions, peers: TrustedPeers<'_>) -> Result<Arc<ClientConfig>, String> {
    let builder = settings(peers).map_err(|error| format!("--kubelet-certificate-authority: {error}"))?;
    let Some((certificate, key)) = &options.client else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let pair = certified_key(certificate, key)
        .map_err(|error| format!("--kubelet-client-certificate, --kubelet-client-key: {error}"))?;
    let shown = SingleCertAndKey::from(rustls::sign::CertifiedKey::clone(&pair));
    Ok(Arc::new(builder.with_client_cert_resolver(Arc::new(shown))))
}

/// A kubelet.
#[derive(Debug)]
pub(crate) struct Kubelet {
    /// How to connect to it.
    pub(crate) peer: Peer,
    /// Whether it takes commands over WebSocket itself.
    pub(crate) takes_websockets: bool,
}

/// The way to all nodes.
#[derive(Debug)]
pub struct Nodes {
    options: KubeletOptions,
    /// The way into the cluster.
    route: Route,
    trust: ArcSwap<Trust>,
    /// TLS to pods and services, whose certificates are for names that nobody knows.
    open: Arc<ClientConfig>,
    tasks: Tasks,
    metrics: Arc<StreamMetrics>,
    seats: Arc<Seats>,
}

impl Nodes {
    /// Reads the files of the options. Connections go by `route` and belong to `tasks`.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn new(options: KubeletOptions, route: Route, tasks: Tasks) -> Result<Self, String> {
        let open = settings(TrustedPeers::Anyone)?.with_no_client_auth();
        Ok(Nodes {
            trust: ArcSwap::from_pointee(Trust::read(&options)?),
            options,
            route,
            open: Arc::new(open),
            tasks,
            metrics: Arc::default(),
            seats: Seats::new(stream_connections()),
        })
    }

    /// Reads the files again when they change.
    pub fn follow(self: &Arc<Self>, reload: &mut Reload) {
        let (certificate, key) = self.options.client.clone().unzip();
        let files = [certificate, key, self.options.authority.clone()];
        let nodes = self.clone();
        reload.watch(
            "kubelet client certificate",
            files.into_iter().flatten(),
            move || {
                nodes.trust.store(Arc::new(Trust::read(&nodes.options)?));
                Ok(())
            },
        );
    }

    /// What is counted of streams, for `/metrics`.
    pub fn metrics(&self) -> Arc<dyn Collect> {
        self.metrics.clone()
    }

    /// Where streams are counted.
    pub(crate) fn counts(&self) -> &Arc<StreamMetrics> {
        &self.metrics
    }

    /// Whether names of nodes mean nothing here: a proxy resolves them.
    pub(crate) fn are_behind_proxy(&self) -> bool {
        self.route.is_proxied()
    }

    /// The tasks that connections belong to.
    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The kubelet of a node, for one connection of a user. `verified`: its certificate has to be good, where an authority is known.
    ///
    /// # Errors
    /// 404 when there is no such node, 500 when it has no address, 429 when there are too many connections.
    pub(crate) async fn kubelet(
        &self,
        client: &Client,
        user: &User,
        name: &str,
        verified: bool,
    ) -> Result<Kubelet, ApiError> {
        let node = client.find(("", "nodes"), "", name).await?;
        let node = node.ok_or_else(|| ApiError::not_found(&GroupResource::new("", "nodes"), name))?;
        let host = address(&node, &self.options.preferred_address_types)?;
        let port = node.int("status.daemonEndpoints.kubeletEndpoint.Port");
        let port = port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port != 0);
        let trust = self.trust.load();
        let tls = if verified {
            &trust.verified
        } else {
            &trust.unverified
        };
        Ok(Kubelet {
            peer: Peer {
                host,
                port: port.unwrap_or(self.options.port),
                tls: Some(tls.clone()),
                permitted: |_| true,
                route: self.route.clone(),
                within: self.options.timeout,
                seat: Some(self.seats.take(&user.name)?),
            },
            takes_websockets: node
                .strings("status.declaredFeatures")
                .any(|name| name == TAKES_WEBSOCKETS),
        })
    }

    /// A server at an address of the cluster, for one connection of a user: a pod's, or one that a node serves beside its kubelet.
    ///
    /// # Errors
    /// 429 when there are too many connections.
    pub(crate) fn server(
        &self,
        user: &User,
        scheme: &str,
        host: String,
        port: u16,
    ) -> Result<Peer, ApiError> {
        Ok(Peer {
            host,
            port,
            tls: (scheme == "https").then(|| self.open.clone()),
            permitted: is_global_unicast,
            route: self.route.clone(),
            within: Duration::from_secs(30),
            seat: Some(self.seats.take(&user.name)?),
        })
    }
}

/// The first address of the most preferred type that a node has.
fn address(node: &Value, types: &[String]) -> Result<String, ApiError> {
    let addresses = node.list("status.addresses");
    let of_type = |kind: &String| addresses.iter().find(|address| address.text("type") == kind);
    if let Some(address) = types.iter().find_map(of_type) {
        return Ok(address.text("address").to_string());
    }
    let known: Vec<String> = addresses
        .iter()
        .map(|address| format!("{{{} {}}}", address.text("type"), address.text("address")))
        .collect();
    Err(ApiError::raw_internal(format!(
        "no preferred addresses found; known addresses: [{}]",
        known.join(" ")
    )))
}

/// Whether an address may be one of a pod's or node's server: as Go's `IsGlobalUnicast`, so neither this machine's own nor one that no
/// router passes on.
pub(crate) fn is_global_unicast(address: IpAddr) -> bool {
    if is_forbidden(address) {
        return false;
    }
    match address.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_link_local()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || ip.is_unicast_link_local())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_most_preferred_address_counts() {
        let check = |types: &[&str], expected: Result<&str, &str>| {
            let node = json!({"status": {"addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "10.0.0.2"},
                {"type": "Hostname", "address": "n1"},
            ]}});
            let types: Vec<String> = types.iter().map(|kind| kind.to_string()).collect();
            let got = address(&node, &types).map_err(|error| error.message().to_string());
            assert_eq!(
                got,
                expected.map(str::to_string).map_err(str::to_string),
                "{types:?}"
            );
        };
        check(&["Hostname", "InternalIP"], Ok("n1"));
        check(&["ExternalIP", "InternalIP"], Ok("10.0.0.1"));
        check(
            &["ExternalIP"],
            Err(
                "no preferred addresses found; known addresses: [{InternalIP 10.0.0.1} {InternalIP 10.0.0.2} {Hostname n1}]",
            ),
        );
    }

    #[test]
    fn addresses_that_are_no_servers_are_refused() {
        let check = |address: &str, expected: bool| {
            assert_eq!(is_global_unicast(address.parse().unwrap()), expected, "{address}");
        };
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "fd00:ec2::254",
        ] {
            check(address, false);
        }
        for address in ["10.0.0.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            check(address, true);
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let check = |options: KubeletOptions, expected: &str| {
            let error = Nodes::new(options, Route::Direct, Tasks::new())
                .map(|_| ())
                .expect_err("a fault");
            assert!(error.starts_with(expected), "{error}");
        };
        let absent = PathBuf::from("/absent");
        let authority = KubeletOptions {
            authority: Some(absent.clone()),
            ..KubeletOptions::default()
        };
        check(authority, "--kubelet-certificate-authority: /absent: ");
        let client = KubeletOptions {
            client: Some((absent.clone(), absent)),
            ..KubeletOptions::default()
        };
        check(client, "--kubelet-client-certificate, --kubelet-client-key: ");
    }
}
