//! Request bodies: read within bounds, decoded by the kind's rules, strict faults reported as the client asked.

mod registered;
mod shown;

use bytes::{Bytes, BytesMut};
use http::header;
use http_body_util::BodyExt;
use machinery::codec::protobuf::Envelope;
use machinery::codec::{self, DecodeError, Decoded, StrictError};
use machinery::go;
use machinery::schema::{self, KindSchema, SchemaRef};
use machinery::{ApiError, FieldError, FieldPath, GroupKind, GroupVersion, limits, meta};
use serde_json::Value;

use super::Call;
use super::options::{FieldValidation, WriteOptions};
use crate::cpu;
use crate::decoding::{Decoding, shape};
use crate::negotiate;
use crate::registry::figures::BodyVerb;
pub(super) use registered::fault as kind_fault;
use shown::summary;

/// The encodings of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Json,
    Yaml,
    Protobuf,
    Cbor,
}

/// The whole body. 413 past the limit, as soon as it is passed.
pub(super) async fn bytes(call: &Call<'_>) -> Result<Bytes, ApiError> {
    let body = call.body.lock().take();
    let Some(body) = body else { return Ok(Bytes::new()) };
    let body = read(body, call.env.max_body).await?;
    if let (Some(store), Some(verb)) = (call.resource.store(), BodyVerb::of(&call.authorized.info().verb)) {
        store.figures().body(verb, body.len());
    }
    Ok(body)
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read(mut body: crate::request::Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("unable to read the request body"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(ApiError::too_large(format_args!("limit is {limit}")));
        }
        // Most bodies come in one piece, which is passed on without a copy.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    let whole = if rest.is_empty() { first } else { rest.freeze() };
    // Large bodies are offloaded by the caller.
    cpu::heavy(whole.len()).await;
    Ok(whole)
}

fn encoding(call: &Call<'_>) -> Result<Encoding, ApiError> {
    let sent = call
        .head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media = sent.split(';').next().unwrap_or_default().trim();
    let builtin = matches!(call.resource.decoding, Decoding::Builtin(_));
    match &*media.to_ascii_lowercase() {
        "" | "application/json" => Ok(Encoding::Json),
        "application/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" if builtin => Ok(Encoding::Protobuf),
        CBOR if negotiate::serves_cbor(&call.head) => Ok(Encoding::Cbor),
        _ => Err(ApiError::unsupported_media_type(negotiate::object_types(
            &call.head,
        ))),
    }
}

const CBOR: &str = "application/cbor";

/// JSON without a schema: the value and its duplicate fields.
pub(super) fn json(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    codec::json::decode(bytes)
        .map(texts)
        .map_err(|error| error.to_string())
}

/// JSON of a patch: numbers stay what they are written as.
pub(super) fn patch_json(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    codec::json::decode_exactly(bytes)
        .map(texts)
        .map_err(|error| error.to_string())
}

/// CBOR of an apply patch. A field that is given twice is an error.
pub(super) fn cbor(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let value = codec::cbor::decode(bytes).map_err(|error| error.to_string())?;
    Ok((value, Vec::new()))
}

/// YAML, the same.
pub(super) fn yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    codec::yaml::decode(bytes)
        .map(texts)
        .map_err(|error| error.to_string())
}

fn texts(decoded: Decoded) -> (Value, Vec<String>) {
    (
        decoded.value,
        decoded.strict.iter().map(StrictError::to_string).collect(),
    )
}

/// Defaults may make a large object of a small body, which then counts as what it may become.
pub(super) async fn weigh_defaults(call: &Call<'_>, bytes: usize) {
    if let Decoding::Custom(schema) = &call.resource.decoding {
        cpu::heavy(schema.defaults().of_body(bytes)).await;
    }
}

/// The object of a create or update, of the resource's kind at its version.
pub(super) async fn object(call: &Call<'_>, options: &WriteOptions) -> Result<Value, ApiError> {
    let encoding = encoding(call)?;
    let bytes = bytes(call).await?;
    weigh_defaults(call, bytes.len()).await;
    let gvk = &call.resource.gvk;
    let target = Target {
        api_version: &gvk.api_version(),
        also: &[],
        kind: &gvk.kind,
        custom: call.resource.custom,
    };
    match &call.resource.decoding {
        Decoding::Builtin(schema) => decode_typed(call, encoding, &bytes, Some(schema), &target, options),
        Decoding::Custom(schema) => custom(call, encoding, &bytes, Some(schema), &target, options),
        Decoding::Unstructured => custom(call, encoding, &bytes, None, &target, options),
    }
}

