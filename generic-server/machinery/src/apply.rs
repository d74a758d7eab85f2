//! Server-side apply and the bookkeeping of field ownership for every other write.
//!
//! [`update`] records a write that is already merged; [`apply`] merges a configuration into an object and refuses to take
//! over fields of other managers. Both keep `metadata.managedFields` as upstream does, including its habits: `before-first-apply`,
//! `ancient-changes`, resets by an empty list, and the upgrade from kubectl's last-applied annotation. Mirrors
//! `k8s.io/apimachinery/pkg/util/managedfields` and `sigs.k8s.io/structured-merge-diff`.
//!
//! Nothing is kept between calls: facts about a kind come in [`Versions`] and [`Options`]. Callers are the create, update
//! and patch paths of the registry, with objects in the version of the request.

mod compare;
mod fields;
mod managed;
mod merge;
mod overlay;
mod path;
mod refusal;
mod same;
mod scale;
mod set;
mod types;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

pub use self::overlay::overlay;
pub use self::path::PathElement;
pub use self::same::same_but_times;
pub use self::scale::{ScalePaths, scale_to_parent, scale_to_subresource};
pub use self::set::Set;

use self::compare::{Comparison, Side, View, compare};
use self::fields::Duplicates;
use self::managed::{Entry, ManagerId};
use self::refusal::{Conflict, Refusal, refuse};
use self::set::{Node, Part};
use self::types::Ty;
use crate::names::object_meta::ANNOTATIONS_MAX_BYTES;
use crate::schema::SchemaRef;
use crate::{ApiError, GroupVersion, GroupVersionKind, meta};

/// The manager that owns the fields from before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager that follows kubectl's annotation.
const KUBECTL: &str = "kubectl";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The schemas of a kind's versions. Managers record the version that they wrote in.
pub trait Versions {
    /// The schema of the kind in `api_version`; `None` when that version is not (or no longer) served. Entries of such
    /// versions are dropped.
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>>;

    /// The object in another version. Called only for versions with a schema, and only when they differ.
    ///
    /// # Errors
    /// A text for the client, when the conversion fails.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;
}

/// [`Versions`] of a kind that is all alike in every version it has: conversion changes `apiVersion` only.
#[derive(Debug, Clone, Copy)]
pub struct SameShape<'a> {
    /// The versions.
    pub api_versions: &'a [&'a str],
    /// The schema of them all.
    pub schema: SchemaRef<'a>,
}

impl Versions for SameShape<'_> {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        self.api_versions.contains(&api_version).then_some(self.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut out = object.clone();
        if let Some(object) = out.as_object_mut() {
            object.insert("apiVersion".into(), api_version.into());
        }
        Ok(out)
    }
}

/// A step of a path pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This step.
    Is(PathElement<'static>),
    /// Any step.
    Any,
}

impl Pattern {
    /// A field.
    pub fn field(name: &'static str) -> Self {
        Pattern::Is(PathElement::field(name))
    }
}

/// Which fields a strategy resets, so that nobody comes to own them through this endpoint.
#[derive(Debug, Clone)]
pub enum FieldFilter {
    /// These fields and all below them are reset (`status` on the main resource).
    Exclude(Set<'static>),
    /// Everything is reset but what lies below these paths (`spec.containers[*].resources` on `pods/resize`).
    Include(Vec<Vec<Pattern>>),
}

impl FieldFilter {
    /// Resets the fields at these paths of names.
    pub fn exclude(paths: &[&[&str]]) -> Self {
        FieldFilter::Exclude(Set::of_fields(paths).into_owned())
    }

    fn filter<'a>(&self, set: &Set<'a>) -> Set<'a> {
        match self {
            FieldFilter::Exclude(excluded) => set.recursive_difference(excluded),
            FieldFilter::Include(patterns) => {
                let patterns: Vec<&[Pattern]> = patterns.iter().map(Vec::as_slice).collect();
                set.filter_nodes(&mut |node| include(node, &patterns))
            }
        }
    }
}

