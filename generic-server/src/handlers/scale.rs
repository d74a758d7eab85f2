//! The `scale` subresource: `autoscaling/v1, Kind=Scale` over paths of the parent.

use std::sync::LazyLock;

use http::StatusCode;
use machinery::schema::KindSchema;
use machinery::selector::label::LabelSelector;
use machinery::{ApiError, FieldError, FieldPath, GroupKind, meta};
use serde_json::{Map, Value, json};

use super::options::WriteOptions;
use super::patch::{Patch, PatchType, patched};
use super::{Call, body, output};
use crate::request::Response;
use crate::resource::{ScalePaths, ServedResource};
use crate::write::{self, Preconditions, UpdateRules};

static SCHEMA: LazyLock<Option<KindSchema>> =
    LazyLock::new(|| machinery::schema::builtin().kind("autoscaling", "v1", "Scale"));

fn at<'v>(object: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The scale of an object.
fn of(resource: &ServedResource, object: &Value, paths: &ScalePaths) -> Result<Value, ApiError> {
    let replicas = |path: &[String]| at(object, path).and_then(Value::as_i64);
    let desired = replicas(&paths.spec_replicas);
    if desired.is_none() && resource.custom {
        let dotted = paths.spec_replicas.join(".");
        return Err(ApiError::internal(format_args!(
            "the spec replicas field \".{dotted}\" does not exist"
        )));
    }
    let mut spec = Map::new();
    if let Some(desired) = desired.filter(|n| *n != 0) {
        spec.insert("replicas".into(), desired.into());
    }
    let mut status = Map::new();
    status.insert(
        "replicas".into(),
        replicas(&paths.status_replicas).unwrap_or_default().into(),
    );
    let selector = paths.selector.as_ref().and_then(|path| at(object, path));
    let selector = match selector {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(labels)) => {
            // Of a ReplicationController it is the labels themselves.
            let is_labels = labels.values().all(Value::is_string);
            let selector = match is_labels && !labels.is_empty() {
                true => LabelSelector::from_value(&json!({"matchLabels": labels})),
                false => LabelSelector::from_value(&Value::Object(labels.clone())),
            };
            selector.map(|selector| selector.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    };
    if !selector.is_empty() {
        status.insert("selector".into(), selector.into());
    }
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta::metadata(object).and_then(|m| m.get(key)) {
            metadata.insert(key.into(), value.clone());
        }
    }
    Ok(
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status}),
    )
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
    let scale = of(call.resource, &write::served(call.resource, &entry).await?, paths)?;
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
    let scale = body::typed(call, SCHEMA.as_ref(), "autoscaling/v1", "Scale", &options).await?;
    call.record(&scale);
    let name = meta::name(&scale);
    if name != call.name() {
        let message = if name.is_empty() {
            format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.name()
            )
        } else {
            format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name()
            )
        };
        return Err(ApiError::bad_request(message));
    }
    let mut make = |_: &Value, _: &Call<'_>| Ok(scale.clone());
    write(call, paths, &options, Make::From(&mut make)).await
}

/// Patches the scale.
pub(super) async fn patch(call: &Call<'_>, paths: &ScalePaths) -> Result<Response, ApiError> {
    let kind = PatchType::of(call)?;
    let bytes = body::bytes(call).await?;
    let options = WriteOptions::parse(call.head.uri.query(), "PatchOptions", kind.is_apply())?;
    let patch = Patch::parse(call, kind, bytes, &options)?;
    call.record_patch(&patch.value);
    let schema = SCHEMA.as_ref().map(|s| s.root());
    if kind.is_apply() {
        return write(call, paths, &options, Make::Apply(&patch.value)).await;
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
    write(call, paths, &options, Make::From(&mut make)).await
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
    mut make: Make<'_>,
) -> Result<Response, ApiError> {
    let negotiated = call.negotiate()?;
    let resource = call.resource;
    let strategy = &*resource.strategy;
    let mut rules = UpdateRules {
        retry: true,
        ..UpdateRules::default()
    };
    let write = call.write(strategy, "scale", options);
    let group = resource.gvr.group_resource();
    let mut transform = |live: Option<&Value>| {
        let Some(live) = live else {
            return Err(ApiError::not_found(&group, call.name()));
        };
        let present = of(resource, live, paths)?;
        let scale = match &mut make {
            Make::From(make) => make(&present, call)?,
            Make::Apply(patch) => (*patch).clone(),
        };
        // The strategy of a custom resource judges the value where it is in the object.
        if !resource.custom {
            validate(&scale)?;
        }
        let uid = meta::uid(&scale);
        if !uid.is_empty() && uid != meta::uid(live) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(live)
            );
            return Err(ApiError::conflict(&group, call.name(), why));
        }
        let version = meta::resource_version(&scale);
        if !version.is_empty() && version != meta::resource_version(live) {
            return Err(ApiError::modified(&group, call.name()));
        }
        let mut object = live.clone();
        let writer = call.writer(strategy, "scale", options);
        let path = &paths.spec_replicas;
        let desired = match &make {
            Make::From(_) => {
                let desired = desired(&scale);
                set(&mut object, path, desired.into());
                writer.record_scale_ownership(live, &mut object, path, None)?;
                desired
            }
            Make::Apply(patch) => {
                let force = options.force.unwrap_or_default();
                desired(&writer.record_scale_ownership(live, &mut object, path, Some((patch, force)))?)
            }
        };
        set(&mut object, path, desired.into());
        Ok(object)
    };
    rules.preconditions = Preconditions::default();
    let (stored, _) = write::update(&write, call.name(), &rules, &mut transform).await?;
    let scale = of(resource, &stored.value(resource).await?, paths)?;
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

fn set(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = object;
    for key in parents {
        let Some(map) = at.as_object_mut() else { return };
        at = map
            .entry(key.as_str())
            .or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(last.clone(), value);
    }
}

fn validate(scale: &Value) -> Result<(), ApiError> {
    let replicas = meta::dig(scale, &["spec", "replicas"])
        .cloned()
        .unwrap_or(Value::from(0));
    if replicas.as_i64().is_some_and(|n| n >= 0) {
        return Ok(());
    }
    let spec = FieldPath::new("spec");
    let fault = FieldError::invalid(
        &spec.child("replicas"),
        &replicas,
        "must be greater than or equal to 0",
    );
    Err(ApiError::invalid(
        &GroupKind::new("autoscaling", "Scale"),
        meta::name(scale),
        &[fault],
    ))
}
