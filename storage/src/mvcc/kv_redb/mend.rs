//! A file that redb gives up after a crash because of damage.
//!
//! After a crash redb verifies every page of its newest commit, and of the one before when that fails. Pages that both share are most of
//! the file, so one damaged value would keep the store from being opened, and one in a page of the newest commit alone would take that
//! commit back, although it was acknowledged. A store that was closed is opened all the same, and names what is damaged when it is read.
//!
//! So here the commit to go on with is chosen by what was acknowledged. A single wrong byte of a page is found by trying, since a
//! checksum of 128 bits does not agree by chance, and put right. For any other damaged leaf the checksums above it are written anew: its
//! records have checksums of their own, and say what is damaged. Everything else stays refused.
//!
//! Nothing is moved, so this needs no room, and memory for the pages on one path. The slot of the commit is written last, in one
//! sector: until then the file is what it was, but for pages that failed their checksums before, and a crash makes the next start begin again.

use std::io::ErrorKind;

use redb::StorageBackend;

use super::pages::{FileHeader, HEADER, Leaf, Link, Node, PAGE, Slot, Widths, heal};
use crate::StorageError;
use crate::mvcc::record;

/// So many pages are healed; each takes up to a million checksums.
const HEALED_PAGES: usize = 16;
/// Deeper than any tree of redb's.
const MOST_DEPTH: usize = 128;

/// What has been done to a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mended {
    /// A commit slot was put right.
    pub slot: bool,
    /// Pages that are as they were written.
    pub healed: usize,
    /// Damaged pages that are read as they are.
    pub kept: usize,
    /// The free pages have to be found again.
    pub system: bool,
}

/// Whether the slots of both commits are as they were written; redb goes on with the other one without a word. A file that does not look
/// like one of redb's is for redb to refuse.
pub(super) fn slots_are_sound(file: &dyn StorageBackend) -> Result<bool, StorageError> {
    let header = read_header(file)?;
    Ok(header.is_none_or(|header| header.slots().iter().all(Slot::is_sound)))
}

