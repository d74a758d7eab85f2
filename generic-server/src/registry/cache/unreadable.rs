//! Objects whose stored values cannot be read: with a key that is not there, or damaged. Each is an error of that object alone.

use std::sync::Arc;

use storage::{KeyValue, Revision, StorageError};

use super::{Entry, ObjectCache, Prepared, StorageCodec, ValueError};
use crate::registry::store::StoreConfig;

/// An object that is there and cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The storage key.
    pub key: Arc<str>,
    /// The revision of its last write.
    pub revision: Revision,
    /// Why not.
    pub error: ValueError,
    /// The last state that watchers have seen, so that its deletion can be delivered.
    pub(super) last: Option<Arc<Entry>>,
}

impl Unreadable {
    /// Stored values that cannot be read.
    pub(crate) fn new(kv: &KeyValue, error: ValueError) -> Self {
        Unreadable {
            key: kv.key.clone(),
            revision: kv.mod_revision,
            error,
            last: None,
        }
    }

    /// The text of upstream's handling of corrupt objects.
    pub(crate) fn corruption(&self, key: &str) -> String {
        let why = match &self.error {
            ValueError::Untransformable(why) => {
                format!("data from the storage is not transformable revision=0: {why}")
            }
            ValueError::Undecodable(why) => format!("object not decodable revision={}: {why}", self.revision),
        };
        format!(
            "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        )
    }
}

impl Prepared {
    /// The object of a key and value of the store.
    ///
    /// # Errors
    /// When the value is damaged, or cannot be decrypted or decoded.
    pub(crate) fn of(
        config: &StoreConfig,
        kv: &KeyValue,
        codec: &dyn StorageCodec,
    ) -> Result<Prepared, ValueError> {
        let value = kv.readable().map_err(|damage| {
            ValueError::undecodable(format_args!(
                "the object stored at {} is damaged: {damage}",
                kv.key
            ))
        })?;
        Prepared::from_stored(config, &kv.key, value, codec)
    }
}

impl ObjectCache {
    /// Writes it to the log that an object cannot be read, and keeps what is known of it.
    pub(super) fn unreadable(
        &self,
        key: &Arc<str>,
        revision: Revision,
        error: ValueError,
        last: Option<Arc<Entry>>,
    ) -> Arc<Unreadable> {
        tracing::error!(resource.gvr = %self.resource(), key = %key, %error, "an object cannot be read");
        Arc::new(Unreadable {
            key: key.clone(),
            revision,
            error,
            last,
        })
    }

    /// Looks at an object's stored value once more: the key that it needs may be there by now. When it can be read, so may others,
    /// and the cache restarts.
    ///
    /// # Errors
    /// Outside, when the engine does not answer; inside, why the object still cannot be read.
    pub async fn reread(
        self: &Arc<Self>,
        key: &str,
    ) -> Result<Result<Option<Arc<Entry>>, Arc<Unreadable>>, StorageError> {
        let (found, _) = self.engine.get(key, None).await?;
        let Some(kv) = found else { return Ok(Ok(None)) };
        Ok(match self.decode(&kv).await {
            Ok(entry) => {
                self.begin_restart();
                Ok(Some(entry))
            }
            // The log has it from when it was found: a client that reads in a loop does not fill it.
            Err(error) => Err(Arc::new(Unreadable::new(&kv, error))),
        })
    }
}
