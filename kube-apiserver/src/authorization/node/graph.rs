//! Which nodes are related to an object: the index that the Node authorizer looks into.
//!
//! A pod relates its node to what it refers to; a bound volume relates the nodes of its claim to itself and to its secrets.
//! Every question costs a few look-ups, but for a secret that volumes refer to: one for each of those volumes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use generic_server::metrics::{Collect, Histograms};
use parking_lot::RwLock;

/// A kind of object that nodes have to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    ResourceClaim,
    ResourceSlice,
    VolumeAttachment,
    PodCertificateRequest,
}

/// `namespace/name`; names and namespaces hold no slash.
pub(crate) type Key = Box<str>;

pub(super) fn key(namespace: &str, name: &str) -> Key {
    format!("{namespace}/{name}").into()
}

/// Upstream's names of the changes of an object of a kind, for the metric: that it is put, and that it is gone.
const CHANGES: [(Kind, [&str; 2]); 5] = [
    (Kind::Pod, ["AddPod", "DeletePod"]),
    (Kind::Volume, ["AddPV", "DeletePV"]),
    (
        Kind::VolumeAttachment,
        ["AddVolumeAttachment", "DeleteVolumeAttachment"],
    ),
    (Kind::ResourceSlice, ["AddResourceSlice", "DeleteResourceSlice"]),
    (
        Kind::PodCertificateRequest,
        ["AddPodCertificateRequest", "DeletePodCertificateRequest"],
    ),
];
/// Upstream's: powers of two from a tenth of a millisecond on.
const BUCKETS: &[f64] = &[
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
];

/// The index. Readers never wait for more than one object's change.
#[derive(Debug)]
pub(super) struct Graph {
    index: RwLock<Index>,
    durations: Histograms<1>,
}

impl Default for Graph {
    fn default() -> Self {
        let names = CHANGES.iter().flat_map(|(_, names)| names);
        Graph {
            index: RwLock::default(),
            durations: Histograms::new(
                "node_authorizer_graph_actions_duration_seconds",
                "How long changes of the node authorizer's index took.",
                ["operation"],
                BUCKETS,
                names.map(|name| [*name]),
            ),
        }
    }
}

#[derive(Debug, Default)]
struct Index {
    /// Objects that are bound to one node, and the node.
    bound: HashMap<Kind, HashMap<Key, Bound>>,
    /// The objects that bound pods refer to, with the number of pods by node.
    referenced: HashMap<Kind, HashMap<Key, HashMap<Arc<str>, usize>>>,
    volumes: HashMap<Key, Volume>,
    volumes_of_secret: HashMap<Key, BTreeSet<Key>>,
}

#[derive(Debug)]
struct Bound {
    node: Arc<str>,
    references: Vec<(Kind, Key)>,
}

#[derive(Debug)]
struct Volume {
    claim: Key,
    secrets: Vec<Key>,
}

impl Graph {
    /// An object is bound to a node and refers to others; its former binding and references no longer count.
    pub(super) fn bind(&self, kind: Kind, own: Key, node: &str, mut references: Vec<(Kind, Key)>) {
        references.sort_unstable();
        references.dedup();
        let mut index = self.index.write();
        index.unbind(kind, &own);
        let node: Arc<str> = node.into();
        for (kind, reference) in &references {
            let of_kind = index.referenced.entry(*kind).or_default();
            let nodes = of_kind.entry(reference.clone()).or_default();
            *nodes.entry(node.clone()).or_default() += 1;
        }
        let of_kind = index.bound.entry(kind).or_default();
        of_kind.insert(own, Bound { node, references });
    }

    /// An object is gone, or is bound to no node.
    pub(super) fn unbind(&self, kind: Kind, own: &Key) {
        self.index.write().unbind(kind, own);
    }

