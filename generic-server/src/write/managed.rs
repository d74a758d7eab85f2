//! Managed fields around a write: the manager, the fields that are reset, and the small rules about metadata that go with it. The
//! set arithmetic is [`machinery::apply`]'s.

use std::collections::HashSet;

use machinery::apply::{self, FieldFilter, Options, SameShape, Versions};
use machinery::schema::{KindSchema, SchemaRef, builtin};
use machinery::{ApiError, GroupVersion, GroupVersionKind, limits, meta};
use serde_json::Value;

use crate::registry::strategy::{OtherVersion, ResetVersions, Strategy, VersionSchemas};
use crate::request::Authorized;
use crate::resource::{Decoding, ScalePaths, ServedResource};

/// The longest name of a manager that is taken from a User-Agent.
const MAX_MANAGER: usize = 128;

/// The manager of a write: the client's `fieldManager`, else its User-Agent up to the first slash.
pub(crate) fn manager<'a>(named: &'a str, authorized: &'a Authorized) -> std::borrow::Cow<'a, str> {
    if !named.is_empty() {
        return named.into();
    }
    let agent = &authorized.context().user_agent;
    let agent = agent.split('/').next().unwrap_or_default();
    let printable: String = agent.chars().filter(|c| !c.is_control()).collect();
    let mut end = printable.len().min(MAX_MANAGER);
    while !printable.is_char_boundary(end) {
        end -= 1;
    }
    printable[..end].to_string().into()
}

/// Owner references of one object are one: equal ones are dropped with a warning.
pub(crate) fn dedup_owners(authorized: &Authorized, object: &mut Value, after_admission: bool) {
    let references = meta::owner_references(object);
    if references.len() < 2 {
        return;
    }
    let mut seen: HashSet<&Value> = HashSet::with_capacity(references.len());
    let mut twice: Vec<&str> = Vec::new();
    for reference in references {
        if !seen.insert(reference) {
            twice.push(reference.get("uid").and_then(Value::as_str).unwrap_or_default());
        }
    }
    if twice.is_empty() {
        return;
    }
    seen.clear();
    let kept: Vec<Value> = references
        .iter()
        .filter(|reference| seen.insert(*reference))
        .cloned()
        .collect();
    let more = if twice.len() > limits::CAUSES { ", ..." } else { "" };
    twice.truncate(limits::CAUSES);
    let when = if after_admission {
        " after mutating admission happens"
    } else {
        ""
    };
    authorized.context().warn(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}{more}",
        twice.join(", ")
    ));
    meta::set(object, "ownerReferences", kept);
}

/// A write that changes nothing but the times of managed fields changes nothing.
pub(crate) fn ignore_time_only(object: &mut Value, live: &Value) {
    let fields = |object: &Value| {
        meta::metadata(object)
            .and_then(|m| m.get("managedFields"))
            .cloned()
    };
    if fields(object) != fields(live) && apply::same_but_times(live, object) {
        meta::set(object, "managedFields", fields(live).unwrap_or_default());
    }
}

/// The versions of a resource, as field ownership asks for them. Versions of one group are of one shape, but for those that
/// the strategy names and for custom resources, whose versions have schemas of their own.
struct OfResource<'a> {
    resource: &'a ServedResource,
    schema: SchemaRef<'a>,
    others: &'a [(OtherVersion, KindSchema)],
    custom: Option<&'a dyn VersionSchemas>,
}

impl OfResource<'_> {
    fn other(&self, api_version: &str) -> Option<&(OtherVersion, KindSchema)> {
        self.others
            .iter()
            .find(|(other, _)| other.api_version == api_version)
    }
}

impl Versions for OfResource<'_> {
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>> {
        if let Some((_, schema)) = self.other(api_version) {
            return Some(schema.root());
        }
        if let Some(custom) = self.custom
            && *api_version != self.resource.gvk.api_version()
        {
            return custom.schema(api_version).map(KindSchema::root);
        }
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let of_group = group == &*self.resource.gvr.group;
        let exists = || {
            let version = &api_version[group.len()..].trim_start_matches('/');
            *version == &*self.resource.gvk.version
                || builtin().kind(group, version, &self.resource.gvk.kind).is_some()
        };
        (of_group && (self.resource.custom || exists())).then_some(self.schema)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = object.clone();
        let text = |error: ApiError| error.message().to_owned();
        if let Some((other, _)) = self.other(meta::api_version(&object)) {
            object = (other.from)(object).map_err(text)?;
        }
        if let Some((other, _)) = self.other(api_version) {
            object = (other.to)(object).map_err(text)?;
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), api_version.into());
        }
        Ok(object)
    }
}

/// The fields that a write through this strategy resets, by version. `api_version` is that of the write.
fn filters<'a>(strategy: &'a dyn Strategy, api_version: &'a str) -> Vec<(&'a str, FieldFilter)> {
    let paths: Vec<Vec<&str>> = strategy
        .reset_fields()
        .iter()
        .map(|path| path.split('.').collect())
        .collect();
    if paths.is_empty() {
        return Vec::new();
    }
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    let filter = FieldFilter::exclude(&paths);
    match strategy.reset_versions() {
        ResetVersions::All => vec![("", filter)],
        ResetVersions::Own => vec![(api_version, filter)],
        ResetVersions::These(versions) => versions
            .iter()
            .map(|version| (version.as_str(), filter.clone()))
            .collect(),
    }
}

