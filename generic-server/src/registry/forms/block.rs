//! Compressed blocks of neighbouring objects of a list.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;

use super::{FormCache, FormId};

/// What a block costs besides its bytes and revisions.
const BLOCK_COST: usize = 256;

/// Which objects a block is of, in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockKey {
    /// Of the form and the names of the objects.
    pub(super) hash: u64,
    /// The revision of each.
    revisions: Box<[u64]>,
}

impl BlockKey {
    /// The block of these objects, given by key and revision; `follows` says that the first of them only comes before it.
    pub(crate) fn new<'e>(
        cache: &FormCache,
        form: FormId,
        follows: bool,
        objects: impl Iterator<Item = (&'e str, u64)>,
    ) -> Self {
        let mut hasher = cache.hasher();
        (form, follows).hash(&mut hasher);
        let mut revisions = Vec::with_capacity(objects.size_hint().0);
        for (key, revision) in objects {
            key.hash(&mut hasher);
            revisions.push(revision);
        }
        BlockKey {
            hash: hasher.finish(),
            revisions: revisions.into(),
        }
    }
}

/// Some items of a list, compressed so that they can be joined with others: raw deflate that ends on a byte, and what the checksum
/// of the whole needs.
#[derive(Debug)]
pub(crate) struct Block {
    key: BlockKey,
    /// The compressed bytes.
    pub(crate) deflated: Bytes,
    /// The CRC-32 of the bytes before compression.
    pub(crate) crc: u32,
    /// How many they are.
    pub(crate) len: u64,
    /// When they may be sent, in seconds of the epoch, where ages are among them.
    pub(crate) valid: Option<Range<i64>>,
    used: AtomicU32,
}

impl Block {
    pub(crate) fn new(
        key: BlockKey,
        deflated: Bytes,
        crc: u32,
        len: u64,
        valid: Option<Range<i64>>,
    ) -> Arc<Self> {
        Arc::new(Block {
            key,
            deflated,
            crc,
            len,
            valid,
            used: AtomicU32::new(0),
        })
    }

    pub(super) fn key(&self) -> &BlockKey {
        &self.key
    }

    pub(crate) fn is(&self, key: &BlockKey) -> bool {
        self.key == *key
    }

    pub(super) fn weight(&self) -> usize {
        self.deflated.len() + size_of_val(&*self.key.revisions) + BLOCK_COST
    }

    pub(super) fn use_at(&self, now: u32) {
        self.used.store(now, Ordering::Relaxed);
    }

    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }
}
