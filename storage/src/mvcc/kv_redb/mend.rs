//! A file that redb gives up after a crash because of damage.
//!
//! After a crash redb verifies every page of its newest commit, and of the one before when that fails. Pages that both share are most of
//! the file, so one damaged value would keep the store from being opened, and one in a page of the newest commit alone would take that
//! commit back, although it was acknowledged. redb opens a file that was closed without a look at any page, so they are looked at before: all of
//! a small file, those that lead to others of a large one, which names values that are damaged when they are read.
//!
//! So here the commit to go on with is chosen by what was acknowledged, and a newer one is preferred as long as it can be made whole,
//! since the mark of what was acknowledged may be behind. Nothing is written before the choice is made. A single wrong byte of a page is
//! found by trying, since a checksum of 128 bits does not agree by chance, and put right. For any other damaged leaf the checksums above it
//! are written anew: its records have checksums of their own, and say what is damaged. A leaf that cannot be read as one, as when a sector
//! is gone, is replaced by an empty one if it held values alone: headers elsewhere name each value that is missing. Everything else stays
//! refused.
//!
//! Nothing is moved, so this needs no room, and memory for the pages on one path and the healed ones. The slot of the commit is written last, in one
//! sector: until then the file is what it was, but for pages that failed their checksums before, and a crash makes the next start begin again.

use std::fmt;

use redb::StorageBackend;

use super::pages::{FileHeader, HEADER, Root, Slot};
use super::walk::{Effort, Tried, Walk, failed};
use crate::StorageError;

/// What has been done to a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mended {
    /// A commit slot or the file's header was put right.
    pub head: bool,
    /// Pages that are as they were written.
    pub healed: usize,
    /// Damaged pages that are read as they are.
    pub kept: usize,
    /// Leaves of values that could not be read, and are empty now.
    pub emptied: usize,
    /// The free pages have to be found again.
    pub system: bool,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = [
            (self.healed, "can be put right"),
            (self.kept, "are read as they are"),
            (self.emptied, "are lost"),
        ];
        f.write_str("parts of the file fail their checksums")?;
        if self.head {
            f.write_str(", its head among them")?;
        }
        for (count, what) in pages.iter().filter(|(count, _)| *count > 0) {
            write!(f, ", {count} pages {what}")?;
        }
        Ok(())
    }
}

/// Whether the header and the slots of both commits are as they were written; redb goes on with the other one without a word. A file that does not look
/// like one of redb's is for redb to refuse.
pub(super) fn head_is_sound(file: &dyn StorageBackend) -> Result<bool, StorageError> {
    let head = read_header(file)?;
    Ok(head.is_none_or(|Head { header, is_healed }| {
        !is_healed && header.counts_the_newer() && header.slots().iter().all(Slot::is_sound)
    }))
}

/// Whether the pages of the newest commit are as they were written: all of a file of up to so many bytes, and of a larger one those that redb
/// finds its way by, and those of the log's headers. redb takes all of them as they are in a file that was closed, and would write where a
/// damaged one leads.
pub(super) fn is_sound(file: &dyn StorageBackend, whole_up_to: u64) -> Result<bool, StorageError> {
    let Some(Head { header, .. }) = read_header(file)? else {
        return Ok(true);
    };
    let slot = header.newest();
    let len = file.len().map_err(failed)?;
    let mut tried = Tried::new();
    let mut walk = Walk::new(file, header, len, Effort::Look, &mut tried);
    match slot.data() {
        Some(data) if len <= whole_up_to => drop(walk.tables(data)?),
        Some(data) => walk.tables_without_values(data)?,
        None => {}
    }
    if let Some(system) = slot.system() {
        walk.tables(system)?;
    }
    Ok(walk.bad == 0)
}

/// Makes the file one that redb opens, at a commit that has everything up to the revision that was acknowledged, if that is possible.
/// `None` when there is nothing to be done. Fails with `Corrupt`, and has written nothing, when the damage is too wide.
pub(super) fn mend(file: &dyn StorageBackend, acknowledged: u64) -> Result<Option<Mended>, StorageError> {
    let Some(Head { header, is_healed }) = read_header(file)? else {
        return Ok(None);
    };
    let mut mending = Mending {
        file,
        header,
        head_is_wrong: is_healed,
        was_closed: !header.needs_repair(),
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
    root: Root,
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
    head_is_wrong: bool,
    /// Lengths may be damaged that a repair computes anew.
    was_closed: bool,
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
            if !is_sound {
                // redb refuses a file for the first byte of the slot that does not count, too.
                self.header = self.header.healed(which, slot);
                self.head_is_wrong = true;
            }
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
        if commit.bad == 0 && !commit.system && !self.head_is_wrong && !self.was_closed {
            return Ok(None);
        }
        let mut walk = self.walk(Effort::Write);
        let sum = match commit.bad {
            0 => commit.root.link.sum,
            _ => walk.tables(commit.root)?,
        };
        let (healed, kept, emptied) = (walk.healed, walk.kept, walk.emptied);
        self.file.sync_data().map_err(failed)?;
        let slot = commit.slot.repaired(sum, !commit.system);
        self.file
            .write(0, &self.header.with_slot(commit.which, slot))
            .map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        Ok(Some(Mended {
            head: self.head_is_wrong,
            healed,
            kept,
            emptied,
            system: commit.system,
        }))
    }

    fn walk(&mut self, effort: Effort) -> Walk<'_> {
        Walk::new(self.file, self.header, self.len, effort, &mut self.tried)
    }
}

/// The first bytes of a file as they have to be.
struct Head {
    header: FileHeader,
    is_healed: bool,
}

fn read_header(file: &dyn StorageBackend) -> Result<Option<Head>, StorageError> {
    if file.len().map_err(failed)? < HEADER as u64 {
        return Ok(None);
    }
    let mut bytes = [0; HEADER];
    file.read(0, &mut bytes).map_err(failed)?;
    let Some(header) = FileHeader::parse(bytes) else {
        return Ok(None);
    };
    let is_healed = !header.begins(&bytes);
    Ok(Some(Head { header, is_healed }))
}

fn too_old(acknowledged: u64) -> StorageError {
    StorageError::Corrupt(format!(
        "pages fail their checksums, and what can be read does not reach revision {acknowledged}, which was acknowledged; restore a backup"
    ))
}
