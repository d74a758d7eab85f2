//! Carrying ownership through the scale subresource: a `Scale` shows the owners of the replicas of its parent, and a write to
//! it moves that ownership. Mirrors upstream's `managedfields/scalehandler.go`.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use super::managed::{self, Entry, Key};
use super::path::PathElement;
use super::set::Set;

const SCALE_VERSION: &str = "autoscaling/v1";

/// Per `apiVersion` of the parent where its replicas are; `None` where that version has no scale subresource.
pub type ScalePaths<'a> = [(&'a str, Option<&'a [&'a str]>)];

fn path_in<'a>(paths: &ScalePaths<'a>, api_version: &str) -> Option<Option<Vec<PathElement<'a>>>> {
    let (_, path) = paths.iter().find(|(version, _)| *version == api_version)?;
    Some(path.map(|path| path.iter().map(|name| PathElement::field(*name)).collect()))
}

fn single<'a>(path: &[PathElement<'a>]) -> Set<'a> {
    let mut set = Set::default();
    set.insert(path);
    set
}

fn replicas() -> [PathElement<'static>; 2] {
    [PathElement::field("spec"), PathElement::field("replicas")]
}

/// The `managedFields` of the `Scale` of an object with these. `None` when the replicas have no owner.
///
/// # Errors
/// When the parent's entries are malformed.
pub fn scale_to_subresource(parent: Option<&Value>, paths: &ScalePaths<'_>) -> Result<Option<Value>, String> {
    let mut out = Vec::new();
    for entry in managed::decode(parent)? {
        let Some(Some(path)) = path_in(paths, &entry.api_version) else {
            continue;
        };
        if entry.set.has(&path) {
            // The identity of an update holds the parent's version; only what is shown changes.
            out.push(Entry {
                api_version: Cow::Borrowed(SCALE_VERSION),
                set: single(&replicas()),
                ..entry
            });
        }
    }
    Ok(managed::encode(out))
}

/// The parent's new `managedFields` after its `Scale` was written and has these; `api_version` is the parent's version.
///
/// # Errors
/// When either's entries are malformed.
pub fn scale_to_parent(
    parent: Option<&Value>,
    scale: Option<&Value>,
    api_version: &str,
    paths: &ScalePaths<'_>,
) -> Result<Option<Value>, String> {
    let mut scale: Vec<Option<Entry<'_>>> = managed::decode(scale)?.into_iter().map(Some).collect();
    let own = replicas();
    let mut out: Vec<Entry<'_>> = Vec::new();
    let parents = managed::decode(parent)?;
    let known = scale.clone();
    let places: HashMap<Key<'_>, usize> = known
        .iter()
        .flatten()
        .enumerate()
        .map(|(at, entry)| (entry.key(), at))
        .collect();
    let times: HashMap<Key<'_>, &Entry<'_>> = parents.iter().map(|entry| (entry.key(), entry)).collect();
    for entry in parents.clone() {
        let Some(path) = path_in(paths, &entry.api_version) else {
            continue;
        };
        let path = match path {
            Some(path) if entry.set.has(&path) => path,
            _ => {
                out.push(entry);
                continue;
            }
        };
        // Updates recorded through the scale carry the scale's version, so only applied entries are found again.
        if let Some(at) = places.get(&entry.key()) {
            scale[*at] = None;
            out.push(entry);
        } else {
            let set = entry.set.difference(&single(&path));
            if !set.is_empty() {
                out.push(Entry { set, ..entry });
            }
        }
    }
    let path = path_in(paths, api_version).flatten().unwrap_or_default();
    for entry in scale.into_iter().flatten() {
        if !entry.set.has(&own) {
            continue;
        }
        let entry = Entry {
            // Upstream looks the time up in the parent, where an update through the scale has none.
            time: times.get(&entry.key()).and_then(|parent| parent.time.clone()),
            id: entry.id,
            api_version: Cow::Owned(api_version.to_owned()),
            set: single(&path),
            source: None,
        };
        out.push(entry);
    }
    Ok(managed::encode(out))
}
