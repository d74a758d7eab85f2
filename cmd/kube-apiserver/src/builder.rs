//! Setting up a control plane in process, in a test or a product.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use generic_server::chain::{OuterLayers, OuterService};
use generic_server::{Request, Response};
use serde_json::Value;
use tower::{Layer, Service};

use crate::origin::Origin;
use crate::{ControlPlane, Options, StartError, StorageBackend, manifests, stages};

/// Sets up a control plane in process. Starts from the options of the command line; tests want [`Builder::in_memory`].
#[derive(Debug, Clone)]
pub struct Builder {
    options: Options,
    layers: OuterLayers,
    objects: Vec<Value>,
    manifests: Vec<PathBuf>,
    /// What it begins with, when it is a fork.
    origin: Option<Arc<Origin>>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            options: Options::defaults(),
            layers: OuterLayers::default(),
            objects: Vec::new(),
            manifests: Vec::new(),
            origin: None,
        }
    }
}

impl Builder {
    /// Of a fork.
    pub(crate) fn of(options: Options, layers: OuterLayers, origin: Arc<Origin>) -> Self {
        Builder {
            options,
            layers,
            objects: Vec::new(),
            manifests: Vec::new(),
            origin: Some(origin),
        }
    }

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

    /// Keeps its objects in etcd: URLs such as `http://127.0.0.1:2379`.
    #[must_use]
    pub fn etcd(mut self, servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.storage_backend = None;
        self.options.etcd_servers = servers.into_iter().map(Into::into).collect();
        self
    }

    /// Runs these controllers alone, by upstream's names ([`kube_apiserver::CONTROLLERS`]); none of them for an empty list.
    #[must_use]
    pub fn controllers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.controllers = names.into_iter().map(Into::into).collect();
        if self.options.controllers.is_empty() {
            self.options.controllers.push("-*".into());
        }
        self
    }

    /// Applies these objects before it is handed over. See [`ControlPlane::apply`].
    #[must_use]
    pub fn objects(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.objects.extend(objects);
        self
    }

    /// Applies the objects of a file or directory before it is handed over. See [`crate::manifests::read`].
    #[must_use]
    pub fn manifests(mut self, path: impl Into<PathBuf>) -> Self {
        self.manifests.push(path.into());
        self
    }

    /// Changes any other option.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self.origin = self.origin.map(Origin::with_other_options);
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

    /// Without the layers so far: a fork has those of the plane that it was forked from, otherwise.
    #[must_use]
    pub fn without_layers(mut self) -> Self {
        self.layers = OuterLayers::default();
        self
    }

    /// Starts it. See [`ControlPlane::start`].
    ///
    /// # Errors
    /// As there, and when a manifest cannot be read or one of the objects is refused.
    pub async fn start(self) -> Result<ControlPlane, StartError> {
        let mut objects = self.objects;
        for path in &self.manifests {
            objects.extend(manifests::read(path)?);
        }
        let plane = stages::start(self.options, self.layers, self.origin.as_deref()).await?;
        plane.apply(objects).await?;
        Ok(plane)
    }
}
