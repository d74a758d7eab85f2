//! What a fork begins with, and what a plane keeps of its own start for its forks.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use generic_server::authn::issued::IssuedTokens;
use generic_server::chain::OuterLayers;
use generic_server::discovery::GroupDiscovery;
use generic_server::pki::Pki;
use generic_server::registry::{Seeds, StorageFactory};
use kube_apiserver::Facts;
use storage::FrozenStore;

use crate::{Options, StorageBackend};

/// What a fork begins with.
pub(crate) struct Origin {
    pub(crate) store: Arc<dyn FrozenStore>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) pki: Arc<Pki>,
    pub(crate) tokens: IssuedTokens,
    /// What follows from the options of its plane; `None` for a fork that has others.
    pub(crate) same: Option<SameOptions>,
    pub(crate) options: Options,
    pub(crate) layers: OuterLayers,
}

/// What a fork with the same options need not make again.
#[derive(Clone)]
pub(crate) struct SameOptions {
    /// The discovery of the built-in groups. The first objects of a cluster are all there, too.
    pub(crate) discovery: Arc<Vec<Arc<GroupDiscovery>>>,
}

impl Origin {
    /// The same for a fork with other options.
    pub(crate) fn with_other_options(self: Arc<Self>) -> Arc<Self> {
        Arc::new(Origin {
            store: self.store.clone(),
            seeds: self.seeds.clone(),
            pki: self.pki.clone(),
            tokens: self.tokens.copy(),
            same: None,
            options: self.options.clone(),
            layers: self.layers.clone(),
        })
    }
}

impl fmt::Debug for SameOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SameOptions")
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// What a plane keeps of its start, for its forks.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) options: Options,
    pub(crate) layers: OuterLayers,
    pub(crate) storage: StorageFactory,
    pub(crate) facts: Facts,
    /// `None` while some of the first objects could not be written.
    pub(crate) same: Option<SameOptions>,
}

/// The options of a fork: nothing that it would share with the plane that it was forked from is written by both.
pub(crate) fn options_of_fork(mut options: Options) -> Options {
    options.storage_backend = Some(StorageBackend::Memory);
    options.data_dir = None;
    options.etcd_servers.clear();
    options.etcd_servers_overrides.clear();
    options.secure_port = 0;
    let log = &mut options.audit.log.audit_log_path;
    if log.as_deref().is_some_and(|path| path != Path::new("-")) {
        *log = None;
    }
    options
}
