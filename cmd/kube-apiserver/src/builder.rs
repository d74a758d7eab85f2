//! Setting up a control plane in process, in a test or a product.

use std::convert::Infallible;
use std::path::PathBuf;

use generic_server::chain::{OuterLayers, OuterService};
use generic_server::{Request, Response};
use tower::{Layer, Service};

use crate::{ControlPlane, Options, StartError, StorageBackend, stages};

/// Sets up a control plane in process. Starts from the options of the command line; tests want [`Builder::in_memory`].
#[derive(Debug, Clone)]
pub struct Builder {
    options: Options,
    layers: OuterLayers,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            options: Options::defaults(),
            layers: OuterLayers::default(),
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

    /// Puts a layer around the handler chain, inside those that were given before. It sees every request before anything of the
    /// server does, and every answer after all of it.
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<OuterService> + Send + Sync + 'static,
        L::Service: Service<Request, Response = Response, Error = Infallible> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.layers.push(layer);
        self
    }

    /// Starts it. See [`ControlPlane::start`].
    ///
    /// # Errors
    /// As there.
    pub async fn start(self) -> Result<ControlPlane, StartError> {
        stages::start(self.options, self.layers).await
    }
}
