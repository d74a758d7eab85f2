//! The forms that objects are stored in.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use machinery::codec::{protobuf, yaml};
use machinery::schema::KindSchema;
use serde_json::Value;

use crate::registry::strategy::Strategy;

/// Why a stored value is no object, or an object cannot be stored. Display is upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It cannot be decrypted, or not be encrypted.
    #[error("{0}")]
    Untransformable(Cow<'static, str>),
    /// It is not an encoded object.
    #[error("{0}")]
    Undecodable(String),
}

impl ValueError {
    /// It is not an encoded object.
    pub fn undecodable(why: impl fmt::Display) -> Self {
        ValueError::Undecodable(why.to_string())
    }
}

/// Between the bytes in the store and JSON without a resourceVersion.
#[async_trait::async_trait]
pub trait StorageCodec: Send + Sync + fmt::Debug {
    /// Stored bytes to JSON.
    fn decode(&self, key: &str, stored: &Bytes) -> Result<Bytes, ValueError>;
    /// An object to stored bytes. `json` is the same object as it is laid out, without a resourceVersion, which `object` may have.
    fn encode(&self, key: &str, object: &Value, json: &Bytes) -> Result<Bytes, ValueError>;

    /// Whether the same object may be stored otherwise at different times, so that a write that changes nothing has to ask
    /// [`StorageCodec::is_stale`].
    fn may_be_stale(&self) -> bool {
        false
    }

    /// Whether the object in these bytes would be stored otherwise now: with another key, for instance.
    fn is_stale(&self, key: &str, stored: &Bytes) -> bool {
        let _ = (key, stored);
        false
    }

    /// Whether decoding these bytes needs a key that [`StorageCodec::prepare`] has to fetch first.
    fn lacks_key(&self, stored: &Bytes) -> bool {
        let _ = stored;
        false
    }

    /// Fetches what decoding these bytes needs, in a bounded time. Decoding reports whether it is there.
    async fn prepare(&self, stored: &Bytes) {
        let _ = stored;
    }
}

/// Values are JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonCodec;

impl StorageCodec for JsonCodec {
    fn decode(&self, _key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        Ok(stored.clone())
    }

    fn encode(&self, _key: &str, _object: &Value, json: &Bytes) -> Result<Bytes, ValueError> {
        Ok(json.clone())
    }
}

/// The form of stored values of built-in kinds (`--storage-media-type`). Whatever is written, all are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredForm {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`, in upstream's envelope.
    Protobuf,
}

impl StoredForm {
    /// The form of a stored value, by how it begins.
    fn of(stored: &[u8]) -> StoredForm {
        match stored {
            [b'{', ..] => StoredForm::Json,
            // YAML is text that does not begin with the envelope's mark.
            text if !text.starts_with(b"k8s\0") && std::str::from_utf8(text).is_ok() => StoredForm::Yaml,
            _ => StoredForm::Protobuf,
        }
    }
}

/// Values of a built-in kind as a kube-apiserver on the same etcd reads and writes them: upstream's protobuf envelope, JSON or
/// YAML. Any of them is read, also at another version of the group whose objects look the same (upstream keeps some kinds at their
/// beta version for a release after they have become stable).
#[derive(Debug, Clone)]
pub struct BuiltinCodec {
    /// The stored version's schema.
    pub schema: KindSchema,
    /// The `apiVersion` of objects here.
    pub api_version: Box<str>,
    /// The form in which values are written.
    pub form: StoredForm,
    /// Says what is taken for granted where others left it unsaid: upstream's server fills in defaults as it reads.
    pub defaults: Arc<dyn Strategy>,
}

impl StorageCodec for BuiltinCodec {
    fn decode(&self, _key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        let mut object = match StoredForm::of(stored) {
            StoredForm::Json if begins_with_version(stored, &self.api_version) => return Ok(stored.clone()),
            StoredForm::Json => serde_json::from_slice(stored).map_err(ValueError::undecodable)?,
            StoredForm::Yaml => yaml::decode(stored).map_err(ValueError::undecodable)?.value,
            StoredForm::Protobuf => {
                protobuf::decode(self.schema.root(), stored).map_err(ValueError::undecodable)?
            }
        };
        if let Value::Object(map) = &mut object {
            map.insert("apiVersion".into(), (&*self.api_version).into());
        }
        self.defaults.default(&mut object);
        serde_json::to_vec(&object)
            .map(Bytes::from)
            .map_err(ValueError::undecodable)
    }

    fn encode(&self, _key: &str, object: &Value, json: &Bytes) -> Result<Bytes, ValueError> {
        if self.form == StoredForm::Json {
            return Ok(json.clone());
        }
        let versioned = machinery::meta::metadata(object).is_some_and(|m| m.contains_key("resourceVersion"));
        let object = match versioned {
            true => Cow::Owned(serde_json::from_slice(json).map_err(ValueError::undecodable)?),
            false => Cow::Borrowed(object),
        };
        Ok(match self.form {
            StoredForm::Yaml => yaml::to_string(&object).into(),
            _ => protobuf::encode(self.schema.root(), &object).into(),
        })
    }

    fn may_be_stale(&self) -> bool {
        self.form != StoredForm::Json
    }

    fn is_stale(&self, _key: &str, stored: &Bytes) -> bool {
        self.may_be_stale() && StoredForm::of(stored) != self.form
    }
}

/// Whether JSON starts with `{"kind":"...","apiVersion":"VERSION"`, as both servers write it.
fn begins_with_version(json: &[u8], version: &str) -> bool {
    let rest = json.strip_prefix(b"{\"kind\":\"").and_then(|rest| {
        let end = rest.iter().position(|byte| *byte == b'"')?;
        rest[end..].strip_prefix(b"\",\"apiVersion\":\"")
    });
    rest.and_then(|rest| rest.strip_prefix(version.as_bytes()))
        .is_some_and(|rest| rest.first() == Some(&b'"'))
}
