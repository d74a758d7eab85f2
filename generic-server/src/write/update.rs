//! PUT, PATCH and apply: read, transform, admit, check, commit against what was read; again when another writer was faster.

use std::sync::Arc;

use machinery::{ApiError, FieldError, FieldPath, GroupKind, Reason, meta};
use serde_json::Value;

use super::{Stored, WriteCall, create, managed, match_namespace, metadata, sent_version, without_version};
use crate::admission::Operation;
use crate::authz::{Attributes, Authorizer, forbidden};
use crate::cpu;
use crate::registry::cache::Entry;
use crate::registry::store::Written;
use crate::registry::strategy::{Strategy, WriteContext};

/// How often a write that names no resourceVersion is retried after a lost race. Upstream's storage tries without end;
/// a bound turns a livelock into an answer.
const ATTEMPTS: usize = 64;

/// The preconditions of the object, apart from its content.
#[derive(Debug, Clone, Default)]
pub struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
}

/// Makes the new object from the live one (`None` when there is none). Called again on every retry.
pub type Transform<'t> = dyn FnMut(Option<&Value>) -> Result<Value, ApiError> + Send + 't;

/// The rules of this update.
#[derive(Debug, Clone, Default)]
pub struct UpdateRules<'a> {
    /// The preconditions of the live object.
    pub preconditions: Preconditions,
    /// Create the object when it is not there, even if the strategy does not allow it (apply).
    pub force_create: bool,
    /// The transform does not depend on a resourceVersion of the client: lost races are retried.
    pub retry: bool,
    /// Asked whether the user may create, when the update turns out to be one.
    pub create_check: Option<&'a dyn Authorizer>,
}

/// Updates an object. Answers it with whether it was created.
pub async fn update(
    call: &WriteCall<'_>,
    name: &str,
    rules: &UpdateRules<'_>,
    transform: &mut Transform<'_>,
) -> Result<(Stored, bool), ApiError> {
    let store = call.store()?;
    let resource = call.resource.gvr.group_resource();
    let mut current = store.find(call.namespace, name).await?;
    for _ in 0..ATTEMPTS {
        let step = match &current {
            Some(entry) => change(call, name, rules, transform, entry).await?,
            None => {
                if !call.strategy.allow_create_on_update() && !rules.force_create {
                    return Err(ApiError::not_found(&resource, name));
                }
                match create_from(call, name, rules, transform).await {
                    // It was created meanwhile: the write is an update after all.
                    Err(error) if error.reason() == Reason::AlreadyExists => {
                        current = store.find(call.namespace, name).await?;
                        continue;
                    }
                    created => return created.map(|stored| (stored, true)),
                }
            }
        };
        match step {
            Step::Done(stored) => return Ok((stored, false)),
            Step::Lost(newest) => {
                if newest.is_none() && !rules.force_create && !call.strategy.allow_create_on_update() {
                    return Err(ApiError::not_found(&resource, name));
                }
                current = newest;
            }
        }
    }
    Err(ApiError::modified(&resource, name))
}

async fn create_from(
    call: &WriteCall<'_>,
    name: &str,
    rules: &UpdateRules<'_>,
    transform: &mut Transform<'_>,
) -> Result<Stored, ApiError> {
    let mut object = transform(None)?;
    cpu::slice().await;
    if meta::name(&object).is_empty() {
        meta::set(&mut object, "name", name);
    }
    if call.strategy.allow_create_on_update() && !meta::uid(&object).is_empty() {
        // A PUT that names a uid means an object that exists.
        let wanted = meta::uid(&object);
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: ");
        let why = storage_error(call, name, &why);
        return Err(ApiError::conflict(&call.resource.gvr.group_resource(), name, why));
    }
    if let Some(authorizer) = rules.create_check {
        let info = call.authorized.info();
        let attributes = Attributes {
            verb: "create",
            ..Attributes::of(call.authorized.user(), info)
        };
        let decision = authorizer.authorize(&attributes).await;
        decision
            .permits()
            .map_err(|reason| forbidden(&attributes, &reason))?;
    }
    create::create_as(call, object, create::Asked::Write).await
}

