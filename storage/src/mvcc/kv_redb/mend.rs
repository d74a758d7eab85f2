//! A file that redb gives up after a crash because of damage.
//!
//! After a crash redb verifies every page of its newest commit, and of the one before when that fails. Pages that both share are most of
//! the file, so one damaged value would keep the store from being opened, and one in a page of the newest commit alone would take that
//! commit back, although it was acknowledged. A store that was closed is opened all the same, and names what is damaged when it is read.
//!
//! So here the commit to go on with is chosen by what was acknowledged, and a newer one is preferred as long as it can be made whole,
//! since the mark of what was acknowledged may be behind. Nothing is written before the choice is made. A single wrong byte of a page is
//! found by trying, since a checksum of 128 bits does not agree by chance, and put right. For any other damaged leaf the checksums above it
//! are written anew: its records have checksums of their own, and say what is damaged. Everything else stays refused.
//!
//! Nothing is moved, so this needs no room, and memory for the pages on one path and the healed ones. The slot of the commit is written last, in one
//! sector: until then the file is what it was, but for pages that failed their checksums before, and a crash makes the next start begin again.

use std::collections::HashMap;
use std::io::ErrorKind;

use redb::StorageBackend;

use super::pages::{FileHeader, HEADER, Leaf, Link, Node, PAGE, Slot, Widths, heal};
use crate::StorageError;
use crate::mvcc::record;

/// So many pages of a commit are healed; each takes up to a million checksums.
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
/// `None` when there is nothing to be done. Fails with `Corrupt`, and has written nothing, when the damage is too wide.
pub(super) fn mend(file: &dyn StorageBackend, acknowledged: u64) -> Result<Option<Mended>, StorageError> {
    let Some(header) = read_header(file)? else {
        return Ok(None);
    };
    let mut mending = Mending {
        file,
        header,
        len: file.len().map_err(failed)?,
        tried: Tried::new(),
    };
    let commits = mending.commits()?;
    let Some(chosen) = mending.choose(&commits, acknowledged)? else {
        return Ok(None);
    };
    let commit = &commits[chosen];
    for torn in &commits[..chosen] {
        tracing::error!(
            transaction = torn.slot.transaction(),
            revision = torn.apparent,
            instead = commit.slot.transaction(),
            "the store goes on without its newest commit, which was torn or is damaged; what it wrote is lost"
        );
    }
    mending.write(commit)
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
    /// The newest revision in any page.
    apparent: u64,
}

/// A file that is being mended.
struct Mending<'f> {
    file: &'f dyn StorageBackend,
    header: FileHeader,
    len: u64,
    tried: Tried,
}

impl Mending<'_> {
    /// The commits of the file as they are, the newest first.
    fn commits(&mut self) -> Result<Vec<Commit>, StorageError> {
        let mut commits = Vec::new();
        for (which, slot) in self.header.slots().into_iter().enumerate() {
            let is_sound = slot.is_sound();
            let Some(slot) = is_sound.then_some(slot).or_else(|| slot.healed()) else {
                tracing::error!(
                    slot = which,
                    "a commit of the store cannot be found: its slot is damaged"
                );
                continue;
            };
            let Some(root) = slot.data() else {
                continue;
            };
            let mut walk = self.walk(Effort::Look);
            walk.tables(root)?;
            let (lost, bad, newest, apparent) = (walk.lost, walk.bad, walk.newest, walk.apparent);
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
                apparent,
            });
        }
        commits.sort_by_key(|commit| std::cmp::Reverse(commit.slot.transaction()));
        Ok(commits)
    }

    /// Which commit to go on with: the newest that has what was acknowledged and is whole, or is once wrong bytes are put right. A commit
    /// that a crash tore does not heal. Where there is none, the one with the least damage of those that have what was acknowledged.
    /// `None` when all are whole and too old. Writes nothing.
    fn choose(&mut self, commits: &[Commit], acknowledged: u64) -> Result<Option<usize>, StorageError> {
        for (index, commit) in commits.iter().enumerate() {
            let newest = match commit.bad {
                0 => Some(commit.newest),
                _ => self.rehearse(commit, Effort::Heal)?.ok(),
            };
            if newest.is_some_and(|newest| newest >= acknowledged) {
                return Ok(Some(index));
            }
        }
        let mut damaged: Vec<usize> = (0..commits.len()).filter(|at| commits[*at].bad > 0).collect();
        damaged.sort_by_key(|at| (commits[*at].lost, commits[*at].bad));
        let mut refusal = None;
        for index in damaged {
            match self.rehearse(&commits[index], Effort::Keep)? {
                Ok(apparent) if apparent >= acknowledged => return Ok(Some(index)),
                Ok(_) => refusal = refusal.or_else(|| Some(too_old(acknowledged))),
                Err(too_wide) => refusal = Some(too_wide),
            }
        }
        refusal.map_or(Ok(None), Err)
    }

    /// The newest revision that a commit would have after this effort, or why that is not enough.
    fn rehearse(
        &mut self,
        commit: &Commit,
        effort: Effort,
    ) -> Result<Result<u64, StorageError>, StorageError> {
        let mut walk = self.walk(effort);
        match walk.tables(commit.root) {
            Ok(_) => Ok(Ok(walk.apparent)),
            Err(error @ StorageError::Corrupt(_)) => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Makes this commit the one that redb goes on with. `None` when it is already.
    fn write(&mut self, commit: &Commit) -> Result<Option<Mended>, StorageError> {
        if commit.bad == 0 && !commit.system && !commit.is_healed {
            return Ok(None);
        }
        let mut walk = self.walk(Effort::Write);
        let sum = match commit.bad {
            0 => commit.root.sum,
            _ => walk.tables(commit.root)?,
        };
        let (healed, kept) = (walk.healed, walk.kept);
        self.file.sync_data().map_err(failed)?;
        let slot = commit.slot.repaired(sum, !commit.system);
        self.file
            .write(0, &self.header.with_slot(commit.which, slot))
            .map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        Ok(Some(Mended {
            slot: commit.is_healed,
            healed,
            kept,
            system: commit.system,
        }))
    }

    fn walk(&mut self, effort: Effort) -> Walk<'_> {
        Walk {
            file: self.file,
            header: self.header,
            len: self.len,
            path: Vec::new(),
            left: self.len / PAGE as u64,
            effort,
            tried: &mut self.tried,
            lost: 0,
            bad: 0,
            healed: 0,
            kept: 0,
            newest: 0,
            apparent: 0,
        }
    }
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

/// What a walk does about pages that fail their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Counts them.
    Look,
    /// Puts all of them right, in memory.
    Heal,
    /// Puts those right that it can, in memory, and goes on with the other leaves as they are.
    Keep,
    /// The same in the file.
    Write,
}

