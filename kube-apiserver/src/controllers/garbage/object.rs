//! An object as the collector knows it: its identity, its owners, and whether its deletion waits for the collector.

use std::sync::{Arc, LazyLock};

use generic_server::registry::Entry;
use machinery::GroupResource;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;

/// Its end waits until its dependents are cut loose.
pub(super) const ORPHAN: &str = "orphan";
/// Its end waits for that of its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

pub(super) type Uid = Arc<str>;

/// Where objects come from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub(super) resource: GroupResource,
    /// Kept by an aggregated server.
    pub(super) remote: bool,
}

impl Source {
    pub(super) fn local(resource: &GroupResource) -> Self {
        Source {
            resource: resource.clone(),
            remote: false,
        }
    }
}

/// Where an object is found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) source: Source,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

/// An object that has owners or waits for the collector, or did so until now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) uid: Uid,
    pub(super) place: Place,
    pub(super) owners: Vec<Owner>,
    pub(super) deleting: bool,
    /// Of its finalizers, those that are the collector's.
    pub(super) orphan: bool,
    pub(super) foreground: bool,
}

/// An owner reference.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    #[serde(deserialize_with = "shared")]
    pub(super) uid: Uid,
    pub(super) name: Box<str>,
    #[serde(deserialize_with = "shared")]
    pub(super) kind: Arc<str>,
    pub(super) api_version: Box<str>,
    pub(super) block_owner_deletion: Option<bool>,
}

/// The part of metadata that matters here; the rest is skipped unread.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "shared")]
    pub(super) uid: Uid,
    namespace: Option<Box<str>>,
    name: Option<Box<str>>,
    pub(super) resource_version: Option<Box<str>>,
    pub(super) owner_references: Option<Vec<Owner>>,
    deletion_timestamp: Option<Box<str>>,
    finalizers: Option<Vec<Box<str>>>,
}

fn shared<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(from).map(Into::into)
}

impl Metadata {
    /// Of a cached object: its metadata alone is read.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let json = entry.metadata().strip_prefix(b"\"metadata\":")?;
        let metadata: Metadata = serde_json::from_slice(json).ok()?;
        (!metadata.uid.is_empty()).then_some(metadata)
    }

    /// Of an object of another server.
    pub(super) fn of_value(object: &Value) -> Option<Self> {
        let metadata = Metadata::deserialize(object.get("metadata")?).ok()?;
        (!metadata.uid.is_empty()).then_some(metadata)
    }

    fn has(&self, finalizer: &str) -> bool {
        let mut all = self.finalizers.iter().flatten();
        all.any(|f| **f == *finalizer)
    }

    /// Its deletion waits for its dependents.
    pub(super) fn in_foreground(&self) -> bool {
        self.deletion_timestamp.is_some() && self.has(FOREGROUND)
    }

    fn into_node(self, place: Place) -> Node {
        Node {
            deleting: self.deletion_timestamp.is_some(),
            orphan: self.has(ORPHAN),
            foreground: self.has(FOREGROUND),
            owners: self.owner_references.unwrap_or_default(),
            uid: self.uid,
            place,
        }
    }
}

/// Whether an object may have owners or be on its way out. Looks at bytes: it never says no wrongly.
pub(super) fn concerns(entry: &Entry) -> bool {
    mentions(entry.metadata())
}

fn mentions(metadata: &[u8]) -> bool {
    static FIELDS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| {
        let fields: [&[u8]; 2] = [b"\"ownerReferences\"", b"\"deletionTimestamp\""];
        fields.map(Finder::new)
    });
    FIELDS.iter().any(|field| field.find(metadata).is_some())
}

impl Node {
    /// Of a cached object.
    pub(super) fn of(source: &Source, entry: &Entry) -> Option<Node> {
        let place = Place {
            source: source.clone(),
            namespace: entry.namespace().into(),
            name: entry.name().into(),
        };
        Some(Metadata::of(entry)?.into_node(place))
    }

    /// Of an object of another server.
    pub(super) fn of_value(source: &Source, object: &Value) -> Option<Node> {
        let mut metadata = Metadata::of_value(object)?;
        let place = Place {
            source: source.clone(),
            namespace: metadata.namespace.take().unwrap_or_default(),
            name: metadata.name.take().unwrap_or_default(),
        };
        Some(metadata.into_node(place))
    }

    /// Its deletion waits for its dependents.
    pub(super) fn in_foreground(&self) -> bool {
        self.deleting && self.foreground
    }

    /// Its deletion waits for the collector.
    pub(super) fn waits(&self) -> bool {
        self.deleting && (self.orphan || self.foreground)
    }

    /// It has to be remembered.
    pub(super) fn matters(&self) -> bool {
        self.waits() || !self.owners.is_empty()
    }

    /// The object at `uid` cannot go before this one.
    pub(super) fn blocks(&self, uid: &str) -> bool {
        let mut owners = self.owners.iter();
        owners.any(|o| &*o.uid == uid && o.block_owner_deletion == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_read() {
        let source = Source {
            resource: GroupResource::new("a.io", "things"),
            remote: true,
        };
        let object = json!({"metadata": {"uid": "u", "name": "n", "namespace": "ns", "labels": {"a": "b"},
            "ownerReferences": [{"uid": "o", "kind": "K", "name": "k", "apiVersion": "v1", "blockOwnerDeletion": true}],
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion", "x"]}});
        let node = Node::of_value(&source, &object).expect("a node");
        assert!(node.in_foreground() && node.waits() && node.matters() && node.blocks("o"));
        assert_eq!((&*node.place.namespace, &*node.place.name), ("ns", "n"));
        assert_eq!(Node::of_value(&source, &json!({"metadata": {}})), None);
        let plain = Node::of_value(&source, &json!({"metadata": {"uid": "u"}}));
        assert!(!plain.expect("a node").matters());
    }

    #[test]
    fn fields_are_found_in_bytes() {
        assert!(mentions(b"{\"a\":\"b\",\"ownerReferences\":[]}"));
        assert!(mentions(b"{\"deletionTimestamp\":\"\"}"));
        assert!(!mentions(b"{\"a\":\"\\\"ownerReferences\\\"\"}"));
        assert!(!mentions(b""));
    }
}
