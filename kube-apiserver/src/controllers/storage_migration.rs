//! Storage version migrations: every object of a resource is written once more, so that it is stored at the version that is
//! the storage version now.
//!
//! A migration goes through: waiting (another one of the same resource runs) -> `Running`, with the CRD's condition
//! `StorageMigrating` -> `status.resourceVersion`, the revision up to which objects are rewritten -> `Succeeded` or `Failed` ->
//! `Running` is false again, and the CRD's `status.storedVersions` hold the storage version alone if the CRD has not changed
//! meanwhile. Each step is written before the next one begins, and an object that was rewritten is newer than
//! `status.resourceVersion`, so that a server that starts in the middle goes on where the last one ended.
//! Mirrors `pkg/controller/storageversionmigrator`.

use std::collections::BTreeMap;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::delegate::Delegate;
use generic_server::registry::{Entry, Event, Reflector};
use machinery::meta;
use machinery::time::Timestamp;
use serde_json::{Value, json};
use tracing::warn;

use super::REST;
use super::api::Api;
use crate::client::{At, Client};
use crate::groups::storagemigration::says;
use crate::json::Json;

/// Upstream's name, which is the field manager of the writes too.
pub(super) const NAME: &str = "storage-version-migrator-controller";
const MIGRATIONS: At<'static> = ("storagemigration.k8s.io", "storageversionmigrations");
const CRDS: At<'static> = ("apiextensions.k8s.io", "customresourcedefinitions");
/// How long, in seconds, a resource may be unknown before its migration fails.
const UNKNOWN_FOR: i64 = 60;

/// Runs migrations; writes go through `api` as any client's would.
pub(super) async fn run(client: Client, api: Arc<dyn Delegate>) {
    let migrator = Migrator {
        client,
        api: Api::new(api),
    };
    loop {
        if let Err(error) = migrator.follow().await {
            warn!(
                error = error.message(),
                "storage version migrations cannot be followed"
            );
        }
        tokio::time::sleep(REST).await;
    }
}

struct Migrator {
    client: Client,
    api: Api,
}

/// How an attempt ended.
enum Outcome {
    Done,
    Failed(String),
}

/// Why an attempt has to be retried later.
struct Retryable(String);

impl From<ApiError> for Retryable {
    fn from(error: ApiError) -> Self {
        Retryable(error.message().to_string())
    }
}

impl Migrator {
    /// Works on the migrations whenever one has changed, and again after a rest while there is more to do.
    async fn follow(&self) -> Result<(), ApiError> {
        let mut reflector = Reflector::new(self.client.resource(MIGRATIONS)?.store);
        let mut changes = Vec::new();
        let mut again = false;
        loop {
            let next = reflector.next(&mut changes);
            let event = match again {
                true => tokio::time::timeout(REST, next).await.ok(),
                false => Some(next.await),
            };
            changes.clear();
            if let Some(Event::Failed(error)) = event {
                return Err(error);
            }
            again = self.sync().await;
        }
    }

    /// Takes every migration as far as it goes. Says whether there is more to do without anybody changing anything.
    async fn sync(&self) -> bool {
        let migrations = match self.client.list_readable(MIGRATIONS, "").await {
            Ok(entries) => entries.iter().map(|entry| entry.value()).collect::<Vec<_>>(),
            Err(error) => {
                warn!(error = error.message(), "cannot list storage version migrations");
                return true;
            }
        };
        let mut by_resource: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
        for migration in migrations {
            let key = |key: &str| migration.text(&format!("spec.resource.{key}")).to_string();
            by_resource
                .entry((key("group"), key("resource")))
                .or_default()
                .push(migration);
        }
        let mut again = false;
        for ((group, resource), migrations) in by_resource {
            if let Err(Retryable(why)) = self.advance((&group, &resource), migrations).await {
                warn!(resource, group, why, "a storage version migration has to wait");
                again = true;
            }
        }
        again
    }