/// What came of trying to heal the page at this place with this checksum: the page, when it could be.
type Tried = HashMap<(u64, u128), Option<Vec<u8>>>;

/// A walk through trees.
struct Walk<'m> {
    file: &'m dyn StorageBackend,
    header: FileHeader,
    len: u64,
    path: Vec<u64>,
    /// No more pages than the file has: damaged ones may lead anywhere.
    left: u64,
    effort: Effort,
    /// Pages are tried once, by whichever walk comes first.
    tried: &'m mut Tried,
    /// Those of the bad ones that cannot be followed.
    lost: usize,
    bad: usize,
    healed: usize,
    kept: usize,
    newest: u64,
    apparent: u64,
}

impl Walk<'_> {
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
            if self.heal(place.start, link.sum, &mut page, |page| {
                widths.sum(page) == Some(link.sum)
            }) {
                self.write(place.start, &page)?;
                sum = Some(link.sum);
            } else if self.effort == Effort::Heal {
                return Err(too_wide());
            } else if sum.is_some() {
                self.bad += 1;
                self.kept += usize::from(self.effort != Effort::Look);
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
                let newest = newest(leaf, &page);
                self.apparent = self.apparent.max(newest);
                if sum == link.sum {
                    self.newest = self.newest.max(newest);
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
        match self.effort {
            Effort::Look => Ok(link.sum),
            Effort::Heal | Effort::Keep | Effort::Write => Err(too_wide()),
        }
    }

    fn heal(&mut self, at: u64, sum: u128, page: &mut Vec<u8>, is_right: impl Fn(&[u8]) -> bool) -> bool {
        if self.effort == Effort::Look || page.len() > PAGE || self.healed + self.kept >= HEALED_PAGES {
            return false;
        }
        let tried = self
            .tried
            .entry((at, sum))
            .or_insert_with(|| heal(page, is_right).then(|| page.clone()));
        let Some(healed) = tried else {
            return false;
        };
        page.clone_from(healed);
        self.healed += 1;
        true
    }

    fn write(&self, at: u64, page: &[u8]) -> Result<(), StorageError> {
        match self.effort {
            Effort::Write => self.file.write(at, page).map_err(failed),
            Effort::Look | Effort::Heal | Effort::Keep => Ok(()),
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

/// The newest revision of a change in a leaf or of the store's settings, zero when there is none.
fn newest(leaf: &Leaf, page: &[u8]) -> u64 {
    let mut settings = 0;
    for n in (0..leaf.count()).rev() {
        let Some(key) = leaf.key(page, n) else {
            continue;
        };
        if let Some(at) = record::parse_header_key(key) {
            return at.rev.max(settings);
        }
        let value = leaf.value(page, n).and_then(|value| page.get(value));
        let setting = value.and_then(|value| record::parse_revision_setting(key, value));
        settings = settings.max(setting.unwrap_or(0));
    }
    settings
}

fn too_wide() -> StorageError {
    StorageError::Corrupt("pages that lead to others fail their checksums; restore a backup".into())
}

fn too_old(acknowledged: u64) -> StorageError {
    StorageError::Corrupt(format!(
        "pages fail their checksums, and what can be read does not reach revision {acknowledged}, which was acknowledged; restore a backup"
    ))
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