/// The elements that the patterns match, everything below them and everything on the way to them.
fn include<'a>(node: &Node<'a>, patterns: &[&[Pattern]]) -> Part<'a> {
    let mut behind: Vec<&[Pattern]> = Vec::new();
    for pattern in patterns {
        match pattern.split_first() {
            None => return node.part(),
            Some((Pattern::Any, rest)) => behind.push(rest),
            Some((Pattern::Is(element), rest)) if *element == node.element => behind.push(rest),
            Some(_) => {}
        }
    }
    if behind.is_empty() {
        return Part::default();
    }
    if behind.iter().any(|rest| rest.is_empty()) {
        return node.part();
    }
    Part {
        member: node.member,
        children: node.children.filter_nodes(&mut |child| include(child, &behind)),
    }
}

/// The options of a write: its manager, subresource, kind and time, and the fields that the endpoint resets.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The field manager; empty is recorded as `unknown`.
    pub manager: &'a str,
    /// The subresource written through; empty for the object itself.
    pub subresource: &'a str,
    /// The kind, in the version of the request.
    pub kind: &'a GroupVersionKind,
    /// The time to record, as RFC 3339.
    pub now: &'a str,
    /// The fields that the endpoint resets, by `apiVersion`; an empty one stands for all.
    pub filters: &'a [(&'a str, FieldFilter)],
}

impl<'a> Options<'a> {
    fn filter(&self, api_version: &str) -> Option<&'a FieldFilter> {
        self.filters
            .iter()
            .find(|(version, _)| version.is_empty() || *version == api_version)
            .map(|(_, filter)| filter)
    }

    fn id(&self, manager: &'a str, applied: bool) -> ManagerId<'a> {
        ManagerId {
            manager: Cow::Borrowed(if manager.is_empty() { "unknown" } else { manager }),
            applied,
            subresource: Cow::Borrowed(self.subresource),
        }
    }
}

/// The result of [`apply`].
#[derive(Debug)]
pub struct Applied {
    /// The merged object with its new `managedFields`, neither defaulted nor validated.
    pub object: Value,
    /// Whether anything but `managedFields` differs from the live object.
    pub changed: bool,
}

fn managed_fields(object: &Value) -> Option<&Value> {
    meta::metadata(object)?
        .get("managedFields")
        .filter(|v| !v.is_null())
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
        .filter(|v| !v.is_null())
}

/// An empty list, or one empty entry: the client wants tracking to stop.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Records a create, an update or a classic patch: sets `metadata.managedFields` of `new`, which is the object as it is
/// about to be stored, in the version of the request. `live` is what it was, in the same version; `None` on create.
///
/// As upstream, a write whose fields cannot be distinguished loses all tracking rather than failing.
pub fn update(live: Option<&Value>, new: &mut Value, versions: &dyn Versions, options: &Options<'_>) {
    let sent = take_managed_fields(new);
    let recorded = live.and_then(managed_fields);
    let (from, outcome) = record(live, new, sent.as_ref(), recorded, versions, options);
    let Some(parts) = outcome else { return };
    // Entries without changes are moved over as they were received.
    let mut source = match from {
        Source::Sent => sent,
        Source::Recorded => recorded.cloned(),
    };
    let mut entry = |index: usize| source.as_mut()?.get_mut(index).map(Value::take);
    let entries: Vec<Value> = parts
        .into_iter()
        .filter_map(|part| match part {
            managed::Part::Kept(index) => entry(index),
            managed::Part::New(entry) => Some(entry),
        })
        .collect();
    if !entries.is_empty()
        && let Some(metadata) = meta::metadata_mut(new)
    {
        metadata.insert("managedFields".into(), Value::Array(entries));
    }
}

/// Which list the entries were read from.
#[derive(Clone, Copy)]
enum Source {
    Sent,
    Recorded,
}

