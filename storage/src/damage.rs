//! The damage of a store: the records that fail their checksum, each by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Revision;

/// Damaged records that are remembered; more are counted in the log alone.
const REMEMBERED: usize = 10_000;

/// A stored change that cannot be read. It hurts no other: reads go on around it, and its key can be overwritten or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The key it belongs to. `None` when that is not known: the key is then as it was before this change.
    pub key: Option<Arc<str>>,
    /// The revision it was written at.
    pub revision: Revision,
    /// Its place in that revision's transaction.
    pub place: u32,
    /// The failure as a clause: `the value written at revision 7 fails its checksum`.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// The damage found so far that is still there.
#[derive(Debug, Default)]
pub(crate) struct Damaged {
    known: Mutex<BTreeMap<(Revision, u32), Arc<Damage>>>,
    /// What the index was made without. It stays until the store is opened again: no later change says which keys these were.
    lost: Vec<Arc<Damage>>,
}

impl Damaged {
    /// The damage that a log was loaded with.
    pub(crate) fn loaded(found: Vec<Damage>) -> Damaged {
        let mut damaged = Damaged::default();
        for damage in found {
            let damage = damaged.report(damage);
            if damage.key.is_none() {
                damaged.lost.push(damage);
            }
        }
        damaged
    }

    /// Remembers it, and logs it the first time.
    pub(crate) fn report(&self, damage: Damage) -> Arc<Damage> {
        let place = (damage.revision, damage.place);
        let mut known = self.known.lock();
        if let Some(known) = known.get(&place) {
            return known.clone();
        }
        tracing::error!(
            key = damage.key.as_deref().unwrap_or("(unreadable)"),
            revision = damage.revision.0,
            what = damage.what,
            "a stored record is damaged"
        );
        let damage = Arc::new(damage);
        if known.len() < REMEMBERED {
            known.insert(place, damage.clone());
        }
        damage
    }

    /// The change is no longer kept.
    pub(crate) fn forget(&self, revision: Revision, place: u32) {
        let mut known = self.known.lock();
        if !known.is_empty() {
            known.remove(&(revision, place));
        }
    }

    /// The same, remembered independently.
    pub(crate) fn share(&self) -> Damaged {
        Damaged {
            known: Mutex::new(self.known.lock().clone()),
            lost: self.lost.clone(),
        }
    }

    /// In the order of their revisions.
    pub(crate) fn list(&self) -> Vec<Arc<Damage>> {
        self.known.lock().values().cloned().collect()
    }

    /// See [`Store::lost`](crate::Store::lost).
    pub(crate) fn lost(&self) -> &[Arc<Damage>] {
        &self.lost
    }
}
