//! What the collector does to objects, here and on aggregated servers: reads the newest state, deletes, and changes metadata.

use std::sync::Arc;

use generic_server::ApiError;
use generic_server::registry::directory::{Elsewhere, RemoteAsk, RemoteResource};
use generic_server::registry::write::{DeleteOptions, Preconditions};
use machinery::{Reason, meta};
use serde_json::{Value, json};

use super::object::{Metadata, Node};
use crate::client::Client;

/// How often a change to a remote object is tried anew when somebody else was faster.
const ATTEMPTS: usize = 5;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// As wanted, or the object is gone or another one: news of that come by themselves.
    Done,
    /// Somebody else was faster.
    Lost,
}

/// An aggregated server with the resource of an object; `None` when it is away.
fn remote<'a>(client: &'a Client, node: &Node) -> Option<(&'a Arc<dyn Elsewhere>, Arc<RemoteResource>)> {
    let server = client.directory().elsewhere()?;
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
pub(super) async fn delete(client: &Client, node: &Node, policy: &str) -> Result<Done, ApiError> {
    let (namespace, name) = (&*node.place.namespace, &*node.place.name);
    let unchanged = |now: Option<Metadata>| {
        let now = now.filter(|now| now.uid == node.uid);
        now.filter(|now| now.owner_references.as_deref().unwrap_or_default() == node.owners)
    };
    let done = if node.place.source.remote {
        let Some((server, resource)) = remote(client, node) else {
            // It is looked at again when its server is back.
            return Ok(Done::Done);
        };
        let found = server.ask(&resource, namespace, name, RemoteAsk::Get).await;
        let Some(object) = present(found)? else {
            return Ok(Done::Done);
        };
        let Some(now) = unchanged(Metadata::of_value(&object)) else {
            return Ok(Done::Done);
        };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
            "preconditions": {"uid": &*node.uid, "resourceVersion": now.resource_version}});
        let ask = RemoteAsk::Delete(options);
        server.ask(&resource, namespace, name, ask).await.map(|_| ())
    } else {
        if client.resource(at(node)).is_err() {
            return Ok(Done::Done);
        }
        let Some(entry) = client.entry(at(node), namespace, name).await? else {
            return Ok(Done::Done);
        };
        if unchanged(Metadata::of(&entry)).is_none() {
            return Ok(Done::Done);
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
    settled(done)
}

/// Changes the metadata of an object, if it is still there.
///
/// # Errors
/// As the store or the server has it.
pub(super) async fn edit(
    client: &Client,
    node: &Node,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<Done, ApiError> {
    let (namespace, name) = (&*node.place.namespace, &*node.place.name);
    if !node.place.source.remote {
        if client.resource(at(node)).is_err() {
            return Ok(Done::Done);
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
        return settled(done);
    }
    let Some((server, resource)) = remote(client, node) else {
        return Ok(Done::Done);
    };
    for _ in 0..ATTEMPTS {
        let found = server.ask(&resource, namespace, name, RemoteAsk::Get).await;
        let Some(before) = present(found)?.filter(|object| meta::uid(object) == &*node.uid) else {
            return Ok(Done::Done);
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
            return Ok(Done::Done);
        }
        let ask = RemoteAsk::Patch(json!({"metadata": patch}));
        match settled(server.ask(&resource, namespace, name, ask).await.map(|_| ()))? {
            Done::Done => return Ok(Done::Done),
            Done::Lost => {}
        }
    }
    Ok(Done::Lost)
}

fn present(found: Result<Value, ApiError>) -> Result<Option<Value>, ApiError> {
    match found {
        Err(error) if error.reason() == Reason::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn settled(done: Result<(), ApiError>) -> Result<Done, ApiError> {
    match done {
        Ok(()) => Ok(Done::Done),
        Err(error) if error.reason() == Reason::NotFound => Ok(Done::Done),
        Err(error) if error.reason() == Reason::Conflict => Ok(Done::Lost),
        Err(error) => Err(error),
    }
}

/// Takes owner references away.
pub(super) async fn release(client: &Client, node: &Node, owners: &[&str]) -> Result<Done, ApiError> {
    edit(client, node, |object| {
        let rest: Vec<Value> = meta::owner_references(object)
            .iter()
            .filter(|r| !owners.contains(&meta::dig_str(r, &["uid"])))
            .cloned()
            .collect();
        let rest = if rest.is_empty() { Value::Null } else { rest.into() };
        meta::set(object, "ownerReferences", rest);
    })
    .await
}

/// Lets the owners of an object go before it.
pub(super) async fn unblock(client: &Client, node: &Node) -> Result<Done, ApiError> {
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
pub(super) async fn drop_finalizer(client: &Client, node: &Node, finalizer: &str) -> Result<Done, ApiError> {
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