/// The manager and subresource of a write.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) resource: &'a ServedResource,
    pub(crate) strategy: &'a dyn Strategy,
    pub(crate) subresource: &'a str,
    pub(crate) authorized: &'a Authorized,
    /// The manager that the client names, or empty.
    pub(crate) named: &'a str,
}

impl Writer<'_> {
    fn with<T>(&self, act: impl FnOnce(&OfResource<'_>, &Options<'_>) -> T) -> Option<T> {
        let schema = self.resource.schema()?.root();
        let api_version = self.resource.gvk.api_version();
        let now = super::now();
        let manager = manager(self.named, self.authorized);
        let filters = filters(self.strategy, &api_version);
        let others: Vec<(OtherVersion, KindSchema)> = self
            .strategy
            .other_versions()
            .iter()
            .filter_map(|other| {
                let version = GroupVersion::parse(other.api_version)?;
                let schema = builtin().kind(&version.group, &version.version, &self.resource.gvk.kind)?;
                Some((*other, schema))
            })
            .collect();
        let options = Options {
            manager: &manager,
            subresource: self.subresource,
            kind: &self.resource.gvk,
            now: &now,
            filters: &filters,
        };
        Some(act(
            &OfResource {
                resource: self.resource,
                schema,
                others: &others,
                custom: self.strategy.version_schemas(),
            },
            &options,
        ))
    }

    /// Books a create, update or patch to its manager.
    pub(crate) fn record_ownership(&self, live: Option<&Value>, object: &mut Value) {
        self.with(|versions, options| apply::update(live, object, versions, options));
    }

    /// Server-side apply: the merged object with its managed fields, to be read back and defaulted.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        patch: &Value,
        force: bool,
    ) -> Result<apply::Applied, ApiError> {
        self.with(|versions, options| apply::apply(live, patch, versions, options, force))
            .unwrap_or_else(|| Err(ApiError::method_not_allowed()))
    }

    /// Books a write of the replicas through `scale` to its manager, in the terms of the parent. `before` is the scale as it was shown and
    /// `after` is as it is written; for an apply, `applied` is the patch and whether it may take fields over, and the scale is made of these.
    /// Answers the scale as it is then.
    pub(crate) fn record_scale_ownership(
        &self,
        object: &mut Value,
        places: &ScalePaths,
        mut before: Value,
        written: ScaleWrite<'_>,
    ) -> Result<Value, ApiError> {
        let Some(schema) = builtin().kind("autoscaling", "v1", "Scale") else {
            return Err(ApiError::internal("no schema for kind Scale"));
        };
        let fields = |object: &Value| {
            meta::metadata(object)
                .and_then(|m| m.get("managedFields"))
                .cloned()
        };
        let api_version = self.resource.gvk.api_version();
        let own = keys(&places.spec_replicas);
        let others: Vec<(&str, Option<Vec<&str>>)> = places
            .others
            .iter()
            .map(|(version, path)| (version.as_str(), path.as_deref().map(keys)))
            .collect();
        let paths: Vec<(&str, Option<&[&str]>)> = others
            .iter()
            .map(|(version, path)| (*version, path.as_deref()))
            .chain([(&*api_version, Some(&*own))])
            .collect();
        let parent = fields(object);
        let failed = |error: String| ApiError::internal(error);
        let shown = apply::scale_to_subresource(parent.as_ref(), &paths).map_err(failed)?;
        meta::set(&mut before, "managedFields", shown.unwrap_or_default());
        let versions = SameShape {
            api_versions: &["autoscaling/v1"],
            schema: schema.root(),
        };
        let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
        let now = super::now();
        let manager = manager(self.named, self.authorized);
        let options = Options {
            manager: &manager,
            subresource: "scale",
            kind: &kind,
            now: &now,
            filters: &[],
        };
        let after = match written {
            ScaleWrite::Applied(patch, force) => {
                let applied = apply::apply(Some(&before), patch, &versions, &options, force)?;
                Decoding::Builtin(schema.clone()).reread_merged(applied)?
            }
            ScaleWrite::Replaced(mut after) => {
                apply::update(Some(&before), &mut after, &versions, &options);
                after
            }
        };
        let merged = apply::scale_to_parent(parent.as_ref(), fields(&after).as_ref(), &api_version, &paths);
        meta::set(
            object,
            "managedFields",
            merged.map_err(failed)?.unwrap_or_default(),
        );
        Ok(after)
    }
}

fn keys(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// How a scale is written.
pub(crate) enum ScaleWrite<'a> {
    /// It is this.
    Replaced(Value),
    /// By applying this, which may take fields over or not.
    Applied(&'a Value, bool),
}
