//! The composed control plane: aggregator, then kube-apiserver, then apiextensions, over one store, behind one chain.
//!
//! The binary is a thin shell around it. As a library it runs inside a test or a product, many per process:
//!
//! ```no_run
//! # async fn example() -> Result<(), control_plane::StartError> {
//! let plane = control_plane::ControlPlane::builder().in_memory().start().await?;
//! let kubeconfig = plane.kubeconfig();
//! // ... any Kubernetes client ...
//! plane.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! Clients are users with whatever groups; objects are there from the start:
//!
//! ```no_run
//! use control_plane::{ControlPlane, User};
//!
//! # async fn example() -> Result<(), control_plane::StartError> {
//! let plane = ControlPlane::builder().in_memory().manifests("config/crd").start().await?;
//! let user = User { name: "alice".into(), groups: vec!["dev".into()], ..User::default() };
//! plane.write_kubeconfig("alice.kubeconfig", &user)?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `kube`, `ControlPlane::client` is a client of kube-rs without a socket; `docs/testing-operators.md` has tests with it.

pub mod backup;
mod builder;
pub mod check;
pub mod cli;
mod config;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod data_tests;
pub mod envtest;
mod error;
mod guard;
#[cfg(feature = "kube")]
mod kube_client;
pub mod kubeconfig;
pub mod logging;
pub mod manifests;
mod options;
mod origin;
mod profiling;
pub mod progress;
mod replicas;
pub mod signals;
mod snapshot;
mod stages;
mod ui;
mod users;
mod verbosity;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use envtest::StandIn;
use generic_server::authn::issued::IssuedTokens;
use generic_server::chain::{Chain, OuterLayers, OuterService};
use generic_server::directory::Directory;
use generic_server::pki::Pki;
use generic_server::reload::Reload;
use storage::Store;

use guard::Guard;
use origin::Source;

pub use builder::Builder;
pub use error::StartError;
pub use generic_server::request::User;
pub use logging::LogFormat;
pub use options::{
    AuditFlags, AuditLogFlags, AuditLogFormat, AuditMode, AuditVersion, AuditWebhookFlags,
    AuthenticationFlags, AuthorizationFlags, AuthorizationMode, CommandLine, KubeletFlags, MetricsFlags,
    Options, OwnTokenFlags, StorageBackend, StorageMediaType, SubjectAccessReviewVersion, TlsFlags,
    TokenReviewVersion, UnservedFlags,
};
pub use snapshot::Snapshot;
pub use users::administrator;

/// A running control plane. Dropped without [`ControlPlane::stop`], it stops in the same order in the background: no connection is accepted
/// any more, and a plane that opens the same data directory in this process waits for the end. With its runtime it ends at once.
#[derive(Debug)]
pub struct ControlPlane {
    guard: Guard,
    tokens: Arc<IssuedTokens>,
    pki: Arc<Pki>,
    directory: Arc<Directory>,
    kubeconfig_file: Option<PathBuf>,
    reload: Arc<Reload>,
    stand_in: Option<StandIn>,
    /// What its forks begin with.
    source: Source,
}

impl ControlPlane {
    /// A builder with the options of `kube-apiserver` without flags.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens the store, creates missing keys and objects, listens, and is ready when it returns.
    ///
    /// # Errors
    /// With what to do about it: a data directory that is locked, read-only, full or of a newer version, a port in use, a
    /// file that has invalid content.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        stages::start(options, OuterLayers::default(), None).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.guard.running().address()
    }

    /// The URL to reach it at from this machine.
    pub fn url(&self) -> String {
        local_url(self.address())
    }

    /// A kubeconfig for the administrator, with everything embedded. Its certificates are of the server's own CA: with a serving
    /// certificate or client CA given by a flag it does not work.
    pub fn kubeconfig(&self) -> String {
        self.pki.kubeconfig(&self.url())
    }

    /// The certificate authority that signed the serving certificate, PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.pki.ca.certificate
    }

    /// The chain: requests may be handed to it without a socket.
    pub fn chain(&self) -> &Arc<Chain> {
        self.guard.running().chain()
    }

    /// The chain with the layers of [`Builder::layer`] around it, as connections see it.
    pub fn service(&self) -> OuterService {
        self.guard.running().service()
    }

    /// The object stores of all its servers.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The engine below (of resources without one of their own).
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.guard.running().engines()[0]
    }

    /// Looks at the files that are read again while it runs, now rather than within a minute. Names what has changed and was
    /// taken over.
    pub async fn reload(&self) -> Vec<&'static str> {
        self.reload.look().await
    }

    /// The message for a person who started it at a terminal.
    pub fn greeting(&self) -> String {
        let ready = format!("The control plane is ready at {}.\n", self.url());
        match &self.kubeconfig_file {
            None => ready,
            Some(file) => {
                let file = file.display();
                format!(
                    "{ready}The administrator's kubeconfig is {file}. Try:\n\n    kubectl --kubeconfig {file} get namespaces\n"
                )
            }
        }
    }

    /// Resolves when the stand-in for etcd that it keeps its objects for has ended; never without one. The server goes on: this is for the
    /// process, which nobody would stop any more.
    pub async fn abandoned(&self) {
        match &self.stand_in {
            Some(stand_in) => stand_in.ended().cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Ends it in order: not ready, no new requests, those in flight finish, watches end, the store is closed.
    pub async fn stop(self) {
        self.guard.stop().await;
    }
}

/// Logs that the process stops, and why.
pub fn stopping(reason: &str) {
    tracing::info!(target: logging::OPERATOR, reason, "kube-apiserver stops");
}

/// The URL of a listening address, from this machine. One that stands for all addresses takes IPv4 too.
fn local_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}