fn record(
    live: Option<&Value>,
    new: &Value,
    sent: Option<&Value>,
    recorded: Option<&Value>,
    versions: &dyn Versions,
    options: &Options<'_>,
) -> (Source, Option<Vec<managed::Part>>) {
    let from_live = || (Source::Recorded, managed::decode(recorded).unwrap_or_default());
    let (source, mut entries) = if !options.subresource.is_empty() {
        from_live()
    } else if sent.is_some_and(is_reset) {
        (Source::Sent, Vec::new())
    } else {
        match managed::decode(sent) {
            Ok(entries) if !entries.is_empty() => (Source::Sent, entries),
            _ => from_live(),
        }
    };
    let exists = live.is_some_and(|live| !meta::uid(live).is_empty());
    let api_version = options.kind.api_version();
    let schema = match versions.schema(&api_version) {
        Some(schema) if !(entries.is_empty() && exists) => schema,
        _ => return (source, None),
    };
    let tracking = Tracking {
        ty: Ty::root(schema),
        versions,
        options,
        api_version: &api_version,
    };
    let old = live.map_or(Side::Zero, Side::Some);
    let id = options.id(options.manager, false);
    match tracking.update(old, new, id, &mut entries) {
        Ok(()) => (source, Some(managed::parts(entries))),
        Err(_) => (source, None),
    }
}

/// The fields that no manager can own.
static STRIPPED: LazyLock<Set<'static>> = LazyLock::new(|| {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// The inputs for recording an update.
struct Tracking<'x, 'a> {
    ty: Ty<'a>,
    versions: &'x dyn Versions,
    options: &'x Options<'a>,
    api_version: &'x str,
}

impl<'a> Tracking<'_, 'a> {
    fn update(
        &self,
        old: Side<'a>,
        new: &'a Value,
        id: ManagerId<'a>,
        entries: &mut Vec<Entry<'a>>,
    ) -> Result<(), String> {
        let (versions, options, version) = (self.versions, self.options, self.api_version);
        let misfits = matches!(self.ty, Ty::Root(schema) if may_misfit(schema));
        if misfits {
            fields::validate(self.ty, new, Duplicates::Allowed)?;
            if let Side::Some(old) = old {
                fields::validate(self.ty, old, Duplicates::Allowed)?;
            }
        }
        let mut difference = compare(View::Stored, self.ty, old, Side::Some(new))?;
        // Without a change there is nothing to book, unless an entry of another version cannot be compared any more. Who owns nothing goes.
        let comparable = !misfits || entries.iter().all(|entry| entry.api_version == version);
        if difference.is_same() && comparable {
            entries.retain(|entry| {
                let known = entry.api_version == version || versions.schema(&entry.api_version).is_some();
                known && !entry.set.is_empty()
            });
            return Ok(());
        }
        let live = match old {
            Side::Some(old) if misfits => Some(old),
            _ => None,
        };
        reconcile(entries, versions, live)?;
        if let Some(filter) = options.filter(version) {
            filter_comparison(&mut difference, filter);
        }
        let change = Change {
            view: View::Stored,
            old,
            new,
            version,
            difference: &difference,
        };
        change
            .take_from_others(entries, None, versions, options, true)
            .map_err(|refusal| match refusal {
                Refusal::Other(text) => text,
                Refusal::Conflicts(_) => "conflict".into(),
            })?;
        let mut set = difference.modified.union(&difference.added);
        if let Some(filter) = options.filter(version) {
            set = filter.filter(&set);
        }
        let set = set.difference(&STRIPPED);
        if !set.is_empty() {
            let time = Some(Cow::Borrowed(options.now));
            let previous = entries.iter_mut().find(|e| e.is(&id, version));
            if let Some(previous) = previous {
                previous.set = set.union(&previous.set);
                previous.time = time;
                previous.source = None;
            } else {
                let api_version = Cow::Owned(version.to_owned());
                entries.push(Entry {
                    id,
                    api_version,
                    time,
                    set,
                    source: None,
                });
            }
        }
        managed::cap_updates(entries);
        Ok(())
    }
}

/// Whether objects may be stored that do not fit the schema: those of custom resources, written before the schema changed, in
/// another version, or in a part that the endpoint resets. Built-in kinds are decoded into their types.
fn may_misfit(schema: SchemaRef<'_>) -> bool {
    schema.node().type_name.is_none()
}

