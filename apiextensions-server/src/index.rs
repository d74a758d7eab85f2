//! Every CRD by group and plural: an immutable, persistent map, in which a change costs the same at any size.
//!
//! It mirrors one snapshot of the CRD store's cache. [`Index::advance`] compares snapshots (shared parts are skipped), so
//! nothing is queued and nothing can be missed: a request that finds a newer snapshot brings the index up to it first.

use std::sync::{Arc, OnceLock};

use generic_server::discovery::GroupDiscovery;
use generic_server::openapi::DocumentRef;
use generic_server::registry::Entry;
use generic_server::registry::cache::Snapshot;
use imbl::ordmap::DiffItem;
use imbl::{HashMap, OrdMap};
use serde_json::Value;

use crate::crd::naming::Claims;
use crate::definition::Definition;

/// The CRDs of one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    /// By plural.
    pub(crate) crds: OrdMap<Arc<str>, Arc<Definition>>,
    /// Plurals, singulars and short names with the plural of the CRD that has them.
    resources: HashMap<Arc<str>, Arc<str>>,
    /// Kinds and list kinds, likewise.
    kinds: HashMap<Arc<str>, Arc<str>>,
    /// The discovery document of this group, made on demand. Every change makes a new group, so it never goes stale.
    pub(crate) discovery: OnceLock<Option<Arc<GroupDiscovery>>>,
    /// Its part of OpenAPI, likewise.
    pub(crate) openapi: OnceLock<Published>,
}

/// The part of a group in OpenAPI.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    /// One document per version (v3).
    pub(crate) documents: Vec<DocumentRef>,
    /// One part per version of a CRD (v2).
    pub(crate) parts: Vec<DocumentRef>,
}

/// The difference between two states of the index.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    /// How it was.
    pub(crate) old: Option<Arc<Definition>>,
    /// How it is.
    pub(crate) new: Option<Arc<Definition>>,
}

/// All CRDs, as of a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) groups: OrdMap<Arc<str>, Arc<Group>>,
}

struct Others<'a> {
    group: Option<&'a Group>,
    plural: &'a str,
}

impl Others<'_> {
    fn taken(&self, names: impl Fn(&Group) -> Option<&Arc<str>>) -> bool {
        self.group
            .and_then(names)
            .is_some_and(|owner| **owner != *self.plural)
    }
}

impl Claims for Others<'_> {
    fn resource(&self, name: &str) -> bool {
        self.taken(|g| g.resources.get(name))
    }

    fn kind(&self, name: &str) -> bool {
        self.taken(|g| g.kinds.get(name))
    }
}

fn claimed(accepted: &Value) -> (Vec<&str>, Vec<&str>) {
    let text = |key: &str| {
        accepted
            .get(key)
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
    };
    let short = accepted.get("shortNames").and_then(Value::as_array);
    let short = short.into_iter().flatten().filter_map(Value::as_str);
    let resources = text("plural").into_iter().chain(text("singular")).chain(short);
    let kinds = text("kind").into_iter().chain(text("listKind"));
    (resources.collect(), kinds.collect())
}

impl Group {
    fn claim(&mut self, definition: &Definition) {
        let (resources, kinds) = claimed(&definition.accepted);
        for (names, map) in [(resources, &mut self.resources), (kinds, &mut self.kinds)] {
            for name in names {
                // The first one keeps it.
                if !map.contains_key(name) {
                    map.insert(name.into(), definition.plural.clone());
                }
            }
        }
    }

    fn release(&mut self, definition: &Definition) {
        let (resources, kinds) = claimed(&definition.accepted);
        for (names, map) in [(resources, &mut self.resources), (kinds, &mut self.kinds)] {
            for name in names {
                if map.get(name).is_some_and(|owner| *owner == definition.plural) {
                    map.remove(name);
                }
            }
        }
    }
}

impl Index {
    /// A CRD by group and plural.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Definition>> {
        self.groups.get(group)?.crds.get(plural)
    }

    /// A CRD by its own name: `plural.group`.
    pub(crate) fn find_by_name(&self, name: &str) -> Option<&Arc<Definition>> {
        let (plural, group) = name.split_once('.')?;
        self.find(group, plural)
    }

    /// Which names the other CRDs of the group have.
    pub(crate) fn claims_against<'a>(&'a self, group: &str, plural: &'a str) -> impl Claims + 'a {
        Others {
            group: self.groups.get(group).map(|g| &**g),
            plural,
        }
    }

    /// All CRDs.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.groups.values().flat_map(|g| g.crds.values())
    }

    /// The index of a newer snapshot, and what changed.
    pub(crate) fn advance(&self, snapshot: Arc<Snapshot>) -> (Index, Vec<Changed>) {
        let mut next = Index {
            snapshot: snapshot.clone(),
            groups: self.groups.clone(),
        };
        let mut removed: Vec<&str> = Vec::new();
        let mut written: Vec<&Arc<Entry>> = Vec::new();
        for item in self.snapshot.objects.diff(&snapshot.objects) {
            match item {
                DiffItem::Add(_, entry) => written.push(entry),
                DiffItem::Update { new: (_, entry), .. } => written.push(entry),
                DiffItem::Remove(_, entry) => removed.push(entry.name()),
            }
        }
        // Names go to the first CRD that requests them, and freed names are available again.
        written.sort_by_key(|entry| entry.revision);
        let mut changes = Vec::with_capacity(removed.len() + written.len());
        for name in removed {
            changes.extend(next.remove(name));
        }
        for entry in written {
            changes.push(next.put(entry));
        }
        (next, changes)
    }

    fn remove(&mut self, name: &str) -> Option<Changed> {
        let old = self.find_by_name(name)?.clone();
        let mut group = self.group(&old.group);
        group.crds.remove(&old.plural);
        group.release(&old);
        if group.crds.is_empty() {
            self.groups.remove(&old.group);
        } else {
            self.groups.insert(old.group.clone(), Arc::new(group));
        }
        Some(Changed {
            old: Some(old),
            new: None,
        })
    }

    fn put(&mut self, entry: &Arc<Entry>) -> Changed {
        let old = self.find_by_name(entry.name()).cloned();
        let (plural, group) = entry.name().split_once('.').unwrap_or((entry.name(), ""));
        let new = Definition::new(entry, &self.claims_against(group, plural), old.as_deref());
        let new = Arc::new(new);
        let mut group = self.group(&new.group);
        if let Some(old) = &old {
            group.release(old);
        }
        group.claim(&new);
        group.crds.insert(new.plural.clone(), new.clone());
        self.groups.insert(new.group.clone(), Arc::new(group));
        Changed { old, new: Some(new) }
    }

    /// A group to be changed: without its derived documents.
    fn group(&self, name: &str) -> Group {
        let mut group = self.groups.get(name).map(|g| Group::clone(g)).unwrap_or_default();
        group.discovery = OnceLock::new();
        group.openapi = OnceLock::new();
        group
    }
}
