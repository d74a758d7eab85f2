//! DELETE of an object and of a collection.

use http::StatusCode;
use machinery::{ApiError, meta};
use serde_json::{Value, json};

use super::{Call, body, list, options, output};
use crate::registry::write::{self, WriteCall};
use crate::request::Response;

async fn delete_options(call: &Call<'_>) -> Result<(write::DeleteOptions, bool, Value), ApiError> {
    let parsed = match body::delete_options(call).await? {
        Some(object) => options::delete_from_object(object),
        None => options::delete_from_query(call.head.uri.query()),
    }?;
    let silent = parsed.0.propagation.is_none() && parsed.0.orphan_dependents.is_none();
    if let Some(warning) = call.resource.strategy.warning_on_delete().filter(|_| silent) {
        call.authorized.context().warn(warning.to_owned());
    }
    Ok(parsed)
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
    };
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
        return output::status(&negotiated, status, code);
    }
    call.answer(&negotiated, deleted.object, code).await
}

/// Deletes a collection; answers the list of what was deleted.
pub(super) async fn collection(call: &Call<'_>) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let (options, dry_run, object) = delete_options(call).await?;
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
    };
    write::delete_collection(&write, &listed.entries, &options).await?;
    list::answer(call.resource, &negotiated, listed).await
}