/// Drops entries of versions that are gone, and repairs those written before the schema changed. `live`: the object, where it may be that it does
/// not fit the schema of a version in which it is owned.
///
/// # Errors
/// What does not fit, in upstream's words.
fn reconcile(
    entries: &mut Vec<Entry<'_>>,
    versions: &dyn Versions,
    live: Option<&Value>,
) -> Result<(), String> {
    if let Some(live) = live {
        let mut checked = vec![meta::api_version(live)];
        for entry in entries.iter() {
            let version = &*entry.api_version;
            if let Some(schema) = versions.schema(version)
                && !checked.contains(&version)
            {
                checked.push(version);
                converted(versions, live, version, Ty::root(schema))?;
            }
        }
    }
    entries.retain_mut(|entry| match versions.schema(&entry.api_version) {
        Some(schema) => {
            if fields::reconcile(&mut entry.set, Ty::root(schema)) {
                entry.source = None;
            }
            true
        }
        None => false,
    });
    Ok(())
}

fn filter_comparison(comparison: &mut Comparison<'_>, filter: &FieldFilter) {
    comparison.removed = filter.filter(&comparison.removed);
    comparison.modified = filter.filter(&comparison.modified);
    comparison.added = filter.filter(&comparison.added);
}

/// A write, as it affects field owners.
struct Change<'x, 'a> {
    view: View,
    old: Side<'x>,
    new: &'x Value,
    version: &'x str,
    difference: &'x Comparison<'a>,
}

impl Change<'_, '_> {
    /// Takes changed and removed fields away from all managers but `applying`. Without `force`, changed fields of others
    /// are conflicts.
    fn take_from_others(
        &self,
        entries: &mut Vec<Entry<'_>>,
        applying: Option<&ManagerId<'_>>,
        versions: &dyn Versions,
        options: &Options<'_>,
        force: bool,
    ) -> Result<(), Refusal> {
        let changed = self.difference.modified.union(&self.difference.added);
        let mut others: Vec<(String, Set<'static>, Set<'static>)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut lost: Vec<(usize, Set<'static>)> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            if applying.is_some_and(|id| entry.is(id, &entry.api_version)) {
                continue;
            }
            let (taken, gone) = if entry.api_version == self.version {
                (
                    entry.set.intersection(&changed),
                    entry.set.intersection(&self.difference.removed),
                )
            } else {
                let known = others
                    .iter()
                    .position(|(version, ..)| *version == *entry.api_version);
                let at = match known {
                    Some(at) => at,
                    None => {
                        others.push(self.in_version(&entry.api_version, versions, options)?);
                        others.len() - 1
                    }
                };
                (
                    entry.set.intersection(&others[at].1),
                    entry.set.intersection(&others[at].2),
                )
            };
            if !force && !taken.is_empty() {
                conflicts.push(Conflict {
                    identifier: entry.identifier(),
                    shown: entry.show(),
                    fields: taken.clone().into_owned(),
                });
            }
            let away = taken.union(&gone);
            if !away.is_empty() {
                lost.push((index, away.into_owned()));
            }
        }
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.identifier.cmp(&b.identifier));
            return Err(Refusal::Conflicts(conflicts));
        }
        for (index, away) in lost {
            let entry = &mut entries[index];
            entry.set = entry.set.difference(&away);
            entry.source = None;
        }
        entries.retain(|entry| !entry.set.is_empty());
        Ok(())
    }

    fn in_version(
        &self,
        version: &str,
        versions: &dyn Versions,
        options: &Options<'_>,
    ) -> Result<(String, Set<'static>, Set<'static>), String> {
        let nothing = (version.to_owned(), Set::default(), Set::default());
        let Some(schema) = versions.schema(version) else {
            return Ok(nothing);
        };
        let ty = Ty::root(schema);
        let converted = |what: &str, object: &Value| {
            converted(versions, object, version, ty)
                .map_err(|e| format!("failed to convert {what} object: {e}"))
        };
        let old = match self.old {
            Side::Some(old) => Some(converted("old", old)?),
            Side::None | Side::Zero => None,
        };
        let new = converted("new", self.new)?;
        let side = old.as_ref().map_or(Side::Zero, Side::Some);
        let mut difference = compare(self.view, ty, side, Side::Some(&new))?;
        if let Some(filter) = options.filter(version) {
            filter_comparison(&mut difference, filter);
        }
        let difference = difference.into_owned();
        Ok((
            version.to_owned(),
            difference.modified.union(&difference.added),
            difference.removed,
        ))
    }
}

