//! Past states, for exact lists and further pages. Made of the newest state and the events since, where those are
//! still there, else read from the store's history; either way they share every object that has not changed.

use std::sync::Arc;

use machinery::ApiError;
use storage::{Revision, StorageError};

use super::{Change, FRESHNESS_TIMEOUT, ObjectCache, Snapshot};
use crate::registry::budget::Holder;

impl ObjectCache {
    /// Keeps a snapshot for a while: the next page of a list will ask for it.
    pub fn retain(self: &Arc<Self>, snapshot: &Arc<Snapshot>) {
        self.kept.insert(snapshot, &self.newest);
        if self.kept.is_exceeded() || self.budget.is_exceeded() {
            self.budget.reclaim();
        }
        self.schedule_sweep();
    }

    /// The state at exactly this revision: a kept snapshot, else what the engine still has. 410 when it has been compacted,
    /// 504 when it lies ahead.
    pub async fn exactly(self: &Arc<Self>, revision: Revision) -> Result<Arc<Snapshot>, ApiError> {
        let newest = self.newest.load_full();
        if newest.revision == revision {
            return Ok(newest);
        }
        if newest.revision < revision {
            let reached = self.wait_for(revision).await?;
            if reached.revision == revision {
                return Ok(reached);
            }
            // Nothing has happened here since `newest`: the same objects, at the revision that was asked for.
            if self.newest.load().revision == newest.revision {
                return Ok(newest.known_up_to(revision));
            }
        }
        if let Some(kept) = self.kept.get(revision) {
            return Ok(kept);
        }
        // One at a time: a state under construction is not in the budget yet, and the next reader may need the same.
        let _making = self.making.lock().await;
        if let Some(kept) = self.kept.get(revision) {
            return Ok(kept);
        }
        let made = self.at(revision).await.map_err(|error| self.failure(&error))?;
        let made = Arc::new(made);
        self.retain(&made);
        Ok(made)
    }

    /// The state at a revision before the newest.
    async fn at(&self, revision: Revision) -> Result<Snapshot, StorageError> {
        // A revision that the store has compacted is gone for the cache, too, even if the ring still holds it.
        self.engine.get(&self.watch_prefix(), Some(revision)).await?;
        let (older, newer) = self.kept.around(revision);
        let newer = newer.unwrap_or_else(|| self.newest.load_full());
        if self.has_told(newer.revision).await
            && let Some(changes) = self.ring.between(revision, newer.revision)
        {
            self.budget.count_undone();
            return Ok(undo(&newer, &changes, revision));
        }
        self.budget.count_read();
        self.read(Some(revision), &newer, older.as_deref()).await
    }

    /// Whether every event up to a revision has come to the ring; waits for what is on its way.
    async fn has_told(&self, revision: Revision) -> bool {
        if self.current() >= revision {
            return true;
        }
        let mut offered = self.offered.subscribe();
        let reached = offered.wait_for(|offered| *offered >= revision);
        matches!(tokio::time::timeout(FRESHNESS_TIMEOUT, reached).await, Ok(Ok(_)))
    }
}

/// The state before these changes, which are all that led to `newer`.
fn undo(newer: &Snapshot, changes: &[Arc<Change>], revision: Revision) -> Snapshot {
    let mut then = Snapshot {
        revision,
        ..newer.clone()
    };
    for change in changes.iter().rev() {
        let key = &change.entry.key;
        let after = match &change.previous {
            None => then.objects.remove(key),
            Some(previous) => then.objects.insert(key.clone(), previous.clone()),
        };
        then.by_field.change(after.as_deref(), change.previous.as_deref());
    }
    then
}

impl Holder for ObjectCache {
    fn snapshots(&self) -> Vec<(u64, u64)> {
        self.kept.gains(&self.newest)
    }

    fn evict(&self, name: u64) -> usize {
        self.kept.remove(Revision(name), &self.newest)
    }

    fn snapshot_bytes(&self) -> usize {
        self.kept.bytes()
    }

    fn event_bytes(&self) -> usize {
        self.ring.bytes()
    }

    fn halve_events(&self) {
        self.ring.halve();
    }
}