    /// Takes the migrations of one resource as far as they go: one at a time, the oldest first.
    async fn advance(&self, at: At<'_>, mut migrations: Vec<Value>) -> Result<(), Retryable> {
        migrations.sort_by_cached_key(|m| {
            (
                m.text("metadata.creationTimestamp").to_string(),
                meta::name(m).to_string(),
            )
        });
        let (over, mut open): (Vec<Value>, Vec<Value>) = migrations
            .into_iter()
            .partition(|m| says(m, "Succeeded") || says(m, "Failed"));
        for migration in &over {
            if says(migration, "Running") {
                self.finish(at, migration).await?;
            }
        }
        // A migration that runs already goes first.
        open.sort_by_key(|m| !says(m, "Running"));
        for migration in &open {
            if !says(migration, "Running") {
                self.begin(at, migration).await?;
            }
            let outcome = self.migrate(at, migration).await?;
            let name = meta::name(migration);
            let condition = match outcome {
                Outcome::Done => condition("Succeeded", "StorageVersionMigrationSucceeded", ""),
                Outcome::Failed(why) => condition("Failed", "StorageVersionMigrationFailed", &why),
            };
            let ended = self.set(name, condition).await?;
            self.finish(at, &ended).await?;
        }
        Ok(())
    }

    /// Writes a condition that is not there yet; gives the migration as it is then.
    async fn set(&self, name: &str, condition: Value) -> Result<Value, ApiError> {
        let mut after = Value::Null;
        let change = |migration: &mut Value| {
            let status = migration.ensure("status");
            let mut conditions = status.list("conditions").to_vec();
            conditions.retain(|c| c.text("type") != condition.text("type"));
            conditions.push(condition.clone());
            status.put("conditions", conditions);
            after = migration.clone();
            Ok(())
        };
        self.client.update(MIGRATIONS, "", name, "status", change).await?;
        Ok(after)
    }

    async fn begin(&self, at: At<'_>, migration: &Value) -> Result<(), Retryable> {
        let name = meta::name(migration);
        let message = format!("Migration {name} is running");
        self.update_crd(at, &mut |crd| {
            let generation = meta::generation(crd);
            crd_condition(crd, "True", "MigrationRunning", &message, generation);
        })
        .await?;
        let running = condition("Running", "MigrationRunning", "The migration is running");
        self.set(name, running).await?;
        Ok(())
    }

    /// Clears up after a migration that has ended.
    async fn finish(&self, at: At<'_>, migration: &Value) -> Result<(), Retryable> {
        let succeeded = says(migration, "Succeeded");
        self.update_crd(at, &mut |crd| {
            let generation = meta::generation(crd);
            let conditions = crd.list("status.conditions");
            // The versions of the objects of a CRD that has changed meanwhile are not known.
            let unchanged = conditions.iter().any(|c| {
                c.text("type") == "StorageMigrating" && c.int("observedGeneration") == Some(generation)
            });
            let (reason, message) = match (succeeded, unchanged) {
                (true, true) => (
                    "MigrationSucceeded",
                    "The migration has succeeded and the stored versions have been updated",
                ),
                (true, false) => (
                    "MigrationSucceeded",
                    "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
                ),
                (false, _) => ("MigrationFailed", "The migration has failed"),
            };
            let stored = crd.list("spec.versions").iter().find(|v| v.flag("storage"));
            let stored = stored.map(|v| v.text("name").to_string());
            if let Some(stored) = stored.filter(|_| succeeded && unchanged) {
                crd.ensure("status").put("storedVersions", vec![stored]);
            }
            crd_condition(crd, "False", reason, message, generation);
        })
        .await?;
        let mut done = condition("Running", "MigrationCompleted", "Migration completed");
        done.put("status", "False");
        done.put("observedGeneration", meta::generation(migration));
        self.set(meta::name(migration), done).await?;
        Ok(())
    }

    /// Changes the status of the CRD that defines a resource, when one does.
    async fn update_crd(
        &self,
        (group, resource): At<'_>,
        change: &mut (dyn FnMut(&mut Value) + Send),
    ) -> Result<(), ApiError> {
        let name = format!("{resource}.{group}");
        if self.client.find(CRDS, "", &name).await?.is_none() {
            return Ok(());
        }
        let change = |crd: &mut Value| {
            change(crd);
            Ok(())
        };
        match self.client.update(CRDS, "", &name, "status", change).await {
            Err(error) if error.reason() == machinery::Reason::NotFound => Ok(()),
            done => done,
        }
    }

