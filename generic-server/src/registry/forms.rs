//! Encoded forms of cached objects besides their JSON, and compressed blocks of lists: made for the first reader, kept for the next ones.
//!
//! A form of an object is kept with its entry. An entry never changes, so its forms are never stale and go when the entry goes. A
//! block is found by the objects in it and checked against their revisions, so that a newer state of the same objects replaces it.
//! All forms and blocks of a server have one budget, [`limits::FORM_BYTES`]. Those that were not used for a while make room for new
//! ones; while all are in use, new ones are not kept, so that a list too large for the budget does not push out what it reads next.

mod block;
mod ids;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use machinery::limits;
use parking_lot::Mutex;

use crate::metrics::{Collect, family, sample};
use ids::Ids;

pub(crate) use block::{Block, BlockKey};
pub(crate) use ids::{FormId, Owner};
pub(crate) use slot::FormSlot;

/// How many of the kept are looked at for each that is added: two, so that those that have gone meanwhile never outnumber the others.
const LOOKS: usize = 2;
/// The same while there is no room.
const MORE_LOOKS: usize = 16;

/// The forms of one server.
pub(crate) struct FormCache {
    limit: usize,
    /// Bytes that are kept. Raised with `round` locked only, so that the limit is exact.
    held: AtomicUsize,
    started: Instant,
    /// Seconds that tests have let pass.
    skipped: AtomicU32,
    ids: Mutex<Ids>,
    /// Everything that is kept, in the order in which it is looked at.
    round: Mutex<VecDeque<Kept>>,
    blocks: Mutex<HashMap<u64, Arc<Block>>>,
    hasher: RandomState,
    evicted: AtomicU64,
    refused: AtomicU64,
}

/// Something that can be let go of.
#[derive(Debug)]
enum Kept {
    Entry(Weak<slot::EntryForms>),
    Block(u64),
}

impl fmt::Debug for FormCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormCache")
            .field("limit", &self.limit)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl FormCache {
    /// A cache of at most so many bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(FormCache {
            limit,
            held: AtomicUsize::new(0),
            started: Instant::now(),
            skipped: AtomicU32::new(0),
            ids: Mutex::default(),
            round: Mutex::default(),
            blocks: Mutex::default(),
            hasher: RandomState::new(),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// The identity of a form of an owner's objects, in this process. `view` distinguishes the forms of one owner. It is never that of
    /// another owner, even if one is made in the place of one that has gone.
    pub(crate) fn id(&self, owner: &Owner, view: u16) -> FormId {
        self.ids.lock().get(owner, view)
    }

    /// The block of these objects, if it is kept.
    pub(crate) fn block(&self, key: &BlockKey) -> Option<Arc<Block>> {
        let block = self.blocks.lock().get(&key.hash).cloned()?;
        if !block.is(key) {
            return None;
        }
        block.use_at(self.now());
        Some(block)
    }

    /// Keeps a block, where there is room, in place of an older state of the same objects.
    pub(crate) fn keep_block(&self, block: &Arc<Block>) {
        let hash = block.key().hash;
        let weight = block.weight();
        if !self.reserve(weight) {
            return;
        }
        block.use_at(self.now());
        let before = self.blocks.lock().insert(hash, block.clone());
        match before {
            Some(before) => self.release(before.weight()),
            None => self.round.lock().push_back(Kept::Block(hash)),
        }
    }

    /// Where the identity of a block's objects is hashed: clients choose names, but cannot aim at a hash.
    pub(crate) fn hasher(&self) -> impl std::hash::Hasher + use<> {
        self.hasher.build_hasher()
    }

    /// Bytes that are kept.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Seconds since the start.
    fn now(&self) -> u32 {
        let seconds = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX);
        seconds.saturating_add(self.skipped.load(Ordering::Relaxed))
    }

    /// Takes so many bytes of the budget, if they can be had without what is in use.
    fn reserve(&self, bytes: usize) -> bool {
        let now = self.now();
        let mut round = self.round.lock();
        let mut looked = 0;
        loop {
            let fits = self.held() + bytes <= self.limit;
            if fits && looked >= LOOKS {
                break;
            }
            if looked >= MORE_LOOKS {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            looked += 1;
            let unused = match fits {
                true => limits::FORM_IDLE.as_secs(),
                false => limits::FORM_IN_USE.as_secs(),
            };
            let Some(kept) = round.pop_front() else {
                if fits {
                    break;
                }
                self.refused.fetch_add(1, Ordering::Relaxed);
                return false;
            };
            if let Some(kept) = self.look_at(kept, now, unused) {
                round.push_back(kept);
            }
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Lets go of what was not used for so many seconds; gives the others back.
    fn look_at(&self, kept: Kept, now: u32, unused: u64) -> Option<Kept> {
        let in_use = |used: u32| u64::from(now.saturating_sub(used)) < unused;
        match &kept {
            Kept::Entry(forms) => {
                let forms = forms.upgrade()?;
                if in_use(forms.used()) {
                    return Some(kept);
                }
                forms.leave();
            }
            Kept::Block(hash) => {
                let mut blocks = self.blocks.lock();
                if in_use(blocks.get(hash)?.used()) {
                    return Some(kept);
                }
                let gone = blocks.remove(hash)?;
                self.release(gone.weight());
            }
        }
        self.evicted.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn enter(&self, forms: &Arc<slot::EntryForms>) {
        self.round.lock().push_back(Kept::Entry(Arc::downgrade(forms)));
    }

    /// Lets time pass.
    #[cfg(test)]
    pub(crate) fn skip(&self, time: std::time::Duration) {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        self.skipped.fetch_add(seconds, Ordering::Relaxed);
    }

    /// How many are waiting to be looked at, gone ones included.
    #[cfg(test)]
    fn round_len(&self) -> usize {
        self.round.lock().len()
    }
}

impl Collect for FormCache {
    fn collect(&self, out: &mut String) {
        let gauges = [
            (
                "apiserver_encoded_forms_limit_bytes",
                "What encoded forms of objects and compressed blocks of lists may take.",
                self.limit,
            ),
            (
                "apiserver_encoded_forms_bytes",
                "Bytes of encoded forms of objects and compressed blocks of lists that are kept.",
                self.held(),
            ),
        ];
        for (name, help, value) in gauges {
            family(out, name, "gauge", help);
            sample(out, name, &[], value);
        }
        let name = "apiserver_encoded_forms_dropped_total";
        family(
            out,
            name,
            "counter",
            "Forms and blocks that were let go of because nobody asked for them, or not kept for lack of room.",
        );
        for (why, value) in [("unused", &self.evicted), ("full", &self.refused)] {
            sample(out, name, &[("reason", why)], value.load(Ordering::Relaxed));
        }
    }
}