/// An object of another, built-in type (a Scale).
pub(super) async fn typed(
    call: &Call<'_>,
    schema: Option<&KindSchema>,
    api_version: &str,
    kind: &str,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    typed_as(call, schema, &[api_version], kind, options).await
}

/// The same for a type that clients may send in several versions of one shape; it is read as the first of them.
pub(super) async fn typed_as(
    call: &Call<'_>,
    schema: Option<&KindSchema>,
    api_versions: &[&str],
    kind: &str,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let (api_version, also) = match api_versions {
        [first, also @ ..] => (*first, also),
        [] => ("", api_versions),
    };
    let encoding = encoding(call)?;
    let bytes = bytes(call).await?;
    decode_typed(
        call,
        encoding,
        &bytes,
        schema,
        &Target {
            api_version,
            also,
            kind,
            custom: false,
        },
        options,
    )
}

/// The requirements of a body.
struct Target<'a> {
    api_version: &'a str,
    /// Other versions of the same shape that are taken for it.
    also: &'a [&'a str],
    kind: &'a str,
    custom: bool,
}

impl Target<'_> {
    /// Upstream's words for bytes that are not what they should be.
    fn refuse(&self, error: &str, sent_kind: &str, sent_version: &str, bytes: &[u8]) -> ApiError {
        let kind = self.kind;
        if sent_kind.is_empty() {
            let must = if self.custom { "Unstructured" } else { kind };
            return ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {must}): {error} ({})",
                summary(bytes)
            ));
        }
        let version = GroupVersion::parse(sent_version)
            .map(|gv| gv.version.to_string())
            .unwrap_or_default();
        ApiError::bad_request(format!(
            "{sent_kind} in version {} cannot be handled as a {kind}: {error}",
            go::quote(&version)
        ))
    }

    /// The version and kind that errors name: what an object leaves unsaid is what it should be.
    fn named(&self, (version, kind): (String, String)) -> (String, String) {
        match kind.is_empty() {
            true => (self.api_version.to_owned(), self.kind.to_owned()),
            false => (version, kind),
        }
    }

    /// `apiVersion` and `kind` are filled in when absent, else they must match.
    fn check(&self, object: &mut Value, bytes: &[u8]) -> Result<(), ApiError> {
        self.check_kind(meta::api_version(object), meta::kind(object), bytes)?;
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), self.api_version.into());
            map.insert("kind".into(), self.kind.into());
        }
        Ok(())
    }

    /// What the object says of its version and kind is this resource's, or empty.
    fn check_kind(&self, sent_version: &str, sent_kind: &str, bytes: &[u8]) -> Result<(), ApiError> {
        let or_own = |sent: &str, own: &str| if sent.is_empty() { own } else { sent }.to_owned();
        let version = or_own(sent_version, self.api_version);
        let kind = or_own(sent_kind, self.kind);
        let is_own = version == self.api_version || self.also.contains(&&*version);
        if is_own && kind == self.kind {
            return Ok(());
        }
        let own = GroupVersion::parse(self.api_version).filter(|_| !self.custom);
        let parsed = GroupVersion::parse(&version);
        if let (Some(own), Some(parsed)) = (&own, &parsed) {
            if let Some(fault) = kind_fault(own, self.kind, parsed, &kind) {
                return Err(self.refuse(&fault, &kind, &version, bytes));
            }
        } else if own.is_some() {
            let fault = format!("unexpected GroupVersion string: {version}");
            return Err(self.refuse(&fault, "", "", bytes));
        } else if kind != self.kind {
            let shown = parsed.map(|parsed| parsed.to_string()).unwrap_or_default();
            let error = format!(
                "no kind {} is registered for version {}",
                go::quote(&kind),
                go::quote(&shown)
            );
            return Err(self.refuse(&error, &kind, &version, bytes));
        }
        Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            self.api_version
        )))
    }

    /// The version and kind that an envelope says the object is of, else the resource's own. A version that cannot be read is none.
    fn of_envelope(&self, envelope: Envelope<'_>) -> (String, String) {
        let is_version =
            !envelope.api_version.is_empty() && GroupVersion::parse(&envelope.api_version).is_some();
        (
            if is_version {
                envelope.api_version
            } else {
                self.api_version.to_owned()
            },
            if envelope.kind.is_empty() {
                self.kind.to_owned()
            } else {
                envelope.kind
            },
        )
    }
}

