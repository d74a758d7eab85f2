//! The end of a CRD: its instances are deleted, then it goes.

use std::sync::Arc;
use std::time::Duration;

use generic_server::admission::AdmissionChain;
use generic_server::registry::Entry;
use generic_server::registry::cache::Interest;
use generic_server::request::Authorized;
use generic_server::write::{DeleteOptions, WriteCall, delete_collection, now};
use machinery::{ApiError, meta};
use serde_json::Value;

use crate::crd::status::{self, Condition};
use crate::crd::strategy::CLEANUP_FINALIZER;
use crate::definition::Definition;
use crate::server::ApiExtensions;

/// How long instances may take to go before the condition says so.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Between attempts after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// State of CRD finalization. Each step is entered once the one before it holds, and any failure begins again.
enum Step {
    /// It is gone, or another CRD has its name.
    Gone,
    /// The CRD was written in between: read it again.
    Again,
}

/// Deletes a CRD's instances and then the CRD, however long that takes.
pub(super) async fn until_gone(server: &ApiExtensions, name: &str, uid: &str) {
    loop {
        match step(server, name, uid).await {
            Ok(Step::Gone) => return,
            Ok(Step::Again) => {}
            Err(error) => {
                tracing::warn!(crd.name = %name, error = %error, "a CRD cannot be finalized");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

fn terminating(status: &'static str, reason: &str, message: impl Into<String>) -> Condition {
    Condition::new("Terminating", status, reason, message)
}

async fn step(server: &ApiExtensions, name: &str, uid: &str) -> Result<Step, ApiError> {
    let index = server.index();
    let Some(definition) = index.find_by_name(name).filter(|d| d.facts.uid == uid) else {
        return Ok(Step::Gone);
    };
    if !definition.finalizing {
        return Ok(Step::Gone);
    }
    let entry = &definition.entry;
    let progress = terminating(
        "True",
        "InstanceDeletionInProgress",
        "CustomResource deletion is in progress",
    );
    let Some(entry) = write_condition(server, entry, &progress).await? else {
        return Ok(Step::Again);
    };
    // It may have been served before its status said so: the test is whether it ever was.
    let done = if definition.established {
        match delete_instances(server, definition).await {
            Ok(()) => terminating("False", "InstanceDeletionCompleted", "removed all instances"),
            Err(condition) => {
                write_condition(server, &entry, &condition).await?;
                tokio::time::sleep(RETRY).await;
                return Ok(Step::Again);
            }
        }
    } else {
        terminating("False", "NeverEstablished", "resource was never established")
    };
    release(server, &entry, &done).await
}

/// Writes the condition if it has changed; gives the CRD as it is now.
async fn write_condition(
    server: &ApiExtensions,
    entry: &Arc<Entry>,
    condition: &Condition,
) -> Result<Option<Arc<Entry>>, ApiError> {
    let mut crd = entry.value();
    if status::says(&crd, condition) {
        return Ok(Some(entry.clone()));
    }
    let old = crd.get("status").cloned();
    status::set(&mut crd, condition, &now());
    server.write_status(entry, old, crd).await
}

/// Takes our finalizer off; a CRD without any goes.
async fn release(server: &ApiExtensions, entry: &Arc<Entry>, done: &Condition) -> Result<Step, ApiError> {
    let mut crd = entry.value();
    let left: Vec<Value> = meta::finalizers(&crd)
        .filter(|f| *f != CLEANUP_FINALIZER)
        .map(Value::from)
        .collect();
    if left.is_empty() {
        // Whether it was lost is seen in the next round.
        server.crd_store()?.as_system().remove(entry).await?;
        return Ok(Step::Again);
    }
    meta::set(&mut crd, "finalizers", left);
    let old = crd.get("status").cloned();
    status::set(&mut crd, done, &now());
    server.write_status(entry, old, crd).await?;
    Ok(Step::Again)
}

/// Deletes all instances and waits until none is left. The error is what the condition then says.
async fn delete_instances(server: &ApiExtensions, definition: &Definition) -> Result<(), Condition> {
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        terminating("True", "InstanceDeletionFailed", format!("{what}: {why}"))
    };
    let resource = server.bare_resource(definition);
    let store = server.store_of(definition);
    let list = |error: ApiError| failed("could not list instances", &error);
    let cache = store.as_system().cache().await.map_err(list)?;
    let snapshot = store.as_system().fresh().await.map_err(list)?;
    let mut feed = cache.feed(snapshot.revision, Interest::All).await.map_err(list)?;
    let (system, no_admission) = (Authorized::system(), AdmissionChain::default());
    let call = WriteCall::internal(&resource, &system, &no_admission, "");
    let waiting = async {
        let mut events = Vec::new();
        loop {
            let snapshot = cache.snapshot();
            if snapshot.objects.is_empty() {
                return match snapshot.unreadable.len() {
                    0 => Ok(()),
                    left => Err(failed(
                        "could not list instances",
                        &format!("{left} of them cannot be read"),
                    )),
                };
            }
            // Objects of creates that were under way are deleted as well; marked ones wait for their finalizers.
            let unmarked: Vec<Arc<Entry>> = snapshot
                .objects
                .values()
                .filter(|e| meta::deletion_timestamp(&e.value()).is_none())
                .cloned()
                .collect();
            delete_collection(&call, &unmarked, &DeleteOptions::default())
                .await
                .map_err(|error| failed("could not issue all deletes", &error))?;
            if feed.next(&mut events).await.is_err() {
                // The cache restarted: from the beginning.
                return Err(failed(
                    "could not list instances",
                    &"the watch cache was restarted",
                ));
            }
            events.clear();
        }
    };
    match tokio::time::timeout(DRAIN_TIMEOUT, waiting).await {
        Ok(outcome) => outcome,
        Err(_) => Err(terminating(
            "True",
            "InstanceDeletionCheck",
            "could not confirm zero CustomResources remaining: context deadline exceeded",
        )),
    }
}
