//! As much of redb's file format (its version 3) as it takes to find out which pages fail their checksums.
//!
//! The file begins with a header: `redb` and five more bytes, flags (1), padding (2), length of a page (4), pages of a region's
//! header (4) and of its data (4), then the lengths that a repair computes anew (8). At 64 and at 192 there is a commit slot each:
//! version, whether there is a root of data and one of the system's tables, those roots (from 8, 40), the transaction (at 104), and a
//! checksum of all that (at 112). A root is a page, its checksum and a length. Each page is a leaf or a branch of a tree:
//!
//! | leaf | branch |
//! |---|---|
//! | 1, padding, count of pairs (2) | 2, padding, count of keys (2), padding (4) |
//! | ends of the keys, where they differ in length (4 each) | checksums of the children, one more than keys (16 each) |
//! | ends of the values, likewise | pages of the children (8 each) |
//! | keys, values | ends of the keys, likewise, and keys |
//!
//! A checksum is XXH3 of 128 bits, of a page up to its last pair or key. A root leads to a tree of tables, in whose leaves the values are
//! definitions: kind (1), length (8), whether there is a root (1), that root (32), and the lengths of keys and values, where all are of
//! one (1 and 4 each). Numbers are little-endian.

use std::ops::Range;

pub(super) const PAGE: usize = 4096;
pub(super) const HEADER: usize = 320;
/// The bytes that are the same in all files, and where they are: regions have no header and their greatest length.
const CONSTANTS: [(usize, &[u8]); 2] = [
    (0, b"redb\x1a\x0a\xa9\x0d\x0a"),
    (12, &[0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0]),
];
const FLAGS: usize = 9;
/// The second slot is the newer one.
const SECOND: u8 = 1;
const RECOVERY_REQUIRED: u8 = 2;
/// Only the newer slot counts.
const TWO_PHASES: u8 = 4;
const SLOT: usize = 128;
const SLOTS: [usize; 2] = [64, 192];
/// The largest page that is looked at: the greatest values are cut into pieces far smaller.
const MOST_ORDER: u64 = 12;

const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// A table with one value for each key. redb itself makes no other.
const PLAIN_TABLE: u8 = 3;

pub(super) fn sum_of(bytes: &[u8]) -> u128 {
    twox_hash::XxHash3_128::oneshot(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A reference to a page, with the page's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub page: u64,
    pub sum: u128,
}

impl Link {
    fn read(bytes: &[u8], page: usize, sum: usize) -> Option<Link> {
        Some(Link {
            page: u64_at(bytes, page)?,
            sum: u128_at(bytes, sum)?,
        })
    }
}

/// Where a tree is, and how many pairs it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Root {
    pub link: Link,
    /// Unless that cannot be relied on.
    pub pairs: Option<u64>,
}

impl Root {
    fn read(bytes: &[u8], at: usize) -> Option<Root> {
        Some(Root {
            link: Link::read(bytes, at, at + 8)?,
            pairs: Some(u64_at(bytes, at + 24)?),
        })
    }
}

/// The first bytes of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileHeader([u8; HEADER]);

impl FileHeader {
    /// `None` when these are not the first bytes of such a file. One byte of those that are the same in all may be wrong, and is not in
    /// the result.
    pub(super) fn parse(mut bytes: [u8; HEADER]) -> Option<FileHeader> {
        let mut wrong = 0;
        for (from, constants) in CONSTANTS {
            for (byte, constant) in bytes[from..].iter_mut().zip(constants) {
                wrong += usize::from(std::mem::replace(byte, *constant) != *constant);
            }
        }
        (wrong <= 1).then_some(FileHeader(bytes))
    }

    /// Whether the slot that counts in a file that was closed is the newer one; redb goes by it.
    pub(super) fn counts_the_newer(&self) -> bool {
        let [first, second] = self.slots().map(|slot| slot.transaction());
        let (counts, other) = match self.0[FLAGS] & SECOND {
            0 => (first, second),
            _ => (second, first),
        };
        self.needs_repair() || counts >= other
    }

    /// Whether the file was not closed.
    pub(super) fn needs_repair(&self) -> bool {
        self.0[FLAGS] & RECOVERY_REQUIRED != 0
    }

    /// Whether a file begins with this, as far as the header goes.
    pub(super) fn begins(&self, bytes: &[u8; HEADER]) -> bool {
        self.0 == *bytes
    }

    pub(super) fn slots(&self) -> [Slot; 2] {
        SLOTS.map(|at| {
            let mut slot = [0; SLOT];
            slot.copy_from_slice(&self.0[at..at + SLOT]);
            Slot(slot)
        })
    }

