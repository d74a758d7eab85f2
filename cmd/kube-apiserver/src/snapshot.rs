//! Forks of a running plane, and states that it can be put back to.
//!
//! A snapshot is a frozen store with the states of the caches over it, and the keys, users and options of its plane. It belongs to no
//! runtime: it may outlive the plane, and be forked in another runtime, as tests do. docs/planes.md says what a fork has and what it
//! costs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use generic_server::ApiError;
use machinery::{GroupResource, meta};
use storage::{Revision, StorageError};

use crate::origin::Origin;
use crate::{Builder, ControlPlane, StartError};

/// How long a plane that was put back waits until the custom resources of then are served again.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);

/// A state of a plane that stays as it is. Clones are the same.
#[derive(Clone)]
pub struct Snapshot(Arc<Origin>);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("store", &self.0.store).finish()
    }
}

impl Snapshot {
    /// The newest `resourceVersion` in it.
    pub fn revision(&self) -> u64 {
        self.0.store.revision().0
    }

    /// A plane that begins with this state and goes its own way. Every fork of one snapshot costs the same, however many objects there are.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn fork(&self) -> Result<ControlPlane, StartError> {
        self.builder().start().await
    }

    /// A builder of such planes, with the options of the plane that the snapshot is of: for layers, objects and options of a fork's own. Where
    /// a fork keeps its objects, keys and certificates is not for options to say: they are in memory.
    pub fn builder(&self) -> Builder {
        Builder::of(self.0.options.clone(), self.0.layers.clone(), self.0.clone())
    }
}

impl ControlPlane {
    /// An independent plane in memory with the same objects, revisions and history, on a free port. It has the same authorities and keys,
    /// so the credentials of this plane's clients are good for it, too.
    ///
    /// # Errors
    /// As [`ControlPlane::snapshot`] and [`ControlPlane::start`].
    pub async fn fork(&self) -> Result<ControlPlane, StartError> {
        self.snapshot().await?.fork().await
    }

    /// The newest state, with its history: at least every write that was acknowledged before, and no half of a transaction. What is kept in
    /// memory is shared; a store on disk is copied into memory once.
    ///
    /// # Errors
    /// When the plane is stopped or its store fails, and when objects are kept in etcd.
    pub async fn snapshot(&self) -> Result<Snapshot, StartError> {
        let running = self.guard.running();
        if running.lifecycle().is_stop_requested() {
            return Err(StartError::Fork(StorageError::Unavailable {
                message: "it is being stopped".into(),
                source: None,
            }));
        }
        // Before the store is frozen, so that each of these states is in its log.
        let stores = self.directory.all();
        let seeds = self.source.storage.seeds(stores.values().map(|one| &one.store));
        let store = self.engine().freeze().await.map_err(StartError::Fork)?;
        Ok(Snapshot(Arc::new(Origin {
            store,
            seeds,
            pki: self.pki.clone().in_memory_copy()?,
            tokens: self.tokens.copy(),
            same: self.source.same.clone(),
            options: self.source.options.clone(),
            layers: self.source.layers.clone(),
        })))
    }

    /// Makes all objects what they were: one transaction, of which watches get the differences as events. `resourceVersion`s go on from the
    /// newest: what was changed, removed or added meanwhile has a new one, also in its old state. Takes snapshots of this plane, and of those
    /// that it was forked from. Gives the new `resourceVersion`.
    ///
    /// # Errors
    /// When the snapshot is of another plane, and when the plane is stopped or its store fails.
    pub async fn reset_to(&self, snapshot: &Snapshot) -> Result<u64, StartError> {
        let reset = self.engine().reset(&snapshot.0.store).await;
        let Revision(revision) = reset.map_err(StartError::Reset)?;
        // The snapshot may be of a plane with another port, which an object names.
        kube_apiserver::bootstrap_fork(&self.source.facts)
            .await
            .map_err(StartError::Bootstrap)?;
        self.wait_until_served().await.map_err(StartError::Bootstrap)?;
        Ok(revision)
    }

    /// Waits until the custom resources that are defined are those that are served.
    async fn wait_until_served(&self) -> Result<(), ApiError> {
        let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        let Some(definitions) = self.directory.get(&definitions) else {
            return Ok(());
        };
        let mut wanted = HashSet::new();
        for entry in definitions.store.as_system().fresh().await?.objects.values() {
            let definition = entry.value();
            if is_established(&definition) {
                let resource = meta::dig_str(&definition, &["spec", "names", "plural"]);
                let group = meta::dig_str(&definition, &["spec", "group"]);
                wanted.insert(GroupResource::new(group, resource));
            }
        }
        let mut changes = self.directory.changes();
        let served = async {
            while !wanted
                .iter()
                .all(|resource| self.directory.get(resource).is_some())
            {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        // One that cannot be served after all is no reason to fail: its conditions say why.
        let _ = tokio::time::timeout(SERVED_TIMEOUT, served).await;
        Ok(())
    }
}

fn is_established(definition: &serde_json::Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let established = |one: &serde_json::Value| one["type"] == "Established" && one["status"] == "True";
    conditions.is_some_and(|all| all.iter().any(established))
}
