//! A resource's codec with encryption around it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use machinery::GroupResource;
use serde_json::Value;
use storage::encryption::{Identity, TransformError, Transformer};

use super::cache::{StorageCodec, ValueError};
use crate::encryption::Encryption;

/// Encrypts what the codec within makes, and the reverse. Without a configuration it only ensures that no reader takes encrypted
/// bytes for an object.
#[derive(Debug)]
pub(super) struct EncryptedCodec {
    pub(super) inner: Arc<dyn StorageCodec>,
    pub(super) encryption: Option<Arc<Encryption>>,
    pub(super) resource: GroupResource,
}

impl EncryptedCodec {
    fn plain(&self, key: &str, stored: &Bytes) -> Result<(Bytes, bool), ValueError> {
        let transformers = self
            .encryption
            .as_ref()
            .and_then(|e| Some((e, e.of(&self.resource)?)));
        let Some((encryption, transformers)) = transformers else {
            let plain = Identity.read(stored, key.as_bytes()).map_err(unreadable)?;
            return Ok((plain.data, plain.stale));
        };
        let outcome = transformers.read(stored, key.as_bytes());
        if outcome != Err(TransformError::KeyNeeded) {
            let prefix = match transformers.prefix_of(stored) {
                Some(b"") => &b"identity"[..],
                Some(prefix) => prefix,
                None => b"unknown",
            };
            let figures = &encryption.figures;
            figures.transformed(&self.resource, false, prefix, outcome.is_ok());
        }
        let plain = outcome.map_err(unreadable)?;
        Ok((plain.data, plain.stale))
    }
}

fn unreadable(error: TransformError) -> ValueError {
    ValueError::Untransformable(Cow::Owned(error.to_string()))
}

#[async_trait::async_trait]
impl StorageCodec for EncryptedCodec {
    fn decode(&self, key: &str, stored: &Bytes) -> Result<Bytes, ValueError> {
        let (plain, _) = self.plain(key, stored)?;
        self.inner.decode(key, &plain)
    }

    fn encode(&self, key: &str, object: &Value, json: &Bytes) -> Result<Bytes, ValueError> {
        let plain = self.inner.encode(key, object, json)?;
        let transformers = self
            .encryption
            .as_ref()
            .and_then(|e| Some((e, e.of(&self.resource)?)));
        let Some((encryption, transformers)) = transformers else {
            return Ok(plain);
        };
        let outcome = transformers.write(&plain, key.as_bytes());
        let figures = &encryption.figures;
        figures.transformed(&self.resource, true, transformers.writes(), outcome.is_ok());
        outcome.map(Bytes::from).map_err(unreadable)
    }

    fn may_be_stale(&self) -> bool {
        self.encryption.is_some() || self.inner.may_be_stale()
    }

    fn is_stale(&self, key: &str, stored: &Bytes) -> bool {
        match self.plain(key, stored) {
            Ok((plain, stale)) => stale || self.inner.is_stale(key, &plain),
            Err(_) => false,
        }
    }

    fn lacks_key(&self, stored: &Bytes) -> bool {
        let transformers = self.encryption.as_ref().and_then(|e| e.of(&self.resource));
        transformers.is_some_and(|transformers| transformers.lacks_key(stored))
    }

    async fn prepare(&self, stored: &Bytes) {
        let transformers = self.encryption.as_ref().and_then(|e| e.of(&self.resource));
        if let Some(transformers) = transformers
            && transformers.lacks_key(stored)
        {
            // A failure shows when the value is read.
            let _ = transformers.prepare(stored).await;
        }
    }
}
