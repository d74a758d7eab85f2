//! Opens the stores of resources: the one place that says which engine, which form of values and which encryption a resource
//! has. Every server gets the same one.

use std::sync::Arc;

use storage::Store;

use crate::registry::cache::{JsonCodec, StorageCodec};
use crate::registry::store::{ObjectStore, StoreConfig};

/// What stores are opened with. Clones are the same.
#[derive(Debug, Clone)]
pub struct StorageFactory {
    engine: Arc<dyn Store>,
}

impl StorageFactory {
    /// Everything in one engine.
    pub fn new(engine: Arc<dyn Store>) -> Self {
        StorageFactory { engine }
    }

    /// The engine of resources that have none of their own.
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.engine
    }

    /// The store of a resource, with values as plain JSON. Nothing is read until it is used.
    pub fn open(&self, config: StoreConfig) -> Arc<ObjectStore> {
        self.open_with(config, Arc::new(JsonCodec))
    }

    /// The store of a resource whose values have another form.
    pub fn open_with(&self, config: StoreConfig, codec: Arc<dyn StorageCodec>) -> Arc<ObjectStore> {
        ObjectStore::with_codec(self.engine.clone(), config, codec)
    }
}
