//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.
//!
//! A patch is applied to the live object as it is served, read back through the kind's decoder, and then goes the way of
//! an update. When the patch names no resourceVersion it is applied again to the object of the faster writer.

pub(super) mod patched;

use bytes::Bytes;
use http::{StatusCode, header};
use machinery::field::clip;
use machinery::patch;
use machinery::schema::SchemaRef;
use machinery::{ApiError, FieldError, FieldPath, GroupKind, Reason, limits, meta};
use serde_json::{Map, Value};

use super::options::{FieldValidation, WriteOptions};
use super::{Call, body, output, update};
use crate::cpu;
use crate::negotiate;
use crate::registry::strategy::Strategy;
use crate::request::Response;
use crate::resource::Decoding;
use crate::write::{self, UpdateRules, WriteCall};

/// The kinds of patches, by media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
    /// An apply patch in CBOR.
    ApplyCbor,
}

/// The media type of apply patches in CBOR, where that is served.
const APPLY_CBOR: &str = "application/apply-patch+cbor";
const BUILTIN_TYPES: &[(&str, PatchType)] = &[
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/strategic-merge-patch+json", PatchType::Strategic),
    ("application/apply-patch+yaml", PatchType::Apply),
];
const CUSTOM_TYPES: &[(&str, PatchType)] = &[
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/apply-patch+yaml", PatchType::Apply),
];

impl PatchType {
    /// The patch type of the request's media type, or 415 with those that the resource takes.
    pub(super) fn of(call: &Call<'_>) -> Result<Self, ApiError> {
        let sent = call
            .head
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        let sent = sent.split(';').next().unwrap_or_default();
        let types = match call.resource.decoding {
            Decoding::Builtin(_) => BUILTIN_TYPES,
            Decoding::Custom(_) | Decoding::Unstructured => CUSTOM_TYPES,
        };
        let serves_cbor = negotiate::serves_cbor(&call.head);
        let mut found = types
            .iter()
            .find(|(name, _)| *name == sent)
            .map(|(_, kind)| *kind);
        if serves_cbor && sent == APPLY_CBOR {
            found = Some(PatchType::ApplyCbor);
        }
        found.ok_or_else(|| match call.resource.decoding {
            // Upstream's router refuses these before the handler sees them, in words of its own.
            Decoding::Builtin(_) => {
                ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type")
                    .with_details(machinery::status::Details::default())
            }
            Decoding::Custom(_) | Decoding::Unstructured => {
                let known = types.iter().map(|(name, _)| *name);
                let known: Vec<_> = known.chain(serves_cbor.then_some(APPLY_CBOR)).collect();
                ApiError::unsupported_media_type(&known)
            }
        })
    }

    pub(super) fn is_apply(self) -> bool {
        matches!(self, PatchType::Apply | PatchType::ApplyCbor)
    }
}

/// Patches an object, or the part of it that the subresource is.
pub(super) async fn handle(
    call: &Call<'_>,
    strategy: &dyn Strategy,
    subresource: &str,
) -> Result<Response, ApiError> {
    let kind = PatchType::of(call)?;
    let negotiated = call.negotiate()?;
    let bytes = body::bytes(call).await?;
    let options = WriteOptions::parse(call.head.uri.query(), "PatchOptions", kind.is_apply())?;
    let sent = bytes.len();
    let patch = Patch::parse(call, kind, bytes, &options)?;
    let copied = if patch.copies() {
        limits::JSON_PATCH_COPY_BYTES
    } else {
        0
    };
    body::weigh_defaults(call, sent + copied).await;
    call.record_patch(&patch.value);
    cpu::slice().await;
    let rules = UpdateRules {
        // A part of an object is only ever written on an object that is there.
        force_create: kind.is_apply() && subresource.is_empty(),
        retry: patch.resource_version().is_none(),
        create_check: Some(&*call.env.authorizer),
        ..UpdateRules::default()
    };
    let write = WriteCall {
        unpruned: kind.is_apply() && matches!(call.resource.decoding, Decoding::Custom(_)),
        ..call.write(strategy, subresource, &options)
    };
    let mut transform = |live: Option<&Value>| {
        let mut object = match live {
            None if !kind.is_apply() => {
                return Err(ApiError::not_found(
                    &call.resource.gvr.group_resource(),
                    call.name(),
                ));
            }
            live if kind.is_apply() => {
                let force = options.force.unwrap_or_default();
                let applied =
                    call.writer(strategy, subresource, &options)
                        .apply(live, &patch.value, force)?;
                call.resource.decoding.reread_merged(applied)?
            }
            live => {
                let live = live.unwrap_or(&Value::Null);
                let patched = patch.apply(live, call.resource.schema().map(|s| s.root()))?;
                let mut object = patched::object(call, patched, &patch, &options)?;
                strategy.default(&mut object);
                call.writer(strategy, subresource, &options)
                    .record_ownership(Some(live), &mut object);
                object
            }
        };
        if live.is_none() && !meta::uid(&object).is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                meta::uid(&object)
            );
            return Err(ApiError::conflict(
                &call.resource.gvr.group_resource(),
                call.name(),
                why,
            ));
        }
        if !write.unpruned {
            strategy.default(&mut object);
        }
        update::check_name(call, &mut object)?;
        Ok(object)
    };
    let (stored, created) = write::update(&write, call.name(), &rules, &mut transform).await?;
    let code = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    output::object(call.resource, &negotiated, output::Source::Stored(stored), code).await
}

/// A patch, read.
#[derive(Debug)]
pub(super) struct Patch {
    pub(super) kind: PatchType,
    pub(super) value: Value,
    /// Fields given twice in the patch itself.
    pub(super) strict: Vec<String>,
}

