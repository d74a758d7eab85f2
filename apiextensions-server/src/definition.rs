//! A CRD as the server needs it to route: small, immutable, made from the stored object when that changes.
//!
//! The costly parts (schemas, columns, rules) are in [`Serving`], compiled per version on first use and dropped when idle; both a
//! new [`Definition`] of an unchanged spec and requests under way share it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use generic_server::registry::{Entry, ObjectStore};
use generic_server::resource::{Names, ScalePaths, Scope, ServedResource};
use machinery::meta;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use storage::Revision;

use crate::convert::{Answers, WebhookClient};
use crate::crd::internal::{Spec, has_status};
use crate::crd::naming::{self, Claims, Naming};
use crate::crd::strategy::CLEANUP_FINALIZER;
use crate::crd::{priority, status};
use crate::slot::Slot;
use crate::usage::Usage;

/// The large parts of a CRD, which routing does not look at.
pub(crate) const HEAVY: [&str; 2] = ["openAPIV3Schema", "managedFields"];

/// One version of a CRD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VersionInfo {
    pub(crate) name: Arc<str>,
    pub(crate) served: bool,
    pub(crate) storage: bool,
    /// The warning of a deprecated version.
    pub(crate) warning: Option<String>,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Paths of selectable fields, without the leading dot.
    pub(crate) selectable: Vec<String>,
}

/// How objects travel between versions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Conversion {
    /// Versions differ in `apiVersion` alone.
    None,
    /// A webhook is asked: `spec.conversion`.
    Webhook(Value),
}

/// The facts that decide how a CRD is served; equal facts are served by the same [`Serving`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    pub(crate) names: Names,
    pub(crate) scope: Scope,
    pub(crate) conversion: Conversion,
    pub(crate) versions: Vec<VersionInfo>,
    /// The versions that objects may be stored at.
    pub(crate) stored_versions: Vec<String>,
}

impl Facts {
    /// The selectable fields of all versions, which the store indexes.
    pub(crate) fn indexed_fields(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let fields = self.versions.iter().flat_map(|v| &v.selectable);
        fields
            .map(String::as_str)
            .filter(|field| seen.insert(*field))
            .collect()
    }
}

/// The compiled and opened parts of a CRD that is in use.
#[derive(Debug)]
pub(crate) struct Serving {
    /// One per version, in their order.
    pub(crate) slots: Vec<Slot<ServedResource>>,
    /// The source of reads while there are no objects.
    pub(crate) reader: Slot<ServedResource>,
    /// The objects; opened by the first request.
    pub(crate) store: OnceLock<Arc<ObjectStore>>,
    /// The CRD is being deleted: nothing new is created.
    pub(crate) terminating: Arc<AtomicBool>,
    /// The conversion webhook, when something has to be converted.
    pub(crate) webhook: OnceLock<Arc<WebhookClient>>,
    /// Its cached answers.
    pub(crate) answers: Arc<Answers>,
    /// The CRD's revision at which its status said all that there was to say, while it had all its names.
    pub(crate) reconciled: AtomicU64,
    /// The CRD's revision that brought these facts; later writes of objects have its defaults.
    pub(crate) since: Revision,
}

impl Serving {
    fn new(versions: usize, since: Revision) -> Arc<Self> {
        Arc::new(Serving {
            slots: (0..versions).map(|_| Slot::default()).collect(),
            reader: Slot::default(),
            store: OnceLock::new(),
            terminating: Arc::default(),
            webhook: OnceLock::new(),
            answers: Arc::default(),
            reconciled: AtomicU64::new(0),
            since,
        })
    }

    fn with_store_of(versions: usize, since: Revision, old: &Serving) -> Arc<Self> {
        let new = Self::new(versions, since);
        if let Some(store) = old.store.get() {
            // A fresh cell takes the first value.
            let _ = new.store.set(store.clone());
        }
        new
    }
}

