//! Objects whose stored values cannot be read: with a key that is not there, or damaged. Each is an error of that object alone.

use std::sync::Arc;

use storage::{Revision, StorageError};

use super::{Entry, ObjectCache, Prepared, ValueError};

/// An object that is there and cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The storage key.
    pub key: Arc<str>,
    /// The revision of its last write.
    pub revision: Revision,
    /// Why not.
    pub error: ValueError,
    /// What watchers have seen of it last, so that its deletion can be told.
    pub(super) last: Option<Arc<Entry>>,
}

impl Unreadable {
    /// In upstream's words, as its handling of corrupt objects tells it.
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
    /// and the cache starts anew.
    ///
    /// # Errors
    /// Outside, when the engine does not answer; inside, why the object still cannot be read.
    pub async fn reread(
        self: &Arc<Self>,
        key: &str,
    ) -> Result<Result<Option<Arc<Entry>>, Arc<Unreadable>>, StorageError> {
        let (found, _) = self.engine.get(key, None).await?;
        let Some(kv) = found else { return Ok(Ok(None)) };
        self.codec.prepare(&kv.value).await;
        Ok(
            match Prepared::from_stored(&self.config, &kv.key, &kv.value, &*self.codec) {
                Ok(prepared) => {
                    self.start_anew();
                    Ok(Some(Arc::new(prepared.finish(kv.mod_revision))))
                }
                Err(error) => Err(self.unreadable(&kv.key, kv.mod_revision, error, None)),
            },
        )
    }
}