fn decode_typed(
    call: &Call<'_>,
    encoding: Encoding,
    bytes: &[u8],
    schema: Option<&KindSchema>,
    target: &Target<'_>,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let Some(schema) = schema.map(KindSchema::root) else {
        return Err(ApiError::internal(format_args!(
            "no schema for kind {}",
            target.kind
        )));
    };
    let refuse = |error: DecodeError| {
        if let (Encoding::Cbor, DecodeError::Syntax(_)) = (encoding, &error) {
            return target.refuse(&no_kind(&error), "", "", bytes);
        }
        if bytes.is_empty() && encoding == Encoding::Json {
            let error = format!("couldn't get version/kind; json parse error: {error}");
            return target.refuse(&error, "", "", bytes);
        }
        let (version, kind) = match encoding {
            Encoding::Json => codec::json::interpret(bytes).unwrap_or_default(),
            Encoding::Cbor => target.named(codec::cbor::interpret(bytes).unwrap_or_default()),
            // Only what is behind the envelope is refused in the name of a kind.
            Encoding::Protobuf => codec::protobuf::open(bytes)
                .map(|envelope| target.of_envelope(envelope))
                .unwrap_or_default(),
            Encoding::Yaml => Default::default(),
        };
        target.refuse(&error.to_string(), &kind, &version, bytes)
    };
    let decoded = match encoding {
        Encoding::Json => codec::json::decode_typed(bytes, schema),
        Encoding::Yaml => yaml_typed(bytes, schema),
        Encoding::Protobuf => {
            let envelope = codec::protobuf::open(bytes).map_err(refuse)?;
            let raw = envelope.raw;
            let (version, kind) = target.of_envelope(envelope);
            target.check_kind(&version, &kind, bytes)?;
            codec::protobuf::decode_message(schema, raw).map(|value| Decoded {
                value,
                strict: Vec::new(),
            })
        }
        Encoding::Cbor => cbor_typed(bytes, schema, options.validation),
    };
    let mut decoded = decoded.map_err(refuse)?;
    target.check(&mut decoded.value, bytes)?;
    report(call, options.validation, &decoded.strict, |text| {
        target.refuse(
            text,
            meta::kind(&decoded.value),
            meta::api_version(&decoded.value),
            bytes,
        )
    })?;
    Ok(decoded.value)
}

/// YAML of a built-in type.
fn yaml_typed(bytes: &[u8], schema: SchemaRef<'_>) -> Result<Decoded, DecodeError> {
    let mut parsed = codec::yaml::decode(bytes)?;
    let mut decoded = codec::typed::decode_builtin(schema, parsed.value)?;
    parsed.strict.append(&mut decoded.strict);
    Ok(Decoded {
        value: decoded.value,
        strict: parsed.strict,
    })
}

/// CBOR of a built-in type. Upstream's library tells the first unknown field alone, by its place.
fn cbor_typed(
    bytes: &[u8],
    schema: SchemaRef<'_>,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    codec::cbor::interpret(bytes)?;
    let value = match codec::cbor::decode_bytes_of(schema, bytes)? {
        Value::Null => Value::Object(serde_json::Map::new()),
        value => value,
    };
    let mut decoded = codec::typed::decode_builtin(schema, value).map_err(|error| {
        let text = error.to_string();
        DecodeError::Type(match text.strip_prefix("json: ") {
            Some(text) => format!("cbor: {text}"),
            None if text.starts_with("illegal base64") => {
                format!("cbor: failed to decode base64 from byte string: {text}")
            }
            None => text,
        })
    })?;
    if !decoded.strict.is_empty() && validation != FieldValidation::Ignore {
        let index = codec::cbor::first_unknown(bytes, schema).unwrap_or_default();
        decoded.strict = vec![StrictError::Other(format!(
            "cbor: found unknown field at map element index {index}"
        ))];
    }
    Ok(decoded)
}

