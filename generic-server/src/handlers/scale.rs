//! The `scale` subresource: `autoscaling/v1, Kind=Scale` over paths of the parent.

use std::sync::LazyLock;

use http::StatusCode;
use machinery::schema::KindSchema;
use machinery::selector::label::LabelSelector;
use machinery::{ApiError, FieldError, FieldPath, GroupKind, accessor, meta};
use serde_json::{Map, Value, json};

use super::options::WriteOptions;
use super::patch::{Patch, PatchType, patched};
use super::{Call, body, output, update};
use crate::request::Response;
use crate::resource::{ScalePaths, ServedResource};
use crate::write::managed::ScaleWrite;
use crate::write::{self, Preconditions, UpdateRules, metadata};

static SCHEMA: LazyLock<Option<KindSchema>> =
    LazyLock::new(|| machinery::schema::builtin().kind("autoscaling", "v1", "Scale"));

/// The replicas of a custom object that has none where they are looked for, as a write of its scale sees it: nothing else can be this, so that it
/// is known whether the write sets any.
const UNSET: i32 = i32::MIN;

/// The values that a scale shows.
struct Shown {
    /// `None`: nothing is there.
    desired: Option<i32>,
    present: i32,
    selector: String,
}

fn at<'v>(object: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Of a built-in kind, whose schema knows the types.
fn shown_by_builtin(object: &Value, paths: &ScalePaths) -> Shown {
    let replicas = |path: &[String]| at(object, path).and_then(Value::as_i64).map(narrow);
    let selector = paths.selector.as_ref().and_then(|path| at(object, path));
    let selector = selector.and_then(|selector| match selector.as_object() {
        // Of a ReplicationController it is the labels themselves.
        Some(labels) if !labels.is_empty() && labels.values().all(Value::is_string) => {
            LabelSelector::from_value(&json!({"matchLabels": labels})).ok()
        }
        _ => LabelSelector::from_value(selector).ok(),
    });
    Shown {
        desired: Some(replicas(&paths.spec_replicas).unwrap_or_default()),
        present: replicas(&paths.status_replicas).unwrap_or_default(),
        selector: selector.map(|s| s.to_string()).unwrap_or_default(),
    }
}

/// Of a custom kind. The error is upstream's text about a value of another type.
fn shown_by_custom(object: &Value, paths: &ScalePaths) -> Result<Shown, String> {
    let replicas = |path: &[String]| accessor::nested_integer(object, path).map(|n| n.map(narrow));
    let desired = replicas(&paths.spec_replicas)?;
    let present = replicas(&paths.status_replicas)?.unwrap_or_default();
    let selector = match &paths.selector {
        Some(path) => accessor::nested_text(object, path)?,
        None => None,
    };
    Ok(Shown {
        desired,
        present,
        selector: selector.unwrap_or_default().to_owned(),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "Go converts it so")]
fn narrow(replicas: i64) -> i32 {
    replicas as i32
}

fn shown(resource: &ServedResource, object: &Value, paths: &ScalePaths) -> Result<Shown, String> {
    if resource.custom {
        shown_by_custom(object, paths)
    } else {
        Ok(shown_by_builtin(object, paths))
    }
}

/// The scale of an object that shows these values.
fn scale_of(object: &Value, shown: &Shown) -> Value {
    let mut spec = Map::new();
    if let Some(desired) = shown.desired.filter(|n| *n != 0) {
        spec.insert("replicas".into(), desired.into());
    }
    let mut status = Map::new();
    status.insert("replicas".into(), shown.present.into());
    if !shown.selector.is_empty() {
        status.insert("selector".into(), shown.selector.clone().into());
    }
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::metadata(object).and_then(|m| m.get(key)) {
            metadata.insert(key.into(), value.clone());
        }
    }
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status})
}

/// Reads the scale.
pub(super) async fn get(call: &Call<'_>, paths: &ScalePaths) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let store = call
        .resource
        .store()
        .ok_or_else(ApiError::method_not_allowed)?
        .view(call.authorized);
    let entry = store.get(call.namespace(), call.name()).await?;
    let object = write::served(call.resource, &entry).await?;
    let shown = shown(call.resource, &object, paths).map_err(ApiError::raw_internal)?;
    if shown.desired.is_none() {
        let path = accessor::dotted(&paths.spec_replicas);
        let why = format_args!("the spec replicas field \"{path}\" does not exist");
        return Err(ApiError::internal(why));
    }
    let scale = scale_of(&object, &shown);
    output::object(
        call.resource,
        &negotiated,
        output::Source::Other(scale),
        StatusCode::OK,
    )
    .await
}

/// Replaces the scale.
pub(super) async fn update(call: &Call<'_>, paths: &ScalePaths) -> Result<Response, ApiError> {
    let options = WriteOptions::parse(call.head.uri.query(), "UpdateOptions", false)?;
    let mut scale = body::typed(call, SCHEMA.as_ref(), "autoscaling/v1", "Scale", &options).await?;
    call.record(&scale);
    update::check_name(call, &mut scale)?;
    let retry = meta::resource_version(&scale).is_empty();
    let mut make = |_: &Value, _: &Call<'_>| Ok(scale.clone());
    write(call, paths, &options, retry, Make::From(&mut make)).await
}

