//! Controllers of CRDs: names, conditions, and deletion.
//!
//! One task follows the CRD cache and looks at each CRD that changed; a CRD that is being deleted gets a task of its own,
//! because its instances may take their time. Serving does not wait for any of this: the index has decided about a new CRD's
//! names before its create was acknowledged, the controller only writes that down.
//! Mirrors `pkg/controller/{status,establish,nonstructuralschema,apiapproval,finalizer}`.

mod conditions;
mod finalize;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use generic_server::admission::AdmissionChain;
use generic_server::registry::store::Written;
use generic_server::registry::{Entry, Event, Reflector};
use generic_server::request::Authorized;
use generic_server::spawn::Tasks;
use generic_server::write::{WriteCall, record_own_write};
use machinery::{ApiError, meta};
use parking_lot::Mutex;
use serde_json::Value;

use crate::crd::status;
use crate::crd::strategy::CrdStatusStrategy;
use crate::definition::Definition;
use crate::server::ApiExtensions;

/// How long a CRD that could not be written is left alone.
const RETRY: Duration = Duration::from_secs(1);

/// CRDs whose instances are being deleted, by uid.
#[derive(Debug, Default)]
struct Finalizing(Mutex<HashSet<String>>);

impl ApiExtensions {
    /// Reads the CRDs and begins to look after them; from here on they are served. The tasks end with the group.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(self: &Arc<Self>, tasks: &Tasks) -> Result<(), ApiError> {
        self.crd_store()?.as_system().cache().await?;
        self.index();
        tasks.spawn("crd-controllers", run(self.clone(), tasks.clone()));
        Ok(())
    }
}

async fn run(server: Arc<ApiExtensions>, tasks: Tasks) {
    let finalizing = Arc::new(Finalizing::default());
    let mut idle = tokio::time::interval(server.deps.limits.idle_check);
    idle.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if let Err(error) = follow(&server, &tasks, &finalizing, &mut idle).await {
            tracing::warn!(error = %error, "the CRDs cannot be followed");
            tokio::time::sleep(RETRY).await;
        }
    }
}

async fn follow(
    server: &Arc<ApiExtensions>,
    tasks: &Tasks,
    finalizing: &Arc<Finalizing>,
    idle: &mut tokio::time::Interval,
) -> Result<(), ApiError> {
    let mut reflector = Reflector::new(server.crd_store()?.clone());
    let mut events = Vec::new();
    loop {
        tokio::select! {
            event = reflector.next(&mut events) => {
                if let Event::Failed(error) = event {
                    return Err(error);
                }
                events.clear();
                // The index finds the changes itself.
                server.index();
            }
            () = server.wake.notified() => {
                for name in server.take_todo() {
                    look_at(server, tasks, finalizing, &name).await;
                }
            }
            _ = idle.tick() => drop_idle(server),
        }
    }
}

pub(crate) fn drop_idle(server: &ApiExtensions) {
    let index = server.index();
    let slots = index
        .all()
        .flat_map(|d| d.serving.slots.iter().chain([&d.serving.reader]));
    let dropped = slots.filter(|slot| slot.drop_idle()).count();
    if dropped > 0 {
        tracing::debug!(schemas = dropped, "dropped unused schemas");
    }
}

async fn look_at(server: &Arc<ApiExtensions>, tasks: &Tasks, finalizing: &Arc<Finalizing>, name: &Arc<str>) {
    let index = server.index();
    let Some(definition) = index.find_by_name(name) else {
        server.reconsider_group_of(name);
        return;
    };
    let outcome = if definition.finalizing {
        let uid = definition.facts.uid.clone();
        if finalizing.0.lock().insert(uid.clone()) {
            let (server, name, finalizing) = (server.clone(), name.clone(), finalizing.clone());
            tasks.spawn("crd-finalizer", async move {
                finalize::until_gone(&server, &name, &uid).await;
                finalizing.0.lock().remove(&uid);
            });
        }
        Ok(())
    } else {
        server.reconcile(definition).await
    };
    if let Err(error) = outcome {
        tracing::warn!(crd.name = %name, error = %error, "the status of a CRD cannot be written");
        let (server, name) = (server.clone(), name.clone());
        tasks.spawn("crd-retry", async move {
            tokio::time::sleep(RETRY).await;
            server.enqueue([name]);
        });
    }
}

impl ApiExtensions {
    /// Has another look at the CRDs of a group that wait for names, now that some have been freed.
    fn reconsider_group_of(&self, name: &str) {
        let group = name.split_once('.').map(|(_, group)| group).unwrap_or_default();
        let index = self.index();
        let Some(group) = index.groups.get(group) else {
            return;
        };
        let waiting = group
            .crds
            .values()
            .filter(|d| !d.names_accepted && *d.name != *name);
        self.enqueue(waiting.map(|d| d.name.clone()));
    }

    /// Writes the decisions about a CRD to its status.
    async fn reconcile(&self, definition: &Arc<Definition>) -> Result<(), ApiError> {
        let reconciled = &definition.serving.reconciled;
        // With its names it depends on no other CRD.
        if definition.names_accepted && reconciled.load(Ordering::Acquire) == definition.entry.revision.0 {
            return Ok(());
        }
        let mut crd = definition.entry.value();
        let was_established = status::is_true(&crd, "Established");
        let old_status = crd.get("status").cloned();
        let index = self.index();
        let claims = index.claims_against(&definition.group, &definition.plural);
        let freed = conditions::reconcile(&mut crd, &claims);
        let revision = if crd.get("status") == old_status.as_ref() {
            Some(definition.entry.revision)
        } else {
            let establishes = !was_established && status::is_true(&crd, "Established");
            // A lost race is a change, and a change is looked at.
            let stored = self.write_status(&definition.entry, old_status, crd).await?;
            if freed {
                self.reconsider_group_of(&definition.name);
            }
            if stored.is_some() && establishes {
                tracing::info!(target: "operator", crd = %definition.name, "a custom resource is served");
            }
            stored.map(|entry| entry.revision)
        };
        if let Some(revision) = revision {
            reconciled.store(revision.0, Ordering::Release);
        }
        Ok(())
    }

    /// Stores a CRD as it was read, with this server's status. `None` when another writer was faster.
    /// `old_status` is the one that was read.
    async fn write_status(
        &self,
        read: &Arc<Entry>,
        old_status: Option<Value>,
        mut crd: Value,
    ) -> Result<Option<Arc<Entry>>, ApiError> {
        let (system, no_admission) = (Authorized::system(), AdmissionChain::default());
        let call = WriteCall {
            strategy: &CrdStatusStrategy,
            subresource: "status",
            ..WriteCall::internal(&self.crds, &system, &no_admission, "")
        };
        // The list of versions is a single owned field, and the same before and after.
        let versions = crd.pointer_mut("/spec/versions").map(Value::take);
        let mut old = crd.clone();
        if let Some(map) = old.as_object_mut() {
            match old_status {
                Some(status) => map.insert("status".into(), status),
                None => map.remove("status"),
            };
        }
        record_own_write(&call, &old, &mut crd);
        if let (Some(versions), Some(spec)) =
            (versions, crd.pointer_mut("/spec").and_then(Value::as_object_mut))
        {
            spec.insert("versions".into(), versions);
        }
        meta::set(&mut crd, "resourceVersion", Value::Null);
        match self.crd_store()?.as_system().replace(read, &crd, None).await? {
            Written::Stored(entry) => {
                self.index();
                Ok(Some(entry))
            }
            Written::Lost(_) => Ok(None),
        }
    }
}
