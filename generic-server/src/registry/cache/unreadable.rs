//! Objects whose stored values cannot be read: with a key that is not there, or damaged. Each is an error of that object alone.

use std::sync::Arc;

use storage::Revision;

use super::{Entry, ValueError};

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