    /// A volume is bound to a claim, and kubelets use its secrets.
    pub(super) fn bind_volume(&self, own: Key, claim: Key, secrets: Vec<Key>) {
        let mut index = self.index.write();
        index.remove_volume(&own);
        for secret in &secrets {
            let volumes = index.volumes_of_secret.entry(secret.clone()).or_default();
            volumes.insert(own.clone());
        }
        index.volumes.insert(own, Volume { claim, secrets });
    }

    /// A volume is gone, or is bound to no claim.
    pub(super) fn unbind_volume(&self, own: &Key) {
        self.index.write().remove_volume(own);
    }

    /// Makes a change of an object count, and measures it.
    pub(super) fn measured(&self, kind: Kind, is_gone: bool, change: impl FnOnce(&Self)) {
        let began = Instant::now();
        change(self);
        if let Some((_, names)) = CHANGES.iter().find(|(known, _)| *known == kind) {
            self.durations
                .observe([names[usize::from(is_gone)]], began.elapsed());
        }
    }

    /// The objects of a kind that are bound.
    pub(super) fn keys(&self, kind: Kind) -> Vec<Key> {
        let index = self.index.read();
        match kind {
            Kind::Volume => index.volumes.keys().cloned().collect(),
            kind => index
                .bound
                .get(&kind)
                .into_iter()
                .flat_map(HashMap::keys)
                .cloned()
                .collect(),
        }
    }

    /// Whether a node has to do with an object.
    pub(super) fn is_related(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let own = key(namespace, name);
        let index = self.index.read();
        match kind {
            Kind::Pod | Kind::ResourceSlice | Kind::VolumeAttachment | Kind::PodCertificateRequest => index
                .bound
                .get(&kind)
                .and_then(|of_kind| of_kind.get(&own))
                .is_some_and(|bound| &*bound.node == node),
            Kind::Volume => index.is_volume_of(node, &own),
            Kind::Secret => {
                let volumes = index.volumes_of_secret.get(&own);
                let by_volume = volumes
                    .into_iter()
                    .flatten()
                    .any(|volume| index.is_volume_of(node, volume));
                by_volume || index.is_referenced(node, kind, &own)
            }
            Kind::ConfigMap | Kind::ServiceAccount | Kind::Claim | Kind::ResourceClaim => {
                index.is_referenced(node, kind, &own)
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let index = self.index.read();
        index.bound.values().all(HashMap::is_empty)
            && index.referenced.values().all(HashMap::is_empty)
            && index.volumes.is_empty()
            && index.volumes_of_secret.is_empty()
    }
}

impl Collect for Graph {
    fn collect(&self, out: &mut String) {
        self.durations.write(out);
    }
}

impl Index {
    fn is_referenced(&self, node: &str, kind: Kind, own: &Key) -> bool {
        self.referenced
            .get(&kind)
            .and_then(|of_kind| of_kind.get(own))
            .is_some_and(|nodes| nodes.contains_key(node))
    }

    fn is_volume_of(&self, node: &str, volume: &Key) -> bool {
        self.volumes
            .get(volume)
            .is_some_and(|volume| self.is_referenced(node, Kind::Claim, &volume.claim))
    }

    fn unbind(&mut self, kind: Kind, own: &Key) {
        let of_kind = self.bound.get_mut(&kind);
        let Some(bound) = of_kind.and_then(|of_kind| of_kind.remove(own)) else {
            return;
        };
        for (kind, reference) in bound.references {
            let Some(of_kind) = self.referenced.get_mut(&kind) else {
                continue;
            };
            let Some(nodes) = of_kind.get_mut(&reference) else {
                continue;
            };
            if let Some(count) = nodes.get_mut(&*bound.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&*bound.node);
                }
            }
            if nodes.is_empty() {
                of_kind.remove(&reference);
            }
        }
    }

    fn remove_volume(&mut self, own: &Key) {
        let Some(volume) = self.volumes.remove(own) else {
            return;
        };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                volumes.remove(own);
                if volumes.is_empty() {
                    self.volumes_of_secret.remove(&secret);
                }
            }
        }
    }
}