enum Step {
    Done(Stored),
    Lost(Option<Arc<Entry>>),
}

async fn change(
    call: &WriteCall<'_>,
    name: &str,
    rules: &UpdateRules<'_>,
    transform: &mut Transform<'_>,
    entry: &Arc<Entry>,
) -> Result<Step, ApiError> {
    let resource = call.resource.gvr.group_resource();
    // A small patch of a large object is as much work as a large one.
    cpu::heavy(entry.json.len()).await;
    call.leave_when_costly().await;
    let live = super::served(call.resource, entry).await?;
    check_preconditions(call, name, &rules.preconditions, &live)?;
    cpu::slice().await;
    let mut object = transform(Some(&live))?;
    cpu::slice().await;
    match_namespace(call, &mut object)?;
    call.admission
        .admit(
            &call.attributes(Operation::Update, name, Some(&live)),
            Some(&mut object),
        )
        .await?;
    managed::dedup_owners(call.authorized, &mut object, true);

    cpu::slice().await;
    let sent = sent_version(&object)?;
    if sent == 0 && !call.strategy.allow_unconditional_update() {
        let path = FieldPath::new("metadata");
        let error = FieldError::invalid(
            &path.child("resourceVersion"),
            &0.into(),
            "must be specified for an update",
        );
        let kind = GroupKind::new(&resource.group, &resource.resource);
        return Err(ApiError::invalid(&kind, name, &[error]));
    }
    if sent != 0 && sent != entry.revision.0 {
        return Err(ApiError::modified(&resource, name));
    }
    meta::set(
        &mut object,
        "resourceVersion",
        meta::resource_version(&live).to_string(),
    );

    let context = call.context();
    metadata::keep_system_fields(&mut object, &live);
    call.strategy.prepare_for_update(&context, &mut object, &live);
    let finisher = match call.strategy.hooks() {
        Some(hooks) => hooks.begin_update(&context, &mut object, &live).await?,
        None => None,
    };
    cpu::slice().await;
    let context = WriteContext {
        expression_faults: &call.expression_faults(&object).await,
        ..context
    };
    let mut errors = call.faults(&object, Some(&live)).await?;
    errors.extend(metadata::update_errors(call, &object, &live));
    errors.extend(call.strategy.validate_update(&context, &object, &live));
    errors.extend(call.refusal(&errors, &object, Some(&live)).await?);
    if !errors.is_empty() {
        return Err(call.invalid(&object, &errors));
    }
    for warning in call.strategy.warnings_on_update(&context, &object, &live) {
        call.authorized.context().warn(warning);
    }
    cpu::slice().await;
    call.canonicalize(&mut object);
    call.drop_empty_lists(&mut object);
    managed::ignore_time_only(&mut object, &live);
    cpu::slice().await;
    call.admission
        .validate(
            &call.attributes(Operation::Update, name, Some(&live)),
            Some(&object),
        )
        .await?;

    cpu::slice().await;
    let gone = should_delete(call.strategy, &object, &live);
    if call.dry_run {
        return call
            .as_if_stored(object)
            .map(|object| Step::Done(Stored::Value(object)));
    }
    let store = call.store()?;
    let (written, removed) = if gone {
        // The answer is the object as it would have been stored.
        (store.remove(entry).await?, Some(object))
    } else {
        let stored = call.into_stored(without_version(object)).await?;
        let guards = finisher
            .as_ref()
            .map_or_else(Vec::new, |finisher| finisher.guards());
        (store.put_guarded(Some(entry), &stored, guards).await?, None)
    };
    match written {
        Written::Stored(stored) => {
            if let Some(finisher) = finisher {
                finisher.commit();
            }
            let Some(removed) = removed else {
                return Ok(Step::Done(Stored::Entry(stored)));
            };
            if let Some(hooks) = call.strategy.hooks() {
                hooks.after_delete(&context, &live).await;
            }
            Ok(Step::Done(Stored::Value(removed)))
        }
        // The client named the version it changed: it has to look again. Else the change is applied again to the newest object.
        Written::Lost(_) if sent != 0 && !rules.retry => Err(ApiError::modified(&resource, name)),
        Written::Lost(newest) => Ok(Step::Lost(newest)),
    }
}