/// A CRD.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// `foos.example.com`.
    pub(crate) name: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
    /// The stored object; its bytes are the cache's.
    pub(crate) entry: Arc<Entry>,
    pub(crate) facts: Arc<Facts>,
    /// The accepted names, or those that are about to be accepted.
    pub(crate) accepted: Value,
    /// All its names were given.
    pub(crate) names_accepted: bool,
    /// It may be served.
    pub(crate) established: bool,
    /// It is being deleted: nothing new is created.
    pub(crate) terminating: bool,
    /// It is being deleted and waits for its objects to go.
    pub(crate) finalizing: bool,
    pub(crate) serving: Arc<Serving>,
    /// The costs of its objects, for as long as the CRD is there.
    pub(crate) usage: Arc<Usage>,
}

fn path_keys(path: &str) -> Vec<String> {
    path.trim_start_matches('.')
        .split('.')
        .map(str::to_string)
        .collect()
}

fn strings(of: &Value, key: &str) -> Vec<String> {
    let list = of.get(key).and_then(Value::as_array);
    let list = list.into_iter().flatten().filter_map(Value::as_str);
    list.map(str::to_string).collect()
}

/// Where every version with or without a scale has its replicas.
fn replicas_of_versions(spec: &Spec<'_>) -> Vec<(String, Option<Vec<String>>)> {
    let of = |version: &crate::crd::internal::Version<'_>| {
        let path = spec
            .subresources_of(version)
            .and_then(|s| s.get("scale")?.get("specReplicasPath")?.as_str())
            .map(path_keys);
        (format!("{}/{}", spec.group, version.name), path)
    };
    spec.versions.iter().map(of).collect()
}

fn versions(spec: &Spec<'_>) -> Vec<VersionInfo> {
    let kind = spec.name("kind");
    let of = |v: &crate::crd::internal::Version<'_>| {
        let subresources = spec.subresources_of(v);
        let scale = subresources
            .and_then(|s| s.get("scale"))
            .filter(|s| s.is_object());
        let keys = |key: &str| {
            scale
                .and_then(|s| s.get(key))
                .and_then(Value::as_str)
                .map(path_keys)
        };
        let selectable = if v.selectable.is_empty() {
            spec.selectable
        } else {
            v.selectable
        };
        VersionInfo {
            name: v.name.into(),
            served: v.served,
            storage: v.storage,
            warning: v.deprecated.then(|| match v.deprecation_warning {
                Some(text) => text.to_string(),
                None => default_warning(spec, v.name, kind),
            }),
            has_status: has_status(subresources),
            scale: scale.map(|_| ScalePaths {
                spec_replicas: keys("specReplicasPath").unwrap_or_default(),
                status_replicas: keys("statusReplicasPath").unwrap_or_default(),
                selector: keys("labelSelectorPath"),
                others: replicas_of_versions(spec),
            }),
            selectable: selectable
                .iter()
                .filter_map(|f| f.get("jsonPath").and_then(Value::as_str))
                .map(|p| p.trim_start_matches('.').to_string())
                .collect(),
        }
    };
    spec.versions.iter().map(of).collect()
}

fn default_warning(spec: &Spec<'_>, version: &str, kind: &str) -> String {
    let group = spec.group;
    let newer = spec
        .versions
        .iter()
        .filter(|v| v.served && !v.deprecated && priority::compare(version, v.name).is_lt())
        .max_by(|a, b| priority::compare(a.name, b.name));
    match newer {
        Some(newer) => {
            let name = newer.name;
            format!("{group}/{version} {kind} is deprecated; use {group}/{name} {kind}")
        }
        None => format!("{group}/{version} {kind} is deprecated"),
    }
}

