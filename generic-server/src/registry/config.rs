//! The configuration of one resource's store: what its objects are and where their keys are.

use std::time::Duration;

use machinery::{GroupKind, GroupResource};

use crate::registry::strategy::SelectableField;

/// The configuration of an object store.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The resource.
    pub resource: GroupResource,
    /// Its kind.
    pub kind: GroupKind,
    /// Where its keys begin, without a final slash: `/registry/pods`.
    pub prefix: String,
    /// Keys are `prefix/namespace/name` rather than `prefix/name`.
    pub namespaced: bool,
    /// The selectable fields, besides name and namespace.
    pub fields: Vec<SelectableField>,
    /// Objects of this resource go after this long (events), unless a write says otherwise.
    pub ttl: Option<Duration>,
}

impl StoreConfig {
    /// Whether what was read with this configuration is what the other would read.
    pub(super) fn reads_as(&self, other: &StoreConfig) -> bool {
        let fields = || self.fields.iter().zip(&other.fields);
        self.resource == other.resource
            && self.kind == other.kind
            && self.prefix == other.prefix
            && self.namespaced == other.namespaced
            && self.fields.len() == other.fields.len()
            && fields().all(|(one, other)| one.reads_as(other))
    }

    /// The storage key of an object.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        let prefix = &self.prefix;
        if self.namespaced {
            [prefix, "/", namespace, "/", name].concat()
        } else {
            [prefix, "/", name].concat()
        }
    }
}
