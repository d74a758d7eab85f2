//! Lost changes: those whose keys cannot be read, so that nobody knows which objects are missing or older than they should be.
//!
//! A store goes on without them and says so ([`Store::lost`]); what follows from that is for its user to decide. Nothing removes them
//! on its own, since an unknown key is never overwritten: they are lost at every start until somebody takes note.

use std::sync::Arc;

use super::scrub::existing;
use super::{FORMATS, MvccStore, clock, close_kv, open_kv, writer};
use crate::{Damage, OpenOptions, StorageError, Store as _};

/// Removes the [lost](crate::Store::lost) changes of a store that no process has open, and gives them. What they wrote stays lost, and
/// watches do not resume from before it. The store is opened as a start does it, mended where it is damaged otherwise.
///
/// # Errors
/// As [`open`](crate::open), and `Gone` where there is no store. When writing fails, all of them are still there, or none.
pub fn drop_lost(options: &OpenOptions) -> Result<Vec<Arc<Damage>>, StorageError> {
    drop(existing(options)?);
    let store = MvccStore::open(options.clone())?;
    let lost = store.lost();
    // Closes it: there is no other handle.
    drop(store);
    if lost.is_empty() {
        return Ok(lost);
    }
    let mut directory = existing(options)?;
    let reached = directory.reached().unwrap_or(0);
    let mut kv = open_kv(&directory.data(), options, reached)?;
    // Before anything is written, as at a start. The note of the damage stays for the next one.
    kv.mend(reached)?;
    let load = |kv: &_| writer::load(kv, FORMATS.map, false, clock::wall_ms());
    let loaded = load(&*kv)?;
    // From here on the number of records says nothing about a loss.
    directory.opened(loaded.index.revision, loaded.book.records, false)?;
    writer::drop_lost(&*kv, &loaded)?;
    let left = load(&*kv)?;
    if close_kv(kv, true) {
        directory.closed(left.index.revision, left.book.records);
    }
    Ok(lost)
}