    /// Rewrites the objects.
    async fn migrate(&self, at: At<'_>, migration: &Value) -> Result<Outcome, Retryable> {
        let Ok(registered) = self.client.resource(at) else {
            let created = Timestamp::parse_rfc3339(migration.text("metadata.creationTimestamp"));
            let young = created.is_some_and(|at| Timestamp::now().unix() - at.unix() < UNKNOWN_FOR);
            return match young {
                true => Err(Retryable("the resource is not known".into())),
                false => Ok(Outcome::Failed("resource does not exist in discovery".into())),
            };
        };
        let resource = &registered.resource;
        let verbs = ["update", "patch", "list"];
        if !verbs.iter().all(|verb| resource.verbs.contains(verb)) {
            let gvr = &resource.gvr;
            return Ok(Outcome::Failed(format!(
                "resource \"{}/{}, Resource={}\" does not support discovery operations: [update patch list]",
                gvr.group, gvr.version, gvr.resource
            )));
        }
        let name = meta::name(migration);
        let snapshot = registered.store.as_system().fresh().await?;
        let until: u64 = match migration.text("status.resourceVersion").parse() {
            Ok(until) => until,
            Err(_) => {
                let until = snapshot.revision.0;
                let change = |migration: &mut Value| {
                    migration
                        .ensure("status")
                        .put("resourceVersion", until.to_string());
                    Ok(())
                };
                self.client.update(MIGRATIONS, "", name, "status", change).await?;
                until
            }
        };
        let Some(version) = self.served_version(at, &resource.gvr.version).await? else {
            return Ok(Outcome::Failed("unable to obtain GVR from discovery".into()));
        };
        let objects: Vec<Arc<Entry>> = snapshot
            .objects
            .values()
            .filter(|entry| entry.revision.0 <= until)
            .cloned()
            .collect();
        drop(snapshot);
        for entry in objects {
            if let Some(error) = self.rewrite(at, &version, &resource.gvk.kind, &entry).await? {
                return Ok(Outcome::Failed(format!(
                    "migration encountered unhandled error: {error}"
                )));
            }
        }
        Ok(Outcome::Done)
    }

    /// A version that the resource is served at, best the stored one.
    async fn served_version(&self, at: At<'_>, stored: &str) -> Result<Option<String>, ApiError> {
        let Some(crd) = self.client.find(CRDS, "", &format!("{}.{}", at.1, at.0)).await? else {
            return Ok(Some(stored.to_string()));
        };
        let versions = crd.list("spec.versions");
        let served = || versions.iter().filter(|v| v.flag("served"));
        let best = served().find(|v| v.flag("storage")).or_else(|| served().next());
        Ok(best.map(|v| v.text("name").to_string()))
    }

    /// Has an object stored once more, by an apply without fields. An error in `Ok` is permanent: a retry would fail as well.
    async fn rewrite(
        &self,
        (group, resource): At<'_>,
        version: &str,
        kind: &str,
        entry: &Entry,
    ) -> Result<Option<String>, Retryable> {
        let api_version = match group {
            "" => version.to_string(),
            group => format!("{group}/{version}"),
        };
        let root = if group.is_empty() { "api" } else { "apis" };
        let space = match entry.namespace() {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let path = format!(
            "/{root}/{api_version}/{space}{resource}/{}?fieldManager={NAME}",
            entry.name()
        );
        let object = entry.value();
        // With both of them an object that was written, deleted or recreated is left alone: it is stored as it should be.
        let body = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"uid": meta::uid(&object), "resourceVersion": entry.revision.to_string()}});
        match self.api.apply(&path, &body).await {
            Ok(()) => Ok(None),
            Err(refusal) if refusal.code == Some(http::StatusCode::CONFLICT) => Ok(None),
            Err(refusal) if refusal.is_passing() => Err(Retryable(refusal.message)),
            Err(refusal) => Ok(Some(refusal.message)),
        }
    }
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "lastTransitionTime": Timestamp::now().to_rfc3339(), "reason": reason, "message": message})
}

/// Sets the CRD's condition about migrations.
fn crd_condition(crd: &mut Value, status: &str, reason: &str, message: &str, generation: i64) {
    let mut condition = condition("StorageMigrating", reason, message);
    condition.put("status", status);
    condition.put("observedGeneration", generation);
    let of = crd.ensure("status");
    let mut conditions = of.list("conditions").to_vec();
    conditions.retain(|c| c.text("type") != "StorageMigrating");
    conditions.push(condition);
    of.put("conditions", conditions);
}