    /// The slot of the newest commit.
    pub(super) fn newest(&self) -> Slot {
        let [first, second] = self.slots();
        if second.transaction() > first.transaction() {
            second
        } else {
            first
        }
    }

    /// The same with this slot.
    pub(super) fn healed(mut self, which: usize, slot: Slot) -> FileHeader {
        let at = SLOTS[which];
        self.0[at..at + SLOT].copy_from_slice(&slot.0);
        self
    }

    /// The bytes of a file of which only the given slot counts, and which is to be repaired.
    pub(super) fn with_slot(&self, which: usize, slot: Slot) -> [u8; HEADER] {
        let FileHeader(mut bytes) = self.healed(which, slot);
        bytes[FLAGS] = RECOVERY_REQUIRED | TWO_PHASES | if which == 1 { SECOND } else { 0 };
        bytes
    }

    /// Where a page is in a file of this length. `None` when it cannot be there.
    pub(super) fn place(&self, page: u64, file_len: u64) -> Option<Range<u64>> {
        let order = page >> 59;
        let header = u64::try_from(u32_at(&self.0, 16)?).ok()? * PAGE as u64;
        let data = u64::try_from(u32_at(&self.0, 20)?).ok()? * PAGE as u64;
        if order > MOST_ORDER || header.checked_add(data)? == 0 {
            return None;
        }
        let (index, region) = (page & (0xf_ffff >> order), (page >> 20) & 0xf_ffff);
        let len = (PAGE as u64) << order;
        let from = region
            .checked_mul(header + data)?
            .checked_add(PAGE as u64 + header + index * len)?;
        let end = from.checked_add(len)?;
        (end <= file_len).then_some(from..end)
    }
}

/// What one commit left: where its trees are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot([u8; SLOT]);

impl Slot {
    const SUM: usize = SLOT - 16;

    pub(super) fn is_sound(&self) -> bool {
        u128_at(&self.0, Self::SUM) == Some(sum_of(&self.0[..Self::SUM]))
    }

    /// The slot with the one byte put right that is wrong in it. `None` when that is not all.
    pub(super) fn healed(mut self) -> Option<Slot> {
        heal(&mut self.0, |bytes| {
            u128_at(bytes, Self::SUM) == Some(sum_of(&bytes[..Self::SUM]))
        })
        .then_some(self)
    }

    pub(super) fn transaction(&self) -> u64 {
        u64_at(&self.0, 104).unwrap_or(0)
    }

    pub(super) fn data(&self) -> Option<Root> {
        (self.0[1] != 0).then(|| Root::read(&self.0, 8)).flatten()
    }

    /// The root of the tables that redb keeps for itself: free pages, and pages about to be free.
    pub(super) fn system(&self) -> Option<Root> {
        (self.0[2] != 0).then(|| Root::read(&self.0, 40)).flatten()
    }

    /// The same commit with another checksum of its data, and without the system's tables, which a repair computes anew.
    pub(super) fn repaired(mut self, data: u128, keep_system: bool) -> Slot {
        self.0[16..32].copy_from_slice(&data.to_le_bytes());
        if !keep_system {
            self.0[2] = 0;
        }
        let sum = sum_of(&self.0[..Self::SUM]);
        self.0[Self::SUM..].copy_from_slice(&sum.to_le_bytes());
        self
    }
}

/// The lengths of all keys and of all values of a tree, where they have one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Widths {
    key: Option<usize>,
    value: Option<usize>,
}

/// A page that is what it says it is, as far as its own layout goes.
#[derive(Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    /// Where the checksum of each child is, and the child.
    Branch(Vec<(usize, Link)>),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    count: usize,
    widths: Widths,
}

impl Widths {
    /// A page's checksum. `None` when its layout contradicts itself.
    pub(super) fn sum(self, page: &[u8]) -> Option<u128> {
        let count = count(page)?;
        let end = match page[0] {
            LEAF => Leaf { count, widths: self }.value_end(page, count - 1)?,
            BRANCH => {
                let ends = 8 + 24 * (count + 1);
                match self.key {
                    Some(width) => ends + width * count,
                    None => u32_at(page, ends + 4 * (count - 1))?,
                }
            }
            _ => return None,
        };
        page.get(..end).map(sum_of)
    }

    /// A key of a branch: nothing below the child of this number is greater, and everything below the next one is.
    pub(super) fn branch_key(self, page: &[u8], n: usize) -> Option<&[u8]> {
        let count = count(page)?;
        let ends = 8 + 24 * (count + 1);
        let range = match self.key {
            Some(width) => ends + width * n..ends + width * (n + 1),
            None => {
                let end = |n: usize| u32_at(page, ends + 4 * n);
                let from = n.checked_sub(1).map_or(Some(ends + 4 * count), end)?;
                from..end(n)?
            }
        };
        page.get(range)
    }

