//! DELETE of an object and of a collection.

use http::StatusCode;
use machinery::{ApiError, FieldError, FieldPath, GroupKind, meta};
use serde_json::{Value, json};

use super::{Call, body, list, options};
use crate::authz::Attributes;
use crate::request::Response;
use crate::write::{self, WriteCall};

async fn delete_options(call: &Call<'_>) -> Result<(write::DeleteOptions, bool, Value), ApiError> {
    let store = call.resource.store();
    let unsafe_deletion = store.is_some_and(|store| store.allows_unsafe_deletion());
    let parsed = match body::delete_options(call).await? {
        Some(object) => {
            call.record(&object);
            options::delete_from_object(object, unsafe_deletion)
        }
        None => options::delete_from_query(call.head.uri.query(), unsafe_deletion),
    }?;
    let silent = parsed.0.propagation.is_none() && parsed.0.orphan_dependents.is_none();
    if let Some(warning) = call.resource.strategy.warning_on_delete().filter(|_| silent) {
        call.authorized.context().warn(warning.to_owned());
    }
    Ok(parsed)
}

/// Whether the user may delete what cannot be read, which is more than a deletion.
async fn check_unsafe(call: &Call<'_>) -> Result<(), ApiError> {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    let attributes = Attributes {
        verb: VERB,
        ..Attributes::of(call.authorized.user(), call.authorized.info())
    };
    let decision = call.env.authorizer.authorize(&attributes).await;
    decision.permits().map_err(|reason| {
        ApiError::forbidden(
            &call.resource.gvr.group_resource(),
            call.name(),
            format_args!("not permitted to do \"{VERB}\", reason: {reason}"),
        )
    })
}

/// Deletes an object. Answers it where the kind does so or where it waits, else a Status.
pub(super) async fn handle(call: &Call<'_>) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let (options, dry_run, object) = delete_options(call).await?;
    let strategy = &*call.resource.strategy;
    let write = WriteCall {
        resource: call.resource,
        strategy,
        admission: &call.env.admission,
        authorized: call.authorized,
        namespace: call.namespace(),
        subresource: "",
        dry_run,
        options: Some(&object),
        unpruned: false,
    };
    if options.ignore_read_error {
        check_unsafe(call).await?;
        write::delete_unread(&write, call.name()).await?;
        let details = json!({"name": call.name(), "kind": &*call.resource.gvk.kind});
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details, "code": 200});
        return crate::respond::status(&negotiated, status, StatusCode::OK);
    }
    let deleted = write::delete(&write, call.name(), &options).await?;
    let code = if !deleted.gone && options.orphan_dependents == Some(false) {
        // An old promise: a client that asked for its dependents to go learns that they have not yet.
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    if (deleted.gone || deleted.pending) && !strategy.returns_deleted_object() {
        let resource = &call.resource.gvr;
        let mut details = json!({"name": meta::name(&deleted.object), "kind": &*resource.resource, "uid": meta::uid(&deleted.object)});
        if !resource.group.is_empty() {
            details["group"] = json!(&*resource.group);
        }
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details});
        return crate::respond::status(&negotiated, status, code);
    }
    call.answer(&negotiated, deleted.object, code).await
}

/// Deletes a collection; answers the list of what was deleted.
pub(super) async fn collection(call: &Call<'_>) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let (options, dry_run, object) = delete_options(call).await?;
    if options.ignore_read_error {
        let error = FieldError::invalid(
            &FieldPath::new(write::IGNORE_READ_ERROR),
            &true.into(),
            "is not allowed with DELETECOLLECTION, try again after removing the option",
        );
        return Err(ApiError::invalid(
            &GroupKind::new("meta.k8s.io", "DeleteOptions"),
            "",
            &[error],
        ));
    }
    let listed = list::select(call.resource, call.authorized, &call.head).await?;
    let write = WriteCall {
        resource: call.resource,
        strategy: &*call.resource.strategy,
        admission: &call.env.admission,
        authorized: call.authorized,
        namespace: call.namespace(),
        subresource: "",
        dry_run,
        options: Some(&object),
        unpruned: false,
    };
    let entries: Vec<_> = listed.entries.clone().collect();
    write::delete_collection(&write, &entries, &options).await?;
    list::answer(call.resource, &negotiated, listed).await
}