/// The object in another version, where it has to fit that version's schema.
fn converted(versions: &dyn Versions, object: &Value, version: &str, ty: Ty<'_>) -> Result<Value, String> {
    let object = versions.convert(object, version)?;
    fields::validate(ty, &object, Duplicates::Refused)?;
    Ok(object)
}

/// Merges `patch` into `live` for a manager that from now on owns the fields it mentions. `live` is in the version of the
/// request, `None` when there is no such object yet. With `force`, conflicting fields change hands.
///
/// # Errors
/// - 400 when the patch is of another kind or brings `managedFields`;
/// - 500 `failed to create typed patch object (...)` when it does not fit the schema;
/// - 409 with a cause per field that others own.
pub fn apply(
    live: Option<&Value>,
    patch: &Value,
    versions: &dyn Versions,
    options: &Options<'_>,
    force: bool,
) -> Result<Applied, ApiError> {
    let found = patch_kind(patch);
    if found != *options.kind {
        return Err(ApiError::bad_request(format!("invalid object type: {found}")));
    }
    let empty = Value::Object(Map::new());
    let mut bare = live.unwrap_or(&empty).clone();
    let recorded = take_managed_fields(&mut bare);
    let entries = managed::decode(recorded.as_ref())
        .map_err(|e| ApiError::raw_internal(format!("failed to decode managed fields: {e}")))?;
    if managed_fields(patch).is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let api_version = options.kind.api_version();
    let schema = versions
        .schema(&api_version)
        .ok_or_else(|| ApiError::raw_internal(format!("no corresponding type for {}", options.kind)))?;
    let ty = Ty::root(schema);
    let checked = |what: &str, object: &Value, duplicates: Duplicates| {
        fields::validate(ty, object, duplicates).map_err(|e| {
            ApiError::raw_internal(format!(
                "failed to create typed {what} object ({}/{}; {}): {e}",
                meta::namespace(object),
                meta::name(object),
                options.kind
            ))
        })
    };
    checked("patch", patch, Duplicates::Refused)?;
    if live.is_some() && may_misfit(schema) {
        checked("live", &bare, Duplicates::Allowed)?;
    }
    let applying = Applying {
        live: &bare,
        patch,
        ty,
        versions,
        options,
        api_version: &api_version,
    };
    let (object, mut entries) = applying.run(entries, live.is_some(), force).map_err(refuse)?;
    let changed = object.is_some();
    let mut object = object.unwrap_or_else(|| bare.clone());
    let id = options.id(options.manager, true);
    if changed && let Some(entry) = entries.iter_mut().find(|e| e.is(&id, "")) {
        entry.time = Some(Cow::Borrowed(options.now));
    }
    let entries = managed::encode(entries);
    if options.manager == KUBECTL {
        follow_annotation(&mut object, patch);
    }
    if let Some(entries) = entries
        && let Some(metadata) = meta::metadata_mut(&mut object)
    {
        metadata.insert("managedFields".into(), entries);
    }
    Ok(Applied { object, changed })
}

fn patch_kind(patch: &Value) -> GroupVersionKind {
    match GroupVersion::parse(meta::api_version(patch)) {
        Some(version) => version.kind(meta::kind(patch)),
        None => GroupVersionKind::new("", "", meta::kind(patch)),
    }
}

/// One apply, with all that its steps need.
struct Applying<'a> {
    live: &'a Value,
    patch: &'a Value,
    ty: Ty<'a>,
    versions: &'a dyn Versions,
    options: &'a Options<'a>,
    api_version: &'a str,
}