/// An object that is being deleted goes with what last held it back, when no grace is left.
fn should_delete(strategy: &dyn Strategy, object: &Value, live: &Value) -> bool {
    let held = |object: &Value| meta::finalizers(object).next().is_some() || strategy.held_back(object);
    let grace = meta::dig(live, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    meta::deletion_timestamp(live).is_some() && !held(object) && grace.unwrap_or_default() == 0
}

/// As upstream's storage words it.
fn storage_error(call: &WriteCall<'_>, name: &str, why: &str) -> String {
    let key = call.resource.store().map(|store| store.key(call.namespace, name));
    format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: {why}",
        key.unwrap_or_default()
    )
}

fn check_preconditions(
    call: &WriteCall<'_>,
    name: &str,
    preconditions: &Preconditions,
    live: &Value,
) -> Result<(), ApiError> {
    let resource = call.resource.gvr.group_resource();
    if let Some(uid) = &preconditions.uid {
        let own = meta::uid(live);
        if uid != own {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {own}");
            return Err(ApiError::conflict(
                &resource,
                name,
                storage_error(call, name, &why),
            ));
        }
    }
    if let Some(version) = &preconditions.resource_version {
        let own = meta::resource_version(live);
        if version != own {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {own}"
            );
            return Err(ApiError::conflict(
                &resource,
                name,
                storage_error(call, name, &why),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use machinery::limits;
    use serde_json::json;

    use super::*;
    use crate::admission::AdmissionChain;
    use crate::cpu::Pool;
    use crate::handlers::fixture::fixture;
    use crate::request::Authorized;

    #[tokio::test]
    async fn a_small_change_of_a_large_object_is_heavy() {
        async fn check(bytes: usize, expected: bool) {
            let f = fixture(false);
            f.put("ns", "a", "x", &"n".repeat(bytes)).await;
            let (authorized, none) = (Authorized::system(), AdmissionChain::default());
            let call = WriteCall::internal(&f.resource, &authorized, &none, "ns");
            let mut seen = None;
            let mut transform = |live: Option<&Value>| {
                seen = Some(cpu::is_heavy());
                Ok(live.cloned().unwrap_or_default())
            };
            let rules = UpdateRules::default();
            let write = update(&call, "a", &rules, &mut transform);
            crate::cpu::offload(&Pool::new(1), 0, None, write).await.unwrap();
            assert_eq!(seen, Some(expected), "{bytes}");
        }
        check(10, false).await;
        check(limits::HEAVY_BYTES, true).await;
    }

    #[tokio::test]
    async fn owners_that_a_patch_repeats_are_one() {
        let f = fixture(false);
        f.put("ns", "a", "x", "n").await;
        let (authorized, none) = (Authorized::system(), AdmissionChain::default());
        let call = WriteCall::internal(&f.resource, &authorized, &none, "ns");
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true});
        let mut transform = |live: Option<&Value>| {
            let mut object = live.cloned().unwrap_or_default();
            meta::set(
                &mut object,
                "ownerReferences",
                json!([owner("1"), owner("1"), owner("1")]),
            );
            Ok(object)
        };
        let (stored, _) = update(&call, "a", &UpdateRules::default(), &mut transform)
            .await
            .unwrap();
        let Stored::Entry(entry) = stored else {
            panic!("it is stored")
        };
        assert_eq!(meta::owner_references(&entry.value()), [owner("1")]);
        let warnings = authorized.context().take_warnings();
        let [warning] = &*warnings else {
            panic!("{warnings:?}")
        };
        assert!(warning.starts_with(
            ".metadata.ownerReferences contains duplicate entries after mutating admission happens;"
        ));
        assert!(warning.ends_with("duplicate UID(s) observed: 1, 1"), "{warning}");
    }
}
