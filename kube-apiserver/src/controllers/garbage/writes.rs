//! The collector's writes to objects, here and on aggregated servers: reads the newest state, deletes, and changes metadata.

use std::collections::HashSet;
use std::sync::Arc;

use generic_server::ApiError;
use generic_server::directory::{RemoteAsk, RemoteResource, RemoteResources};
use generic_server::write::{DeleteOptions, Preconditions};
use machinery::{Reason, meta};
use serde_json::{Value, json};

use super::object::{Metadata, Node};
use crate::client::Client;

/// How often a change to a remote object is retried after a conflict.
const ATTEMPTS: usize = 5;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// It was applied, or the object is gone or has been replaced, which its own event reports.
    Applied,
    /// Another writer changed the object first.
    Conflict,
}

/// An aggregated server with the resource of an object; `None` when it is away.
fn remote<'a>(
    client: &'a Client,
    node: &Node,
) -> Option<(&'a Arc<dyn RemoteResources>, Arc<RemoteResource>)> {
    let server = client.directory().remote_resources()?;
    let wanted = &node.place.source.resource;
    let mut all = server.resources().into_iter();
    Some((server, all.find(|r| r.group_resource() == *wanted)?))
}

fn at(node: &Node) -> crate::client::At<'_> {
    let resource = &node.place.source.resource;
    (&resource.group, &resource.resource)
}

/// Deletes an object that is still what the index knows of it.
///
/// # Errors
/// As the store or the server has it.
pub(super) async fn delete(client: &Client, node: &Node, policy: &str) -> Result<Written, ApiError> {
    let (namespace, name) = (&*node.place.namespace, &*node.place.name);
    let unchanged = |now: Option<Metadata>| {
        let now = now.filter(|now| now.uid == node.uid);
        now.filter(|now| now.owner_references.as_deref().unwrap_or_default() == node.owners)
    };
    let done = if node.place.source.remote {
        let Some((server, resource)) = remote(client, node) else {
            // It is looked at again when its server is back.
            return Ok(Written::Applied);
        };
        let found = server.request(&resource, namespace, name, RemoteAsk::Get).await;
        let Some(object) = present(found)? else {
            return Ok(Written::Applied);
        };
        let Some(now) = unchanged(Metadata::of_value(&object)) else {
            return Ok(Written::Applied);
        };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": {"uid": &*node.uid, "resourceVersion": now.resource_version}});
        let ask = RemoteAsk::Delete(options);
        server.request(&resource, namespace, name, ask).await.map(|_| ())
    } else {
        if client.resource(at(node)).is_err() {
            return Ok(Written::Applied);
        }
        let Some(entry) = client.entry(at(node), namespace, name).await? else {
            return Ok(Written::Applied);
        };
        if unchanged(Metadata::of(&entry)).is_none() {
            return Ok(Written::Applied);
        }
        let options = DeleteOptions {
            propagation: Some(policy.into()),
            preconditions: Preconditions {
                uid: Some(node.uid.to_string()),
                resource_version: Some(entry.revision.to_string()),
            },
            ..DeleteOptions::default()
        };
        client
            .delete(at(node), namespace, name, &options)
            .await
            .map(|_| ())
    };
    written(done)
}

/// Changes the metadata of an object, if it is still there.
///
/// # Errors
/// As the store or the server has it.
pub(super) async fn edit(
    client: &Client,
    node: &Node,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<Written, ApiError> {
    let (namespace, name) = (&*node.place.namespace, &*node.place.name);
    if !node.place.source.remote {
        if client.resource(at(node)).is_err() {
            return Ok(Written::Applied);
        }
        let done = client
            .update(at(node), namespace, name, "", |object| {
                // Another object of that name is none of ours.
                if meta::uid(object) == &*node.uid {
                    change(object);
                }
                Ok(())
            })
            .await;
        return written(done);
    }
    let Some((server, resource)) = remote(client, node) else {
        return Ok(Written::Applied);
    };
    for _ in 0..ATTEMPTS {
        let found = server.request(&resource, namespace, name, RemoteAsk::Get).await;
        let Some(before) = present(found)?.filter(|object| meta::uid(object) == &*node.uid) else {
            return Ok(Written::Applied);
        };
        let mut after = before.clone();
        change(&mut after);
        let mut patch = json!({"uid": &*node.uid, "resourceVersion": meta::resource_version(&before)});
        let old = patch.as_object().map(serde_json::Map::len);
        for key in ["ownerReferences", "finalizers"] {
            let of = |object: &Value| meta::dig(object, &["metadata", key]).cloned();
            if of(&before) != of(&after) {
                patch[key] = of(&after).unwrap_or_default();
            }
        }
        if patch.as_object().map(serde_json::Map::len) == old {
            return Ok(Written::Applied);
        }
        let ask = RemoteAsk::Patch(json!({"metadata": patch}));
        match written(server.request(&resource, namespace, name, ask).await.map(|_| ()))? {
            Written::Applied => return Ok(Written::Applied),
            Written::Conflict => {}
        }
    }
    Ok(Written::Conflict)
}

fn present(found: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match found {
        Err(error) if error.reason() == Reason::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn written(done: Result<(), ApiError>) -> Result<Written, ApiError> {
    match done {
        Ok(()) => Ok(Written::Applied),
        Err(error) if error.reason() == Reason::NotFound => Ok(Written::Applied),
        Err(error) if error.reason() == Reason::Conflict => Ok(Written::Conflict),
        Err(error) => Err(error),
    }
}

/// Takes owner references away.
pub(super) async fn release(client: &Client, node: &Node, owners: &[&str]) -> Result<Written, ApiError> {
    let owners: HashSet<&str> = owners.iter().copied().collect();
    edit(client, node, |object| {
        let rest: Vec<Value> = meta::owner_references(object)
            .iter()
            .filter(|r| !owners.contains(meta::dig_str(r, &["uid"])))
            .cloned()
            .collect();
        let rest = if rest.is_empty() { Value::Null } else { rest.into() };
        meta::set(object, "ownerReferences", rest);
    })
    .await
}

/// Lets the owners of an object go before it.
pub(super) async fn unblock(client: &Client, node: &Node) -> Result<Written, ApiError> {
    edit(client, node, |object| {
        let mut references = meta::owner_references(object).to_vec();
        for reference in &mut references {
            if reference.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
                && let Some(reference) = reference.as_object_mut()
            {
                reference.insert("blockOwnerDeletion".into(), false.into());
            }
        }
        meta::set(object, "ownerReferences", references);
    })
    .await
}

/// Takes a finalizer away.
pub(super) async fn drop_finalizer(
    client: &Client,
    node: &Node,
    finalizer: &str,
) -> Result<Written, ApiError> {
    edit(client, node, |object| {
        let rest: Vec<Value> = meta::finalizers(object)
            .filter(|f| *f != finalizer)
            .map(Into::into)
            .collect();
        let rest = if rest.is_empty() { Value::Null } else { rest.into() };
        meta::set(object, "finalizers", rest);
    })
    .await
}