/// Makes the file one that redb opens, at a commit that has everything up to the revision that was acknowledged, if that is possible.
/// `None` when there is nothing to be done. Fails with `Corrupt` when the damage is too wide.
pub(super) fn mend(file: &dyn StorageBackend, acknowledged: u64) -> Result<Option<Mended>, StorageError> {
    let Some(header) = read_header(file)? else {
        return Ok(None);
    };
    let len = file.len().map_err(failed)?;
    let mut commits = Vec::new();
    for (which, slot) in header.slots().into_iter().enumerate() {
        let is_sound = slot.is_sound();
        let Some(slot) = is_sound.then_some(slot).or_else(|| slot.healed()) else {
            continue;
        };
        let Some(root) = slot.data() else {
            continue;
        };
        let mut walk = Walk::new(file, header, len);
        walk.tables(root)?;
        let (lost, bad, newest) = (walk.lost, walk.bad, walk.newest);
        if let Some(system) = slot.system() {
            walk.tables(system)?;
        }
        commits.push(Commit {
            which,
            slot,
            root,
            is_healed: !is_sound,
            lost,
            bad,
            system: walk.bad > bad,
            newest,
        });
    }
    let mut refusal = None;
    for commit in in_order(commits, acknowledged) {
        if commit.bad == 0 && !commit.system && !commit.is_healed {
            return Ok(None);
        }
        let mut walk = Walk::new(file, header, len);
        walk.mends = true;
        let sum = match commit.bad {
            0 => Ok(commit.root.sum),
            _ => walk.tables(commit.root),
        };
        let sum = match sum {
            Ok(sum) => sum,
            Err(error @ StorageError::Corrupt(_)) => {
                refusal = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        file.sync_data().map_err(failed)?;
        let slot = commit.slot.repaired(sum, !commit.system);
        file.write(0, &header.with_slot(commit.which, slot))
            .map_err(failed)?;
        file.sync_data().map_err(failed)?;
        return Ok(Some(Mended {
            slot: commit.is_healed,
            healed: walk.healed,
            kept: walk.kept,
            system: commit.system,
        }));
    }
    refusal.map_or(Ok(None), Err)
}

/// One of the two commits of a file, and the state it is in.
#[derive(Debug)]
struct Commit {
    which: usize,
    slot: Slot,
    root: Link,
    is_healed: bool,
    /// Pages of the data that cannot be followed, as those that a crash tore.
    lost: usize,
    /// Pages of the data that fail their checksums.
    bad: usize,
    /// There are such pages of redb's own tables.
    system: bool,
    /// The newest revision in a page that does not.
    newest: u64,
}

/// The newest commit that is whole and has what was acknowledged. Where there is none, those that are damaged, by how much of them is. One
/// that is whole and too old is none of them.
fn in_order(mut commits: Vec<Commit>, acknowledged: u64) -> Vec<Commit> {
    commits.sort_by_key(|commit| std::cmp::Reverse(commit.slot.transaction()));
    let whole = commits
        .iter()
        .position(|commit| commit.bad == 0 && commit.newest >= acknowledged);
    if let Some(at) = whole {
        return vec![commits.swap_remove(at)];
    }
    commits.retain(|commit| commit.bad > 0);
    commits.sort_by_key(|commit| (commit.lost, commit.bad));
    commits
}

fn read_header(file: &dyn StorageBackend) -> Result<Option<FileHeader>, StorageError> {
    if file.len().map_err(failed)? < HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    file.read(0, &mut bytes).map_err(failed)?;
    Ok(FileHeader::parse(bytes))
}

/// What a tree consists of.
#[derive(Debug, Clone, Copy)]
enum Content {
    Tables,
    Pairs(Widths),
}

/// A walk through trees.
struct Walk<'f> {
    file: &'f dyn StorageBackend,
    header: FileHeader,
    len: u64,
    path: Vec<u64>,
    /// No more pages than the file has: damaged ones may lead anywhere.
    left: u64,
    mends: bool,
    /// Those of the bad ones that cannot be followed.
    lost: usize,
    bad: usize,
    healed: usize,
    kept: usize,
    newest: u64,
}

impl<'f> Walk<'f> {
    fn new(file: &'f dyn StorageBackend, header: FileHeader, len: u64) -> Walk<'f> {
        Walk {
            file,
            header,
            len,
            path: Vec::new(),
            left: len / PAGE as u64,
            mends: false,
            lost: 0,
            bad: 0,
            healed: 0,
            kept: 0,
            newest: 0,
        }
    }

    /// Through a tree of tables and the tables. Gives the checksum that the tree has now.
    fn tables(&mut self, root: Link) -> Result<u128, StorageError> {
        self.page(root, Content::Tables)
    }

    fn page(&mut self, link: Link, content: Content) -> Result<u128, StorageError> {
        let place = self.header.place(link.page, self.len);
        let place = place
            .filter(|_| self.path.len() < MOST_DEPTH && !self.path.contains(&link.page) && self.left > 0);
        let Some(place) = place else {
            return self.lose(link);
        };
        self.left -= 1;
        let mut page = vec![0; usize::try_from(place.end - place.start).unwrap_or(PAGE)];
        match self.file.read(place.start, &mut page) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return self.lose(link),
            Err(error) => return Err(failed(error)),
        }
        let widths = match content {
            Content::Tables => Widths::default(),
            Content::Pairs(widths) => widths,
        };
        let mut sum = widths.sum(&page);
        if sum != Some(link.sum) {
            if self.mends && self.heal(&mut page, |page| widths.sum(page) == Some(link.sum)) {
                self.write(place.start, &page)?;
                sum = Some(link.sum);
            } else if sum.is_some() {
                self.bad += 1;
                self.kept += usize::from(self.mends);
            }
        }
        let (Some(node), Some(sum)) = (widths.node(&page), sum) else {
            return self.lose(link);
        };
        let children = match (&node, content) {
            (Node::Branch(links), _) => links.iter().map(|(at, link)| (*at, *link, content)).collect(),
            (Node::Leaf(leaf), Content::Tables) => match tables_of(leaf, &page) {
                Some(tables) => tables,
                None => return self.lose(link),
            },
            (Node::Leaf(leaf), Content::Pairs(_)) => {
                if sum == link.sum {
                    self.newest = self.newest.max(newest(leaf, &page));
                }
                return Ok(sum);
            }
        };
        let mut changed = false;
        self.path.push(link.page);
        for (at, child, content) in children {
            let now = self.page(child, content)?;
            if now != child.sum {
                page[at..at + 16].copy_from_slice(&now.to_le_bytes());
                changed = true;
            }
        }
        self.path.pop();
        if !changed {
            return Ok(sum);
        }
        self.write(place.start, &page)?;
        widths.sum(&page).ok_or_else(too_wide)
    }

    /// A page that cannot be read at all, nor what it leads to.
    fn lose(&mut self, link: Link) -> Result<u128, StorageError> {
        self.lost += 1;
        self.bad += 1;
        match self.mends {
            true => Err(too_wide()),
            false => Ok(link.sum),
        }
    }

    fn heal(&mut self, page: &mut [u8], is_right: impl Fn(&[u8]) -> bool) -> bool {
        if page.len() > PAGE || self.healed + self.kept >= HEALED_PAGES {
            return false;
        }
        let healed = heal(page, is_right);
        self.healed += usize::from(healed);
        healed
    }

    fn write(&self, at: u64, page: &[u8]) -> Result<(), StorageError> {
        match self.mends {
            true => self.file.write(at, page).map_err(failed),
            false => Ok(()),
        }
    }
}

fn tables_of(leaf: &Leaf, page: &[u8]) -> Option<Vec<(usize, Link, Content)>> {
    let tables = (0..leaf.count()).map(|n| leaf.table(page, n));
    let tables = tables.collect::<Option<Vec<_>>>()?;
    let with_content = tables.into_iter().flatten();
    Some(
        with_content
            .map(|(at, root, widths)| (at, root, Content::Pairs(widths)))
            .collect(),
    )
}

/// The newest revision of a change in a leaf, zero when there is none.
fn newest(leaf: &Leaf, page: &[u8]) -> u64 {
    let keys = (0..leaf.count()).rev().filter_map(|n| leaf.key(page, n));
    keys.filter_map(record::parse_header_key)
        .map(|at| at.rev)
        .next()
        .unwrap_or(0)
}

fn too_wide() -> StorageError {
    StorageError::Corrupt("pages that lead to others fail their checksums; restore a backup".into())
}

fn failed(error: std::io::Error) -> StorageError {
    if error.kind() == ErrorKind::StorageFull {
        return StorageError::NoSpace(format!("mending: {error}"));
    }
    StorageError::Engine {
        message: "mending the file of redb".into(),
        source: Some(Box::new(error)),
    }
}
