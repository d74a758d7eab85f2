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

mod access;
pub mod backup;
mod compose;
mod config;
mod dynamic_admission;
mod error;
pub mod logging;
mod options;
mod readiness;
mod reload;
pub mod signals;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use generic_server::chain::Chain;
use generic_server::directory::Directory;
use generic_server::lifecycle::{Lifecycle, Timeline};
use generic_server::pki::Pki;
use generic_server::serve::Server;
use generic_server::spawn::Tasks;
use storage::Store;

pub use error::StartError;
pub use options::{AuthorizationMode, LogFormat, Options, StorageBackend, StorageMediaType};

/// How long background tasks may take to end.
const TASK_PATIENCE: Duration = Duration::from_secs(5);

/// A running control plane. Dropped without [`ControlPlane::stop`], its listener and tasks end when the runtime does.
#[derive(Debug)]
pub struct ControlPlane {
    address: SocketAddr,
    pki: Arc<Pki>,
    chain: Arc<Chain>,
    directory: Arc<Directory>,
    /// The first is everybody's, the others are of single resources.
    engines: Vec<Arc<dyn Store>>,
    lifecycle: Lifecycle,
    server: Arc<Server>,
    tasks: Tasks,
    timeline: Timeline,
    kubeconfig_file: Option<PathBuf>,
    reload: Arc<reload::Reload>,
}

/// Sets up a control plane in process. Starts from the options of the command line; tests want [`Builder::in_memory`].
#[derive(Debug, Clone)]
pub struct Builder {
    options: Options,
}

impl ControlPlane {
    /// A builder with the options of `kube-apiserver` without flags.
    pub fn builder() -> Builder {
        Builder {
            options: Options::defaults(),
        }
    }

    /// Opens the store, makes what is missing, listens, and is ready when it returns.
    ///
    /// # Errors
    /// With what to do about it: a data directory that is locked, read-only, full or of a newer version, a port in use, a
    /// file that does not hold what it should.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        compose::start(options).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL to reach it at from this machine.
    pub fn url(&self) -> String {
        compose::local_url(self.address)
    }

    /// A kubeconfig for the administrator, with everything embedded. Its certificates are of the server's own CA: with a serving
    /// certificate or a client CA of somebody else's it does not work.
    pub fn kubeconfig(&self) -> String {
        self.pki.kubeconfig(&self.url())
    }

    /// The certificate authority that signed the serving certificate, PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.pki.ca.certificate
    }

    /// The chain: requests may be handed to it without a socket.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// The object stores of all its servers.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The engine below (of what has none of its own).
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.engines[0]
    }

    /// Looks at the files that are read again while it runs, now rather than within a minute. Names what has changed and was
    /// taken over.
    pub async fn reload(&self) -> Vec<&'static str> {
        self.reload.look().await
    }

    /// What to tell a person who started it at a terminal.
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

    /// Ends it in order: not ready, no new requests, those in flight finish, watches end, the store is closed.
    pub async fn stop(self) {
        self.lifecycle.shut_down(self.timeline).await;
        self.server.drain(Duration::from_secs(2)).await;
        self.tasks.stop(TASK_PATIENCE).await;
        for engine in &self.engines {
            engine.shutdown().await;
        }
    }
}

impl Builder {
    /// Keeps everything in memory, on a free port of the loopback address.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.options.storage_backend = Some(StorageBackend::Memory);
        self.on_free_port()
    }

    /// Listens on a free port of the loopback address.
    #[must_use]
    pub fn on_free_port(mut self) -> Self {
        self.options.bind_address = std::net::Ipv4Addr::LOCALHOST.into();
        self.options.secure_port = 0;
        self
    }

    /// Keeps its data in this directory.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.options.data_dir = Some(dir.into());
        self
    }

    /// Changes any other option.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Starts it. See [`ControlPlane::start`].
    ///
    /// # Errors
    /// As there.
    pub async fn start(self) -> Result<ControlPlane, StartError> {
        ControlPlane::start(self.options).await
    }
}