type Outcome<'a> = (Option<Value>, Vec<Entry<'a>>);

impl<'a> Applying<'a> {
    fn run(&self, mut entries: Vec<Entry<'a>>, exists: bool, force: bool) -> Result<Outcome<'a>, Refusal> {
        if entries.is_empty() && exists {
            let id = self.options.id(BEFORE_FIRST_APPLY, false);
            let tracking = Tracking {
                ty: self.ty,
                versions: self.versions,
                options: self.options,
                api_version: self.api_version,
            };
            tracking
                .update(Side::Zero, self.live, id, &mut entries)
                .map_err(|e| format!("failed to create manager for existing fields: {e}"))?;
        }
        match self.merge(entries.clone(), force) {
            Err(Refusal::Conflicts(conflicts)) if self.options.manager == KUBECTL => {
                let Some(allowed) = self.allowed_by_annotation() else {
                    return Err(Refusal::Conflicts(conflicts));
                };
                let left = conflicts.into_iter().map(|conflict| Conflict {
                    fields: conflict.fields.difference(&allowed),
                    ..conflict
                });
                let left: Vec<Conflict> = left.filter(|conflict| !conflict.fields.is_empty()).collect();
                if left.is_empty() {
                    self.merge(entries, true)
                } else {
                    Err(Refusal::Conflicts(left))
                }
            }
            outcome => outcome,
        }
    }

    fn merge(&self, mut entries: Vec<Entry<'a>>, force: bool) -> Result<Outcome<'a>, Refusal> {
        let (ty, version) = (self.ty, self.api_version);
        let misfits = matches!(ty, Ty::Root(schema) if may_misfit(schema));
        reconcile(&mut entries, self.versions, Some(self.live).filter(|_| misfits))?;
        let merged =
            merge::merge(ty, self.live, self.patch).map_err(|e| format!("failed to merge config: {e}"))?;
        let mut set = fields::field_set(ty, self.patch);
        if let Some(filter) = self.options.filter(version) {
            set = filter.filter(&set);
        }
        let id = self.options.id(self.options.manager, true);
        let previous = entries
            .iter()
            .position(|e| e.is(&id, ""))
            .map(|at| entries.remove(at));
        let own = Entry {
            id: id.clone(),
            api_version: Cow::Borrowed(version),
            time: previous.as_ref().and_then(|p| p.time.clone()),
            set,
            source: None,
        };
        entries.push(own);
        let merged = match previous {
            Some(previous) => self
                .prune(merged, &previous, &entries)
                .map_err(|e| format!("failed to prune fields: {e}"))?,
            None => merged,
        };
        let mut difference = compare(View::Merged, ty, Side::Some(self.live), Side::Some(&merged))
            .map_err(|e| format!("failed to compare objects: {e}"))?;
        if let Some(filter) = self.options.filter(version) {
            filter_comparison(&mut difference, filter);
        }
        let change = Change {
            view: View::Merged,
            old: Side::Some(self.live),
            new: &merged,
            version,
            difference: &difference,
        };
        change.take_from_others(&mut entries, Some(&id), self.versions, self.options, force)?;
        for entry in entries.iter_mut().filter(|e| e.is(&id, "")) {
            entry.set = entry.set.difference(&STRIPPED);
        }
        entries.retain(|entry| !entry.set.is_empty());
        let changed = !path::equal(self.live, &merged);
        Ok((changed.then_some(merged), entries))
    }

    /// Takes out what the manager applied before, does not apply now, and no other manager owns.
    fn prune(&self, merged: Value, previous: &Entry<'_>, entries: &[Entry<'_>]) -> Result<Value, String> {
        let last_version = &*previous.api_version;
        let kept = |own: &Entry<'_>| own.api_version == last_version && previous.set.is_subset(&own.set);
        if previous.set.is_empty() || entries.last().is_some_and(kept) {
            return Ok(merged);
        }
        let Some(schema) = self.versions.schema(last_version) else {
            return Ok(merged);
        };
        let ty = Ty::root(schema);
        let at = |object: &Value, version: &str| -> Result<Value, String> {
            if meta::api_version(object) == version {
                return Ok(object.clone());
            }
            match self.versions.schema(version) {
                Some(schema) => converted(self.versions, object, version, Ty::root(schema)),
                None => self.versions.convert(object, version),
            }
        };
        let whole = at(&merged, last_version)?;
        let last = fields::with_named_fields(&previous.set, Some(ty));
        let mut pruned = merge::remove(ty, &whole, &last);
        // Fields with any owner are put back, version by version, starting with that of the last configuration.
        let mut owners: BTreeMap<&str, Vec<Set<'_>>> = BTreeMap::new();
        for entry in entries {
            let sets = owners.entry(&entry.api_version).or_default();
            sets.push(entry.set.clone());
        }
        let mut owned: Vec<(&str, Set<'_>)> = owners
            .into_iter()
            .map(|(version, sets)| (version, Set::union_of(sets)))
            .collect();
        owned.sort_by_key(|(version, _)| *version != last_version);
        let mut current = whole.clone();
        for (version, set) in &owned {
            let Some(schema) = self.versions.schema(version) else {
                continue;
            };
            let ty = Ty::root(schema);
            current = at(&current, version)?;
            pruned = at(&pruned, version)?;
            let all = fields::with_named_fields(&fields::field_set(ty, &current), Some(ty));
            let left = fields::with_named_fields(&fields::field_set(ty, &pruned), Some(ty));
            let owned = fields::with_named_fields(set, Some(ty));
            let gone = all.difference(&left).difference(&owned);
            pruned = merge::remove(ty, &current, &gone);
        }
        // Fields without an owner were removed only with their parents: they are restored too.
        let pruned = at(&pruned, last_version)?;
        let left = fields::with_named_fields(&fields::field_set(ty, &pruned), Some(ty));
        let all = fields::with_named_fields(&fields::field_set(ty, &whole), Some(ty));
        let gone = all.difference(&left).intersection(&last);
        let pruned = merge::remove(ty, &whole, &gone);
        at(&pruned, self.api_version)
    }

    /// The fields that kubectl's client-side apply set to what they still are: taking those over is no conflict.
    fn allowed_by_annotation(&self) -> Option<Set<'static>> {
        let text = meta::annotations(self.live)?
            .get(LAST_APPLIED)?
            .as_str()
            .filter(|t| !t.is_empty())?;
        let last: Value = serde_json::from_str(text).ok()?;
        if meta::api_version(&last) != self.api_version {
            return None;
        }
        fields::validate(self.ty, &last, Duplicates::Refused).ok()?;
        let difference = compare(View::Merged, self.ty, Side::Some(&last), Side::Some(self.live)).ok()?;
        let set = fields::field_set(self.ty, &last);
        let set = set
            .difference(&difference.modified)
            .difference(&difference.added)
            .difference(&difference.removed);
        Some(set.into_owned())
    }
}

/// Keeps kubectl's annotation, where there is one, at the last applied configuration.
fn follow_annotation(object: &mut Value, patch: &Value) {
    let present = meta::annotations(object)
        .and_then(|a| a.get(LAST_APPLIED))
        .and_then(Value::as_str)
        .is_some_and(|text| !text.is_empty());
    if !present {
        return;
    }
    let mut applied = patch.clone();
    let own = applied
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    if let Some(annotations) = own {
        annotations.remove(LAST_APPLIED);
    }
    // As Go's encoder writes it: with the characters that HTML minds escaped, and a line end.
    let mut text = applied.to_string();
    for (plain, escaped) in [
        ("&", "\\u0026"),
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        text = text.replace(plain, escaped);
    }
    text.push('\n');
    let annotations = object
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    annotations.insert(LAST_APPLIED.into(), text.into());
    let size: usize = annotations
        .iter()
        .map(|(k, v)| k.len() + v.as_str().map_or(0, str::len))
        .sum();
    if size > ANNOTATIONS_MAX_BYTES {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests;