    /// What a page is. `None` when its layout contradicts itself.
    pub(super) fn node(self, page: &[u8]) -> Option<Node> {
        let count = count(page)?;
        match page[0] {
            LEAF => Some(Node::Leaf(Leaf { count, widths: self })),
            BRANCH => {
                let children = count + 1;
                let links = (0..children).map(|child| {
                    let at = 8 + 16 * child;
                    Some((at, Link::read(page, 8 + 16 * children + 8 * child, at)?))
                });
                links.collect::<Option<_>>().map(Node::Branch)
            }
            _ => None,
        }
    }
}

/// A leaf of one pair, this key and an empty value, in a tree whose keys and values differ in length; and its checksum. redb has no leaf
/// without a pair.
pub(super) fn empty_leaf(key: &[u8]) -> (Vec<u8>, u128) {
    const KEYS: usize = 12;
    let end = u32::try_from(KEYS + key.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut page = [&[LEAF, 0, 1, 0], &end[..], &end[..], key].concat();
    let sum = sum_of(&page);
    page.resize(PAGE, 0);
    (page, sum)
}

/// Pairs of a leaf or keys of a branch: there is one at least.
fn count(page: &[u8]) -> Option<usize> {
    let count = usize::from(u16::from_le_bytes(*page.get(2..)?.first_chunk()?));
    (count > 0).then_some(count)
}

impl Leaf {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first key and the last.
    pub(super) fn keys(&self, page: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let last = self.key(page, self.count - 1)?;
        Some((self.key(page, 0)?.to_vec(), last.to_vec()))
    }

    fn keys_begin(&self) -> usize {
        let ends = usize::from(self.widths.key.is_none()) + usize::from(self.widths.value.is_none());
        4 + 4 * ends * self.count
    }

    fn key_end(&self, page: &[u8], n: usize) -> Option<usize> {
        match self.widths.key {
            Some(width) => Some(self.keys_begin() + width * (n + 1)),
            None => u32_at(page, 4 + 4 * n),
        }
    }

    fn value_end(&self, page: &[u8], n: usize) -> Option<usize> {
        match self.widths.value {
            Some(width) => Some(self.key_end(page, self.count - 1)? + width * (n + 1)),
            None => u32_at(
                page,
                4 + 4 * (n + if self.widths.key.is_none() { self.count } else { 0 }),
            ),
        }
    }

    /// The key at a place below the count.
    pub(super) fn key<'p>(&self, page: &'p [u8], n: usize) -> Option<&'p [u8]> {
        let from = match n {
            0 => self.keys_begin(),
            n => self.key_end(page, n - 1)?,
        };
        page.get(from..self.key_end(page, n)?)
    }

    /// Where the value at a place below the count is.
    pub(super) fn value(&self, page: &[u8], n: usize) -> Option<Range<usize>> {
        let from = match n {
            0 => self.key_end(page, self.count - 1)?,
            n => self.value_end(page, n - 1)?,
        };
        Some(from..self.value_end(page, n)?)
    }

    /// The table that a value of a tree of tables defines: where the checksum of its root is, that root, and its widths. `Some(None)`
    /// for one without content, `None` when it is not understood.
    #[expect(clippy::option_option, reason = "unreadable and empty are different")]
    pub(super) fn table(&self, page: &[u8], n: usize) -> Option<Option<(usize, Root, Widths)>> {
        let at = self.value(page, n)?.start;
        if *page.get(at)? != PLAIN_TABLE {
            return None;
        }
        let width = |flag: usize| match page.get(flag)? {
            0 => Some(None),
            _ => Some(Some(u32_at(page, flag + 1)?)),
        };
        let widths = Widths {
            key: width(at + 42)?,
            value: width(at + 47)?,
        };
        if *page.get(at + 9)? == 0 {
            return Some(None);
        }
        Some(Some((at + 18, Root::read(page, at + 10)?, widths)))
    }
}

/// Puts the one byte right that is wrong: tries each other value of each, single bits first. False when that does not help.
pub(super) fn heal(bytes: &mut [u8], is_right: impl Fn(&[u8]) -> bool) -> bool {
    let single = |change: &u8| change.is_power_of_two();
    let mut attempt = |change: u8| {
        (0..bytes.len()).any(|at| {
            bytes[at] ^= change;
            let right = is_right(bytes);
            if !right {
                bytes[at] ^= change;
            }
            right
        })
    };
    (1..=u8::MAX).filter(single).any(&mut attempt)
        || (1..=u8::MAX).filter(|change| !single(change)).any(&mut attempt)
}