/// The text about bytes that do not say which kind they are of.
fn no_kind(error: &DecodeError) -> String {
    format!("unable to determine group/version/kind: {error}")
}

/// Warns of a strict fault; those of YAML are several in one text.
pub(super) fn warn(call: &Call<'_>, error: &str) {
    let error = error
        .strip_prefix("error converting YAML to JSON: ")
        .unwrap_or(error);
    match error.strip_prefix(YAML_ERRORS) {
        Some(lines) => lines
            .lines()
            .for_each(|line| call.authorized.context().warn(line.trim().to_owned())),
        None => call.authorized.context().warn(error.to_owned()),
    }
}

/// How the faults of a YAML document begin.
const YAML_ERRORS: &str = "yaml: unmarshal errors:\n";

/// Strict faults: an error, warnings or nothing, as the client asked.
pub(super) fn report(
    call: &Call<'_>,
    validation: FieldValidation,
    strict: &[StrictError],
    refuse: impl FnOnce(&str) -> ApiError,
) -> Result<(), ApiError> {
    match validation {
        _ if strict.is_empty() => Ok(()),
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            strict.iter().for_each(|error| warn(call, &error.to_string()));
            Ok(())
        }
        FieldValidation::Strict => Err(refuse(&codec::strict_message(strict))),
    }
}

fn custom(
    call: &Call<'_>,
    encoding: Encoding,
    bytes: &[u8],
    schema: Option<&KindSchema>,
    target: &Target<'_>,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let decoded = match encoding {
        Encoding::Json => codec::json::decode_exactly(bytes),
        Encoding::Yaml => codec::yaml::decode(bytes),
        Encoding::Cbor => return custom_cbor(call, bytes, schema, target),
        Encoding::Protobuf => {
            return Err(ApiError::unsupported_media_type(negotiate::object_types(
                &call.head,
            )));
        }
    };
    let mut decoded = decoded.map_err(|error| target.refuse(&error.to_string(), "", "", bytes))?;
    if !decoded.value.is_object() {
        return Err(target.refuse("expected object", "", "", bytes));
    }
    if meta::kind(&decoded.value).is_empty() {
        return Err(target.refuse("Object 'Kind' is missing", "", "", bytes));
    }
    if meta::api_version(&decoded.value) == target.api_version && meta::kind(&decoded.value) != target.kind {
        return Err(other_kind(call, &decoded.value, target.kind));
    }
    report(
        call,
        options.validation,
        &fields_of_another_version(&decoded.value, schema, target.api_version),
        |text| target.refuse(text, target.kind, target.api_version, bytes),
    )?;
    target.check(&mut decoded.value, bytes)?;
    shape(schema, &mut decoded)
        .map_err(|error| target.refuse(&error.to_string(), target.kind, target.api_version, bytes))?;
    report(call, options.validation, &decoded.strict, |text| {
        target.refuse(text, target.kind, target.api_version, bytes)
    })?;
    Ok(decoded.value)
}

/// CBOR of a custom kind. As upstream has it, field validation does not apply: fields that the schema does not have are dropped.
fn custom_cbor(
    call: &Call<'_>,
    bytes: &[u8],
    schema: Option<&KindSchema>,
    target: &Target<'_>,
) -> Result<Value, ApiError> {
    let unrecognized = |error: String| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {error} ({})",
            target.kind,
            summary(bytes)
        ))
    };
    let (version, kind) = codec::cbor::interpret(bytes).map_err(|error| unrecognized(no_kind(&error)))?;
    let value = codec::cbor::decode(bytes).map_err(|error| match error {
        DecodeError::Syntax(_) => unrecognized(no_kind(&error)),
        DecodeError::Type(text) => target.refuse(&text, &kind, &version, bytes),
    })?;
    if kind.is_empty() {
        return Err(unrecognized("Object 'Kind' is missing".to_owned()));
    }
    if version.is_empty() {
        return Err(target.refuse("Object 'apiVersion' is missing", &kind, &version, bytes));
    }
    if version == target.api_version && kind != target.kind {
        return Err(other_kind(call, &value, target.kind));
    }
    let mut decoded = Decoded {
        value,
        strict: Vec::new(),
    };
    target.check(&mut decoded.value, bytes)?;
    shape(schema, &mut decoded)
        .map_err(|error| target.refuse(&error.to_string(), target.kind, target.api_version, bytes))?;
    Ok(decoded.value)
}

