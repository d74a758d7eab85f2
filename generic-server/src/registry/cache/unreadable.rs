//! Objects whose stored values cannot be read: with a key that is not there, or damaged. Each is an error of that object alone.

use std::sync::Arc;

use machinery::status::Details;
use machinery::{ApiError, Cause, GroupResource, Reason};
use storage::{KeyValue, Revision, StorageError};

use super::{Entry, ObjectCache, Prepared, StorageCodec, ValueError};
use crate::registry::config::StoreConfig;

/// Objects that a failed list names at most.
const NAMED: usize = 100;

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

impl Unreadable {
    /// 500 for an object that is there and cannot be read. `detailed`: in the words of upstream's handling of corrupt objects.
    pub(crate) fn refusal(&self, detailed: bool) -> ApiError {
        if detailed {
            // Upstream's key lacks the prefix of the whole store here.
            let key = self
                .key
                .get(1..)
                .and_then(|key| Some(&self.key[key.find('/')? + 1..]));
            return ApiError::internal(self.corruption(key.unwrap_or(&self.key)));
        }
        match &self.error {
            ValueError::Untransformable(why) => ApiError::internal(why),
            ValueError::Undecodable(why) => ApiError::raw_internal(why.clone()),
        }
    }

    /// 500 for a list with objects that cannot be read; with `detailed` it names them.
    pub(crate) fn list_refusal(
        objects: &[Arc<Unreadable>],
        resource: &GroupResource,
        detailed: bool,
    ) -> ApiError {
        let Some(first) = objects.first() else {
            return ApiError::internal("the list cannot be read");
        };
        if !detailed {
            return match &first.error {
                ValueError::Untransformable(why) => {
                    ApiError::internal(format_args!("unable to transform key \"{}\": {why}", first.key))
                }
                ValueError::Undecodable(why) => ApiError::raw_internal(why.clone()),
            };
        }
        let message = format!("failed to read one or more {resource} from the storage");
        let details = Details {
            group: resource.group.to_string(),
            kind: resource.resource.to_string(),
            name: "list".into(),
            ..Details::default()
        };
        let mut error = ApiError::new(500, Reason::StorageReadError, message).with_details(details);
        for object in objects.iter().take(NAMED) {
            error = error.with_cause(Cause {
                reason: "UnexpectedServerResponse".into(),
                message: object.corruption(&object.key),
                field: object.key.to_string(),
            });
        }
        if objects.len() > NAMED {
            error = error.with_cause(Cause {
                reason: "FieldValueTooMany".into(),
                message: "too many errors, the list is truncated".into(),
                field: String::new(),
            });
        }
        error
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