impl Definition {
    /// From a stored CRD. `claims` are the names of the other CRDs in its group; `old` is its previous definition.
    pub(crate) fn new(entry: &Arc<Entry>, claims: &dyn Claims, old: Option<&Definition>) -> Definition {
        let crd = entry.value_without(&HEAVY);
        let spec = Spec::of(&crd);
        let decided = status::find(&crd, "NamesAccepted").is_some();
        let (accepted, names_accepted) = if decided {
            let accepted = crd.pointer("/status/acceptedNames").cloned().unwrap_or_default();
            (accepted, status::is_true(&crd, "NamesAccepted"))
        } else {
            // It is new: its future status is decided already, so that it is served from the start.
            let naming: Naming = naming::decide(&crd, claims);
            let is_accepted = naming.is_accepted();
            (naming.accepted, is_accepted)
        };
        let text = |key: &str| accepted.get(key).and_then(Value::as_str).unwrap_or_default();
        let facts = Facts {
            uid: meta::uid(&crd).into(),
            generation: meta::generation(&crd),
            names: Names {
                kind: text("kind").into(),
                list_kind: text("listKind").into(),
                singular: text("singular").into(),
                short: strings(&accepted, "shortNames"),
                categories: strings(&accepted, "categories"),
            },
            scope: match spec.scope {
                "Namespaced" => Scope::Namespaced,
                _ => Scope::Cluster,
            },
            conversion: match spec.conversion {
                Some(c) if c.get("strategy").and_then(Value::as_str) == Some("Webhook") => {
                    Conversion::Webhook(c.clone())
                }
                _ => Conversion::None,
            },
            versions: versions(&spec),
            stored_versions: status::stored_versions(&crd).map(str::to_string).collect(),
        };
        let serving = match old {
            Some(old) if *old.facts == facts => old.serving.clone(),
            Some(old) if old.shares_store_with(&facts) => {
                Serving::with_store_of(facts.versions.len(), entry.revision, &old.serving)
            }
            _ => Serving::new(facts.versions.len(), entry.revision),
        };
        let usage = match old {
            Some(old) if old.facts.uid == facts.uid => old.usage.clone(),
            _ => Arc::default(),
        };
        let terminating = status::is_true(&crd, "Terminating");
        serving.terminating.store(terminating, Ordering::Release);
        Definition {
            name: meta::name(&crd).into(),
            group: spec.group.into(),
            plural: spec.name("plural").into(),
            entry: entry.clone(),
            names_accepted,
            established: names_accepted || status::is_true(&crd, "Established"),
            terminating,
            finalizing: meta::deletion_timestamp(&crd).is_some()
                && meta::finalizers(&crd).any(|f| f == CLEANUP_FINALIZER),
            facts: Arc::new(facts),
            accepted,
            serving,
            usage,
        }
    }

    /// Whether objects of a CRD with these facts are in the same store: same incarnation, same keys, same indexed fields.
    fn shares_store_with(&self, other: &Facts) -> bool {
        self.facts.uid == other.uid
            && self.facts.scope == other.scope
            && self.facts.names.kind == other.names.kind
            && self.facts.indexed_fields() == other.indexed_fields()
    }

    /// A version by name, with its slot.
    pub(crate) fn version(&self, name: &str) -> Option<(&VersionInfo, &Slot<ServedResource>)> {
        let versions = self.facts.versions.iter().zip(&self.serving.slots);
        versions.into_iter().find(|(v, _)| *v.name == *name)
    }

    /// The version that objects are stored at.
    pub(crate) fn storage_version(&self) -> Option<&VersionInfo> {
        self.facts.versions.iter().find(|v| v.storage)
    }

    /// The `storageVersionHash` that every version of it has.
    pub(crate) fn storage_version_hash(&self) -> String {
        let Some(version) = self.storage_version() else {
            return String::new();
        };
        storage_version_hash(&self.group, &version.name, &self.facts.names.kind)
    }
}

/// `storageVersionHash` of objects stored at a version.
pub(crate) fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    let text = format!("{group}/{version}/{kind}");
    BASE64_STANDARD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..8])
}

#[cfg(test)]
mod tests {
    #[test]
    fn hashes_are_upstreams() {
        let hash = super::storage_version_hash("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition");
        assert_eq!(hash, "jfWCUB31mvA=");
    }
}