/// Patches the scale.
pub(super) async fn patch(call: &Call<'_>, paths: &ScalePaths) -> Result<Response, ApiError> {
    let kind = PatchType::of(call)?;
    let bytes = body::bytes(call).await?;
    let options = WriteOptions::parse(call.head.uri.query(), "PatchOptions", kind.is_apply())?;
    let patch = Patch::parse(call, kind, bytes, &options)?;
    call.record_patch(&patch.value);
    let retry = patch.resource_version().is_none();
    let schema = SCHEMA.as_ref().map(|s| s.root());
    if kind.is_apply() {
        return write(call, paths, &options, retry, Make::Apply(&patch.value)).await;
    }
    let mut make = |scale: &Value, call: &Call<'_>| {
        let patched = patch.apply(scale, schema)?;
        patched::object_as(
            call,
            patched,
            ("autoscaling/v1", "Scale"),
            SCHEMA.as_ref(),
            &patch,
            &options,
        )
    };
    write(call, paths, &options, retry, Make::From(&mut make)).await
}

/// How the new scale comes about.
enum Make<'m> {
    /// From the present one.
    From(&'m mut Transform<'m>),
    /// By applying this.
    Apply(&'m Value),
}

type Transform<'m> = dyn FnMut(&Value, &Call<'_>) -> Result<Value, ApiError> + Send + 'm;

async fn write(
    call: &Call<'_>,
    paths: &ScalePaths,
    options: &WriteOptions,
    retry: bool,
    mut make: Make<'_>,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let resource = call.resource;
    let strategy = &*resource.strategy;
    let mut rules = UpdateRules {
        retry,
        ..UpdateRules::default()
    };
    let write = call.write(strategy, "scale", options);
    let group = resource.gvr.group_resource();
    let mut transform = |live: Option<&Value>| {
        let Some(live) = live else {
            return Err(ApiError::not_found(&group, call.name()));
        };
        let mut shown = shown(resource, live, paths).map_err(ApiError::raw_internal)?;
        shown.desired.get_or_insert(UNSET);
        let present = scale_of(live, &shown);
        let mut object = live.clone();
        let writer = call.writer(strategy, "scale", options);
        // With its uid: what exists and is owned by nobody is not tracked.
        let bare = |replicas: i64| {
            json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": meta::name(live), "namespace": meta::namespace(live), "uid": meta::uid(live)},
                "spec": {"replicas": replicas},
            })
        };
        let before = bare(desired(&present));
        let record = |written| writer.record_scale_ownership(&mut object, paths, before, written);
        let (mut scale, replicas) = match &mut make {
            Make::From(make) => {
                let mut scale = make(&present, call)?;
                update::check_name(call, &mut scale)?;
                let replicas = desired(&record(ScaleWrite::Replaced(bare(desired(&scale))))?);
                (scale, replicas)
            }
            Make::Apply(patch) => {
                let force = options.force.unwrap_or_default();
                let mut scale = record(ScaleWrite::Applied(patch, force))?;
                update::check_name(call, &mut scale)?;
                let replicas = desired(&scale);
                (scale, replicas)
            }
        };
        // The strategy of a custom resource judges the value where it is in the object.
        if !resource.custom {
            if meta::namespace(&scale).is_empty() {
                meta::set(&mut scale, "namespace", call.namespace());
            }
            validate(&scale)?;
        }
        if replicas == i64::from(UNSET) {
            let path = accessor::dotted(&paths.spec_replicas);
            return Err(ApiError::bad_request(format!(
                "the spec replicas field \"{path}\" cannot be empty"
            )));
        }
        let uid = meta::uid(&scale);
        if !uid.is_empty() && uid != meta::uid(live) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(live)
            );
            return Err(ApiError::conflict(&group, call.name(), why));
        }
        // A resourceVersion in the scale is a precondition on its parent.
        let version = meta::resource_version(&scale);
        if !version.is_empty() {
            meta::set(&mut object, "resourceVersion", version.to_owned());
        }
        accessor::set_nested(&mut object, &paths.spec_replicas, replicas.into())
            .map_err(ApiError::raw_internal)?;
        Ok(object)
    };
    rules.preconditions = Preconditions::default();
    let (stored, _) = write::update(&write, call.name(), &rules, &mut transform).await?;
    let object = stored.value(resource).await?;
    let shown = shown(resource, &object, paths).map_err(ApiError::bad_request)?;
    let scale = scale_of(&object, &shown);
    output::object(
        resource,
        &negotiated,
        output::Source::Other(scale),
        StatusCode::OK,
    )
    .await
}

fn desired(scale: &Value) -> i64 {
    let replicas = meta::dig(scale, &["spec", "replicas"]);
    replicas.and_then(Value::as_i64).unwrap_or_default()
}

fn validate(scale: &Value) -> Result<(), ApiError> {
    let replicas = meta::dig(scale, &["spec", "replicas"])
        .cloned()
        .unwrap_or(Value::from(0));
    let mut errors = metadata::scale_errors(scale);
    if replicas.as_i64().is_none_or(|n| n < 0) {
        let spec = FieldPath::new("spec");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&spec.child("replicas"), &replicas, why));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        &GroupKind::new("autoscaling", "Scale"),
        meta::name(scale),
        &errors,
    ))
}
