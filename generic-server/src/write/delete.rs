//! DELETE: preconditions, grace, finalizers, propagation; removed at once or marked until its finalizers are done.

use std::collections::HashSet;
use std::sync::Arc;

use machinery::time::{GoDuration, Timestamp};
use machinery::{ApiError, FieldError, FieldPath, GroupKind, GroupResource, meta};
use serde_json::Value;

use super::{Preconditions, WriteCall, without_version};
use crate::admission::Operation;
use crate::cpu;
use crate::registry::cache::Entry;
use crate::registry::store::Written;
use crate::registry::strategy::{DefaultPropagation, Grace};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// The field of the options that asks for an object to be deleted that cannot be read.
pub(crate) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
/// How often a lost race is retried.
const ATTEMPTS: usize = 64;

/// The options of a deletion (`metav1.DeleteOptions`).
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`.
    pub grace: Option<i64>,
    /// `preconditions`.
    pub preconditions: Preconditions,
    /// `orphanDependents`, the older form of a policy.
    pub orphan_dependents: Option<bool>,
    /// `propagationPolicy`: `Orphan`, `Background` or `Foreground`.
    pub propagation: Option<String>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: delete an object that cannot be read.
    pub ignore_read_error: bool,
}

/// The result of a deletion.
#[derive(Debug, Clone)]
pub struct Deleted {
    /// The object's last state, or how it waits now. Served version.
    pub object: Value,
    /// It is gone; else it was marked and waits (for finalizers or its grace).
    pub gone: bool,
    /// It was waiting already and this request changed nothing.
    pub pending: bool,
}

/// Deletes an object, or marks it.
pub async fn delete(call: &WriteCall<'_>, name: &str, options: &DeleteOptions) -> Result<Deleted, ApiError> {
    let store = call.store()?;
    let resource = call.resource.gvr.group_resource();
    let mut current = store.find(call.namespace, name).await?;
    for _ in 0..ATTEMPTS {
        let Some(entry) = current else {
            return Err(ApiError::not_found(&resource, name));
        };
        match attempt(call, name, options, &entry).await? {
            Step::Done(deleted) => return Ok(deleted),
            Step::Lost(newest) => current = newest,
        }
    }
    Err(ApiError::modified(&resource, name))
}

/// Deletes an object that is there and cannot be read. Nothing of what else belongs to a deletion happens: no admission, no
/// preconditions, no finalizers. False when it was gone already. The caller has checked that the user may do that.
///
/// # Errors
/// 422 when the object can be read.
pub async fn delete_unread(call: &WriteCall<'_>, name: &str) -> Result<bool, ApiError> {
    let store = call.store()?;
    let resource = call.resource.gvr.group_resource();
    let sound = match store.find(call.namespace, name).await {
        Ok(None) => return Err(ApiError::not_found(&resource, name)),
        Ok(Some(_)) => true,
        Err(_) => {
            let key = store.key(call.namespace, name);
            !store.fresh().await?.unreadable.contains_key(key.as_str())
        }
    };
    if sound {
        let kind = GroupKind::new(&resource.group, &resource.resource);
        let error = FieldError::invalid(
            &FieldPath::new(IGNORE_READ_ERROR),
            &true.into(),
            "is exclusively used to delete corrupt object(s), try again by removing this option",
        );
        return Err(ApiError::invalid(&kind, name, &[error]));
    }
    tracing::warn!(resource.gvr = %resource, object.namespace = call.namespace, object.name = name, "deleting an object that cannot be read");
    store.remove_unread(&store.key(call.namespace, name)).await
}

enum Step {
    Done(Deleted),
    Lost(Option<Arc<Entry>>),
}

async fn attempt(
    call: &WriteCall<'_>,
    name: &str,
    options: &DeleteOptions,
    entry: &Arc<Entry>,
) -> Result<Step, ApiError> {
    let context = call.context();
    cpu::heavy(entry.json.len()).await;
    let live = super::served(call.resource, entry).await?;
    let kind = GroupResource::new(&call.resource.gvk.group, &call.resource.gvk.kind);
    check(&kind, &options.preconditions, &live)?;
    call.admission
        .admit(&call.attributes(Operation::Delete, name, Some(&live)), None)
        .await?;
    call.admission
        .validate(&call.attributes(Operation::Delete, name, Some(&live)), None)
        .await?;
    cpu::slice().await;
    call.strategy.validate_delete(&context, &live)?;

    let mut object = live.clone();
    if meta::deletion_timestamp(&live).is_none() && call.strategy.mark_for_deletion(&mut object) {
        return mark_in_store(call, entry, object).await;
    }
    let asked = options.grace.map(|s| if s < 0 { 1 } else { s });
    let graceful = match grace(call, &mut object, asked) {
        Graceful::Pending => {
            return Ok(Step::Done(Deleted {
                object: live,
                gone: false,
                pending: true,
            }));
        }
        Graceful::Marked(seconds) => Some(seconds),
        Graceful::No => None,
    };
    let finalizers = finalizers_for(call, &object, options);
    if let Some(list) = &finalizers {
        meta::set(
            &mut object,
            "finalizers",
            if list.is_empty() {
                Value::Null
            } else {
                list.clone().into()
            },
        );
    }
    let waits_for_finalizers = meta::finalizers(&object).next().is_some() || call.strategy.held_back(&object);
    if waits_for_finalizers && graceful.is_none() {
        mark(&mut object);
        call.strategy.mark_deleting(&mut object);
    }
    if waits_for_finalizers || graceful.is_some_and(|seconds| seconds > 0) {
        return mark_in_store(call, entry, object).await;
    }
    // At once. A grace of zero passes through the marked state upstream, which is observable only in the answer.
    if call.dry_run {
        return Ok(Step::Done(Deleted {
            object: if graceful.is_some() { object } else { live },
            gone: true,
            pending: false,
        }));
    }
    match call.store()?.remove(entry).await? {
        Written::Stored(last) => {
            let mut object = if graceful.is_some() { object } else { live };
            meta::set(&mut object, "resourceVersion", last.revision.to_string());
            if let Some(hooks) = call.strategy.hooks() {
                hooks.after_delete(&context, &object).await;
            }
            Ok(Step::Done(Deleted {
                object,
                gone: true,
                pending: false,
            }))
        }
        Written::Lost(newest) => Ok(Step::Lost(newest)),
    }
}

async fn mark_in_store(call: &WriteCall<'_>, entry: &Arc<Entry>, object: Value) -> Result<Step, ApiError> {
    if call.dry_run {
        return Ok(Step::Done(Deleted {
            object,
            gone: false,
            pending: false,
        }));
    }
    let stored = call.into_stored(without_version(object)).await?;
    match call.store()?.replace(entry, &stored, None).await? {
        Written::Stored(entry) => Ok(Step::Done(Deleted {
            object: super::served(call.resource, &entry).await?,
            gone: false,
            pending: false,
        })),
        Written::Lost(newest) => Ok(Step::Lost(newest)),
    }
}

fn check(kind: &GroupResource, preconditions: &Preconditions, live: &Value) -> Result<(), ApiError> {
    let name = meta::name(live);
    if let Some(uid) = &preconditions.uid {
        let own = meta::uid(live);
        if uid != own {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({own}). The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(kind, name, why));
        }
    }
    if let Some(version) = &preconditions.resource_version {
        let own = meta::resource_version(live);
        if version != own {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({own}). The object might have been modified"
            );
            return Err(ApiError::conflict(kind, name, why));
        }
    }
    Ok(())
}

enum Graceful {
    /// The kind takes no time, or none is left.
    No,
    /// Marked with this many seconds; zero: it goes now.
    Marked(i64),
    /// It was marked before, and this request does not shorten its time.
    Pending,
}

fn grace(call: &WriteCall<'_>, object: &mut Value, asked: Option<i64>) -> Graceful {
    let now = Timestamp::now();
    if let Some(marked) = meta::deletion_timestamp(object) {
        let left = meta::dig(object, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
        let Some(left) = left.filter(|s| *s != 0) else {
            return Graceful::No;
        };
        // Only a shorter time may be asked for.
        let Some(asked) = asked.filter(|s| *s < left) else {
            return Graceful::Pending;
        };
        let marked = Timestamp::parse_rfc3339(marked).unwrap_or(now);
        let mut at = marked.plus(GoDuration::from_secs(asked - left));
        let mut seconds = asked;
        if at < now {
            at = now;
            seconds = asked.min(1);
        }
        meta::set(object, "deletionTimestamp", at.to_rfc3339());
        meta::set(object, "deletionGracePeriodSeconds", seconds);
        return Graceful::Marked(seconds);
    }
    match call.strategy.grace(object, asked) {
        Grace::Immediate => Graceful::No,
        Grace::Seconds(seconds) => {
            bump_generation(object);
            meta::set(
                object,
                "deletionTimestamp",
                now.plus(GoDuration::from_secs(seconds)).to_rfc3339(),
            );
            meta::set(object, "deletionGracePeriodSeconds", seconds);
            Graceful::Marked(seconds)
        }
    }
}

fn bump_generation(object: &mut Value) {
    let generation = meta::generation(object);
    if generation > 0 {
        meta::set(object, "generation", generation.saturating_add(1));
    }
}

/// Marks an object that waits for its finalizers alone.
fn mark(object: &mut Value) {
    let now = Timestamp::now();
    let marked = meta::deletion_timestamp(object).map(|t| Timestamp::parse_rfc3339(t).unwrap_or(now));
    if marked.is_none() {
        bump_generation(object);
    }
    if marked.is_none_or(|at| at > now) {
        meta::set(object, "deletionTimestamp", now.to_rfc3339());
    }
    meta::set(object, "deletionGracePeriodSeconds", 0);
}

/// The finalizers that the propagation policy wants, when they differ from those that are there.
fn finalizers_for(call: &WriteCall<'_>, object: &Value, options: &DeleteOptions) -> Option<Vec<String>> {
    let default = call.strategy.default_propagation();
    let (orphan, foreground) = match (default, options.orphan_dependents, options.propagation.as_deref()) {
        (DefaultPropagation::Unsupported, _, _) => (false, false),
        (_, Some(orphan), _) => (orphan, false),
        (_, None, Some("Orphan")) => (true, false),
        (_, None, Some("Foreground")) => (false, true),
        (_, None, Some(_)) => (false, false),
        (_, None, None) => match meta::finalizers(object).find(|f| [ORPHAN, FOREGROUND].contains(f)) {
            Some(ORPHAN) => (true, false),
            Some(_) => (false, true),
            None => (default == DefaultPropagation::Orphan, false),
        },
    };
    let old: Vec<&str> = meta::finalizers(object).collect();
    let mut new: Vec<&str> = old
        .iter()
        .copied()
        .filter(|f| ![ORPHAN, FOREGROUND].contains(f))
        .collect();
    if orphan {
        new.push(ORPHAN);
    }
    if foreground {
        new.push(FOREGROUND);
    }
    let known: HashSet<&str> = old.iter().copied().collect();
    let same = new.len() == old.len() && new.iter().all(|f| known.contains(f));
    (!same).then(|| new.into_iter().map(String::from).collect())
}
