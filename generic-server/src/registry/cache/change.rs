//! Events as watchers get them: the change of an object, and the encoded forms that all watchers share.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use storage::Revision;

use super::Entry;

/// A change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the entry is its last state, with the deletion's revision.
    Deleted,
}

impl ChangeKind {
    /// The wire form: `ADDED`, `MODIFIED`, `DELETED`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One event, shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// The type of the change.
    pub kind: ChangeKind,
    /// The state after (for `Deleted` the last state, with the deletion's revision as resourceVersion).
    pub entry: Arc<Entry>,
    /// The state before.
    pub previous: Option<Arc<Entry>>,
    /// The event's revision.
    pub revision: Revision,
    /// The event on the wire, as watchers of the same form share it: by form, encoded by the first that needs it. `None` once few
    /// are likely to need it: a later one encodes it for itself.
    frames: Mutex<Option<Vec<(u64, Bytes)>>>,
}

impl Change {
    pub(super) fn new(
        kind: ChangeKind,
        entry: Arc<Entry>,
        previous: Option<Arc<Entry>>,
        revision: Revision,
    ) -> Arc<Self> {
        Arc::new(Change {
            kind,
            entry,
            previous,
            revision,
            frames: Mutex::new(Some(Vec::new())),
        })
    }

    /// The encoded event of a form, made once. `form` identifies version, media type and view; watchers of one form give the
    /// same bytes.
    pub fn frame<E>(&self, form: u64, encode: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let known = |frames: &[(u64, Bytes)]| frames.iter().find(|(f, _)| *f == form).map(|(_, b)| b.clone());
        // Encoding happens under the lock: a second watcher waits for the first one's bytes rather than making its own.
        let mut kept = self.frames.lock();
        let Some(frames) = &mut *kept else {
            drop(kept);
            return encode();
        };
        if let Some(bytes) = known(frames) {
            return Ok(bytes);
        }
        let bytes = encode()?;
        frames.push((form, bytes.clone()));
        Ok(bytes)
    }

    /// Few are likely to ask for the encoded event again.
    pub(super) fn forget_frames(&self) {
        *self.frames.lock() = None;
    }

    /// About what it keeps in memory that the newest snapshot does not: the state before, and a deletion's own form of it. The
    /// state after is in the snapshot, or else the state before of a later event.
    pub(super) fn weight(&self) -> usize {
        let own = match self.kind {
            ChangeKind::Deleted => self.entry.json.len(),
            ChangeKind::Added | ChangeKind::Modified => 0,
        };
        self.previous.as_ref().map_or(0, |p| p.json.len()) + own + 256
    }

    /// The same of an event that was read back from the engine, which shares its states with nothing.
    pub(super) fn weight_alone(&self) -> usize {
        self.previous.as_ref().map_or(0, |p| p.json.len()) + self.entry.json.len() + 256
    }
}
