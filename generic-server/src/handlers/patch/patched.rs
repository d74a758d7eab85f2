//! The object that a patch made, read back and checked as a body is.

use machinery::codec::{self, Decoded, StrictError};
use machinery::schema::KindSchema;
use machinery::{ApiError, GroupVersion, go, meta};
use serde_json::Value;

use super::Patch;
use crate::decoding::{Decoding, shape};
use crate::handlers::options::WriteOptions;
use crate::handlers::{Call, body, update};

/// The object that a patch made, read back as the resource's kind.
pub(in crate::handlers) fn object(
    call: &Call<'_>,
    patched: Value,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    match &call.resource.decoding {
        Decoding::Builtin(schema) => {
            let gvk = &call.resource.gvk;
            object_as(
                call,
                patched,
                (&gvk.api_version(), &gvk.kind),
                Some(schema),
                patch,
                options,
            )
        }
        Decoding::Custom(_) | Decoding::Unstructured => {
            let before = patched.clone();
            let mut strict = duplicates(patch);
            let schema = call.resource.schema();
            let own = call.resource.gvk.api_version();
            strict.extend(body::fields_of_another_version(&patched, schema, &own));
            let mut decoded = Decoded {
                value: patched,
                strict,
            };
            shape(schema, &mut decoded).map_err(|error| patch.invalid(&before, &error.to_string()))?;
            body::report(call, options.validation, &decoded.strict, |text| {
                patch.invalid(&before, text)
            })?;
            Ok(decoded.value)
        }
    }
}

/// The object that a patch made, read back as a built-in type of this version and kind.
pub(in crate::handlers) fn object_as(
    call: &Call<'_>,
    patched: Value,
    (api_version, kind): (&str, &str),
    schema: Option<&KindSchema>,
    patch: &Patch,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let Some(schema) = schema else {
        return Err(ApiError::internal("no schema for the patched kind"));
    };
    let shown = || patched.clone();
    let decode = match patch.is_strategic() {
        true => codec::typed::decode_merged,
        false => codec::typed::decode_builtin,
    };
    let mut decoded = decode(schema.root(), patched.clone())
        .map_err(|error| patch.invalid(&shown(), &error.to_string()))?;
    // A strategic patch is merged into the type itself, so what it says of the kind means nothing.
    if !patch.is_strategic() {
        let (sent_version, sent_kind) = (meta::api_version(&patched), meta::kind(&patched));
        // Upstream reads it as the internal version then, which has none of these fields.
        if sent_version.is_empty() {
            let fields = patched.as_object().into_iter().flatten().map(|(name, _)| name);
            for name in fields.filter(|name| !matches!(name.as_str(), "apiVersion" | "kind")) {
                body::warn(call, &format!("unknown field {}", go::quote(name)));
            }
            return Err(update::unnamed(call));
        }
        let other = |sent: &str, own: &str| !sent.is_empty() && sent != own;
        if other(sent_version, api_version) || other(sent_kind, kind) {
            fn or_own<'a>(sent: &'a str, own: &'a str) -> &'a str {
                if sent.is_empty() { own } else { sent }
            }
            let (sent_version, sent_kind) = (or_own(sent_version, api_version), or_own(sent_kind, kind));
            let versions = GroupVersion::parse(api_version).zip(GroupVersion::parse(sent_version));
            let error = match versions {
                None => format!("unexpected GroupVersion string: {sent_version}"),
                // Upstream converts an object of another version of the kind.
                Some((own, sent)) => body::kind_fault(&own, kind, &sent, sent_kind).unwrap_or_else(|| {
                    format!(
                        "no kind {} is registered for version {}",
                        go::quote(sent_kind),
                        go::quote(sent_version)
                    )
                }),
            };
            return Err(patch.invalid(&shown(), &error));
        }
    }
    if let Some(map) = decoded.value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    let mut strict = duplicates(patch);
    strict.append(&mut decoded.strict);
    body::report(call, options.validation, &strict, |text| {
        patch.invalid(&shown(), text)
    })?;
    Ok(decoded.value)
}

fn duplicates(patch: &Patch) -> Vec<StrictError> {
    patch
        .strict
        .iter()
        .map(|text| StrictError::Other(text.clone()))
        .collect()
}
