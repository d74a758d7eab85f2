//! The states of an object's owners: from the index, else from the store or the aggregated server that has them.

use generic_server::ApiError;
use generic_server::directory::{KindLocation, RemoteAsk};
use machinery::{GroupKind, GroupVersion, GroupVersionKind, Reason};

use super::index::{Index, OwnerState};
use super::object::{Metadata, Node, Owner, Place, Source, Uid};
use crate::client::Client;

/// The states of the owners of an object.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order of the references.
    pub(super) states: Vec<OwnerState>,
    /// Owners that were seen, and where.
    pub(super) seen: Vec<(Uid, Place)>,
    /// Kinds that are not served now.
    pub(super) kinds: Vec<GroupKind>,
}

impl Found {
    /// The uids of the owners in a state.
    pub(super) fn of<'a>(&self, node: &'a Node, wanted: OwnerState) -> Vec<&'a Uid> {
        let owners = node.owners.iter().zip(&self.states);
        owners
            .filter(|(_, owner_state)| **owner_state == wanted)
            .map(|(owner, _)| &owner.uid)
            .collect()
    }
}

/// Looks at every owner of an object.
///
/// # Errors
/// When a store or a server cannot be asked.
pub(super) async fn find(client: &Client, index: &Index, node: &Node) -> Result<Found, ApiError> {
    let mut found = Found::default();
    for owner in &node.owners {
        let owner_state = match GroupVersion::parse(&owner.api_version) {
            None => OwnerState::Unknown,
            Some(version) => match index.owner_state(owner, node, &version.group) {
                Some(owner_state) => owner_state,
                None => look_up(client, &version, owner, node, &mut found).await?,
            },
        };
        found.states.push(owner_state);
    }
    Ok(found)
}

/// Looks for an owner by its kind and name, as upstream asks the server.
async fn look_up(
    client: &Client,
    version: &GroupVersion,
    owner: &Owner,
    node: &Node,
    found: &mut Found,
) -> Result<OwnerState, ApiError> {
    let kind = GroupKind {
        group: version.group.clone(),
        kind: owner.kind.clone(),
    };
    let (there, source, namespace) = if let Some(registered) = client.directory().of_kind(&kind) {
        let store = &registered.store;
        let Some(namespace) = reach(store.config().namespaced, node) else {
            return Ok(OwnerState::Unknown);
        };
        let entry = store.as_system().find(namespace, &owner.name).await?;
        let source = Source::local(&store.config().resource);
        (entry.and_then(|entry| Metadata::of(&entry)), source, namespace)
    } else {
        let server = client.directory().remote_resources();
        let wanted = GroupVersionKind {
            group: version.group.clone(),
            version: version.version.clone(),
            kind: owner.kind.clone(),
        };
        let at = server.map(|server| (server, server.locate(&wanted)));
        let Some((server, KindLocation::Served(resource))) = at else {
            found.kinds.push(kind);
            return Ok(OwnerState::Unknown);
        };
        let Some(namespace) = reach(resource.namespaced, node) else {
            return Ok(OwnerState::Unknown);
        };
        let asked = server
            .request(&resource, namespace, &owner.name, RemoteAsk::Get)
            .await;
        let there = match asked {
            Ok(object) => Metadata::of_value(&object),
            Err(error) if error.reason() == Reason::NotFound => None,
            Err(error) => return Err(error),
        };
        let source = Source {
            resource: resource.group_resource(),
            remote: true,
        };
        (there, source, namespace)
    };
    let Some(metadata) = there.filter(|metadata| metadata.uid == owner.uid) else {
        return Ok(OwnerState::Absent);
    };
    if metadata.in_foreground() {
        return Ok(OwnerState::Waiting);
    }
    let place = Place {
        source,
        namespace: namespace.into(),
        name: owner.name.clone(),
    };
    found.seen.push((owner.uid.clone(), place));
    Ok(OwnerState::Present)
}

/// The namespace in which an owner has to be; `None` when it cannot own the object.
fn reach(namespaced: bool, node: &Node) -> Option<&str> {
    match (namespaced, &*node.place.namespace) {
        (false, _) => Some(""),
        (true, "") => None,
        (true, namespace) => Some(namespace),
    }
}

/// The namespace of an owner that is in another than the object's, which it cannot own from there.
pub(super) async fn cross_namespace(client: &Client, owner: &Owner, node: &Node) -> Option<String> {
    let kind = GroupKind {
        group: GroupVersion::parse(&owner.api_version)?.group,
        kind: owner.kind.clone(),
    };
    let registered = client.directory().of_kind(&kind)?;
    let store = &registered.store;
    if !store.config().namespaced || node.place.namespace.is_empty() {
        return None;
    }
    let namespaces = client
        .resource(("", "namespaces"))
        .ok()?
        .store
        .as_system()
        .fresh()
        .await
        .ok()?;
    let objects = store.as_system().fresh().await.ok()?;
    let mut all = namespaces.objects.values().map(|entry| entry.name());
    let at = all.find(|namespace| {
        let found = objects.objects.get(store.key(namespace, &owner.name).as_str());
        let metadata = found.and_then(|entry| Metadata::of(entry));
        metadata.is_some_and(|metadata| metadata.uid == owner.uid)
    });
    at.map(ToString::to_string)
}