/// An object of another kind of the group is refused as upstream's validation does, in that kind's name.
fn other_kind(call: &Call<'_>, object: &Value, wanted: &str) -> ApiError {
    let sent = meta::kind(object);
    let fault = FieldError::invalid_str(&FieldPath::new("kind"), sent, format!("must be {wanted}"));
    let kind = GroupKind::new(&call.resource.gvk.group, sent);
    ApiError::invalid(&kind, meta::name(object), &[fault])
}

/// The fields of a custom object that says it is of another version: there is no schema that knows them.
pub(super) fn fields_of_another_version(
    object: &Value,
    schema: Option<&KindSchema>,
    own: &str,
) -> Vec<StrictError> {
    let sent = meta::api_version(object);
    if schema.is_none() || sent.is_empty() || sent == own {
        return Vec::new();
    }
    let fields = object.as_object().into_iter().flatten().map(|(key, _)| key);
    fields
        .filter(|key| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"))
        .map(|key| StrictError::Unknown(key.clone()))
        .take(limits::STRICT_ERRORS)
        .collect()
}

/// The options of a deletion in its body, when there is one.
pub(super) async fn delete_options(call: &Call<'_>) -> Result<Option<Value>, ApiError> {
    let bytes = bytes(call).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let Some(schema) = schema::builtin().by_type_name("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
    else {
        return Err(ApiError::internal("no schema for DeleteOptions"));
    };
    let sent = call
        .head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let decoded = match sent.split(';').next().unwrap_or_default().trim() {
        "" | "application/json" => codec::json::decode_typed(&bytes, schema.root()),
        "application/yaml" => yaml_typed(&bytes, schema.root()),
        "application/vnd.kubernetes.protobuf" => codec::protobuf::decode(schema.root(), &bytes)
            .map(|value| Decoded {
                value,
                strict: Vec::new(),
            })
            .map_err(|error| DecodeError::Type(error.to_string())),
        CBOR if negotiate::serves_cbor(&call.head) => {
            // Unknown fields are passed over, as they are in JSON.
            cbor_typed(&bytes, schema.root(), FieldValidation::Ignore).map_err(|error| match error {
                DecodeError::Syntax(_) => DecodeError::Type(no_kind(&error)),
                other => other,
            })
        }
        _ => {
            return Err(ApiError::unsupported_media_type(negotiate::object_types(
                &call.head,
            )));
        }
    };
    let object = decoded
        .map_err(|error| match error {
            DecodeError::Syntax(why) => {
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
            }
            other => ApiError::bad_request(other.to_string()),
        })?
        .value;
    let kind = meta::kind(&object);
    if !kind.is_empty() && kind != "DeleteOptions" {
        let version = match meta::api_version(&object) {
            "" => "meta.k8s.io/v1",
            version => version,
        };
        return Err(ApiError::bad_request(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            go::quote(kind),
            go::quote(version)
        )));
    }
    Ok(Some(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded() {
        async fn check(pieces: &[usize], limit: usize, expected: Result<usize, u16>) {
            let frames: Vec<_> = pieces
                .iter()
                .map(|bytes| Ok(http_body::Frame::data(Bytes::from(vec![b'x'; *bytes]))))
                .collect();
            let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let read = read(body, limit).await;
            assert_eq!(
                read.map(|bytes| bytes.len()).map_err(|error| error.code()),
                expected,
                "{pieces:?}"
            );
        }
        check(&[], 10, Ok(0)).await;
        check(&[10], 10, Ok(10)).await;
        check(&[11], 10, Err(413)).await;
        check(&[4, 6], 10, Ok(10)).await;
        check(&[4, 6, 1], 10, Err(413)).await;
    }
}
