//! Opens the stores of resources: the one place that says which engine, which form of values and which encryption a resource
//! has. Every server gets the same one.

use std::collections::HashMap;
use std::sync::Arc;

use machinery::GroupResource;
use storage::Store;

use crate::encryption::Encryption;
use crate::registry::budget::Budget;
use crate::registry::cache::{JsonCodec, StorageCodec};
use crate::registry::config::StoreConfig;
use crate::registry::encrypted::EncryptedCodec;
use crate::registry::seeds::Seeds;
use crate::registry::store::ObjectStore;

/// The parts that stores are opened with. Clones are the same.
#[derive(Debug, Clone)]
pub struct StorageFactory {
    engine: Arc<dyn Store>,
    /// Engines of single built-in resources. The resource `*` stands for all of a group.
    overrides: HashMap<GroupResource, Arc<dyn Store>>,
    /// Encryption at rest.
    encryption: Option<Arc<Encryption>>,
    /// The feature gate `AllowUnsafeMalformedObjectDeletion`.
    unsafe_deletion: bool,
    /// The budget of past states, those of all stores together.
    budget: Arc<Budget>,
    /// What the caches of a fork begin with.
    seeds: Option<Arc<Seeds>>,
}

impl StorageFactory {
    /// Everything in one engine.
    pub fn new(engine: Arc<dyn Store>) -> Self {
        StorageFactory {
            engine,
            overrides: HashMap::new(),
            encryption: None,
            unsafe_deletion: false,
            budget: Budget::standard(),
            seeds: None,
        }
    }

    /// With values encrypted as a configuration says (`--encryption-provider-config`).
    #[must_use]
    pub fn with_encryption(self, encryption: Option<Arc<Encryption>>) -> Self {
        StorageFactory { encryption, ..self }
    }

    /// With errors that name objects that cannot be read, and such objects deletable by those who may, as the feature gate
    /// `AllowUnsafeMalformedObjectDeletion` has it (KEP-3926).
    #[must_use]
    pub fn with_unsafe_deletion(self, unsafe_deletion: bool) -> Self {
        StorageFactory {
            unsafe_deletion,
            ..self
        }
    }

    /// With the memory that snapshots and recent events of all resources may take (`--watch-cache-history-mib`).
    #[must_use]
    pub fn with_budget(self, budget: Arc<Budget>) -> Self {
        StorageFactory { budget, ..self }
    }

    /// With the states that caches begin with: the engine has been forked from the one that they are of.
    #[must_use]
    pub fn with_seeds(self, seeds: Option<Arc<Seeds>>) -> Self {
        StorageFactory { seeds, ..self }
    }

    /// The states of the caches of these stores, for a fork. To be taken before the engine is frozen.
    pub fn seeds<'a>(&self, stores: impl IntoIterator<Item = &'a Arc<ObjectStore>>) -> Arc<Seeds> {
        Seeds::of(stores, &self.budget)
    }

    /// With engines of their own for some built-in resources (`--etcd-servers-overrides`).
    #[must_use]
    pub fn with_overrides(self, overrides: HashMap<GroupResource, Arc<dyn Store>>) -> Self {
        StorageFactory { overrides, ..self }
    }

    /// Every engine once, the one of most resources first.
    pub fn engines(&self) -> Vec<Arc<dyn Store>> {
        let mut all = vec![self.engine.clone()];
        for engine in self.overrides.values() {
            if !all.iter().any(|known| Arc::ptr_eq(known, engine)) {
                all.push(engine.clone());
            }
        }
        all
    }

    /// The engine of a built-in resource: its own, its group's, or everybody's.
    pub fn engine_of(&self, resource: &GroupResource) -> &Arc<dyn Store> {
        let group = GroupResource::new(&resource.group, "*");
        let own = self.overrides.get(resource);
        own.or_else(|| self.overrides.get(&group)).unwrap_or(&self.engine)
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
        self.make(self.engine.clone(), config, codec)
    }

    /// The store of a built-in resource, which may have an engine of its own.
    pub fn open_builtin(&self, config: StoreConfig, codec: Arc<dyn StorageCodec>) -> Arc<ObjectStore> {
        self.make(self.engine_of(&config.resource).clone(), config, codec)
    }

    fn make(
        &self,
        engine: Arc<dyn Store>,
        config: StoreConfig,
        inner: Arc<dyn StorageCodec>,
    ) -> Arc<ObjectStore> {
        let codec = self.codec_of(&config.resource, inner);
        let seed = self.seeds.as_ref().and_then(|seeds| seeds.state(&config));
        let budget = self.budget.clone();
        ObjectStore::with_rules(engine, config, codec, self.unsafe_deletion, budget, seed)
    }

    /// The form of a resource's values with the encryption that they have: for what is stored and is no object of the API.
    pub fn codec_of(&self, resource: &GroupResource, inner: Arc<dyn StorageCodec>) -> Arc<dyn StorageCodec> {
        Arc::new(EncryptedCodec {
            inner,
            encryption: self.encryption.clone(),
            resource: resource.clone(),
        })
    }
}