impl Patch {
    pub(super) fn parse(
        call: &Call<'_>,
        kind: PatchType,
        bytes: Bytes,
        options: &WriteOptions,
    ) -> Result<Self, ApiError> {
        let json = match (&call.resource.decoding, kind) {
            (_, PatchType::Apply | PatchType::ApplyCbor) => Ok(Default::default()),
            (_, PatchType::Json | PatchType::Merge) => body::patch_json(&bytes),
            _ => body::json(&bytes),
        };
        let (mut value, mut strict) = match kind {
            PatchType::Apply => body::yaml(&bytes)
                .map_err(|error| format!("error converting YAML to JSON: {error}"))
                .and_then(object_or_nothing)
                .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?,
            PatchType::ApplyCbor => body::cbor(&bytes)
                .and_then(|(value, strict)| match value {
                    Value::Object(_) | Value::Null => Ok((value, strict)),
                    other => Err(format!(
                        "cbor: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        cbor_type(&other)
                    )),
                })
                .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?,
            _ => json.map_err(|error| match (kind, options.validation) {
                (PatchType::Strategic, _) | (_, FieldValidation::Ignore) => ApiError::bad_request(error),
                _ => ApiError::bad_request(format!("error decoding patch: {error}")),
            })?,
        };
        if let (PatchType::Json, Value::Array(operations)) = (kind, &value)
            && operations.len() > limits::JSON_PATCH_OPERATIONS
        {
            return Err(ApiError::too_large(format_args!(
                "The allowed maximum operations in a JSON patch is {}, got {}",
                limits::JSON_PATCH_OPERATIONS,
                operations.len()
            )));
        }
        if kind == PatchType::Json {
            strict.extend(unknown_members(&value));
        }
        if kind == PatchType::Strategic && value.is_null() {
            value = Value::Object(Map::new());
        }
        if options.validation == FieldValidation::Ignore {
            strict.clear();
        }
        if kind == PatchType::Json {
            strict
                .iter_mut()
                .for_each(|error| *error = format!("json patch {error}"));
        }
        if kind.is_apply() && !strict.is_empty() {
            if options.validation == FieldValidation::Strict {
                return Err(ApiError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {}",
                    strict.join(", ")
                )));
            }
            strict.iter().for_each(|error| body::warn(call, error));
            strict.clear();
        }
        Ok(Patch { kind, value, strict })
    }

    /// Whether it is a JSON patch with an operation `copy`, which makes an object larger than the patch.
    fn copies(&self) -> bool {
        let operations = self.value.as_array().filter(|_| self.kind == PatchType::Json);
        let is_copy = |operation: &Value| operation.get("op").and_then(Value::as_str) == Some("copy");
        operations.is_some_and(|operations| operations.iter().any(is_copy))
    }

    pub(super) fn is_strategic(&self) -> bool {
        self.kind == PatchType::Strategic
    }

    /// The resourceVersion that the patch itself asks for.
    pub(super) fn resource_version(&self) -> Option<&str> {
        match self.kind {
            PatchType::Json => self.value.as_array()?.iter().find_map(|operation| {
                let path = operation.get("path")?.as_str()?;
                (path == "/metadata/resourceVersion")
                    .then(|| operation.get("value")?.as_str())
                    .flatten()
            }),
            _ => Some(meta::resource_version(&self.value)).filter(|v| !v.is_empty()),
        }
    }

    /// The patched object, not yet decoded.
    pub(super) fn apply(&self, live: &Value, schema: Option<SchemaRef<'_>>) -> Result<Value, ApiError> {
        let patched = match (self.kind, schema) {
            (PatchType::Json, _) => patch::json::apply(live, &self.value),
            (PatchType::Strategic, Some(schema)) => patch::strategic::apply(live, &self.value, schema),
            _ => patch::merge::apply(live, &self.value),
        };
        patched.map_err(ApiError::from)
    }

    /// The refusal of a patched object that does not decode, or has faults that strict validation does not let pass.
    pub(super) fn invalid(&self, patched: &Value, error: &str) -> ApiError {
        let shown = match self.kind {
            PatchType::Strategic => clip(limits::SHOWN_VALUE_BYTES, &machinery::go::Print(&self.value)),
            _ => patched.to_string(),
        };
        let fault = FieldError::invalid_str(&FieldPath::new("patch"), &shown, error);
        ApiError::invalid(&GroupKind::new("", ""), "", &[fault])
    }
}

/// An apply patch is an object; an empty document is an empty one.
fn object_or_nothing((value, strict): (Value, Vec<String>)) -> Result<(Value, Vec<String>), String> {
    let found = match &value {
        Value::Object(_) | Value::Null => return Ok((value, strict)),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
    };
    Err(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    ))
}

/// The library's word for the type of a value that is no map.
fn cbor_type(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::String(_) => "byte string",
        Value::Number(number) if number.is_u64() => "positive integer",
        Value::Number(number) if number.is_i64() => "negative integer",
        _ => "primitives",
    }
}

/// Members of JSON patch operations that mean nothing.
fn unknown_members(operations: &Value) -> Vec<String> {
    let operations = operations.as_array().into_iter().flatten().enumerate();
    operations
        .flat_map(|(index, operation)| {
            let members = operation.as_object().into_iter().flatten();
            members
                .filter(|(key, _)| !matches!(key.as_str(), "op" | "path" | "from" | "value"))
                .map(move |(key, _)| format!("unknown field \"[{index}].{key}\""))
        })
        .take(limits::STRICT_ERRORS)
        .collect()
}
