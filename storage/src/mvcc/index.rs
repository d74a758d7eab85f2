//! The index in memory: every key with the places of its versions in the log, for the whole retained history.
//!
//! It holds no values. Guards, existence, counts and "which version at revision R" are answered here without the disk.
//! It is rebuilt from the log's headers on open. The map is persistent: a reader's snapshot is a pointer copy.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use imbl::{OrdMap, Vector};
use parking_lot::Mutex;

use super::record::{Location, Wanted};
use crate::{Revision, StorageError};

/// One version of a key: a value in the log, or a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub rev: u64,
    /// Revision that created this incarnation; zero marks a deletion.
    pub create: u64,
    pub seq: u32,
    pub len: u32,
    pub crc: u32,
}

impl Version {
    pub(crate) fn is_delete(&self) -> bool {
        self.create == 0
    }

    pub(crate) fn at(&self) -> Location {
        Location {
            rev: self.rev,
            seq: self.seq,
        }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted {
            at: self.at(),
            len: self.len,
            crc: self.crc,
        }
    }

    pub(crate) fn live(self) -> Option<Version> {
        (!self.is_delete()).then_some(self)
    }
}

/// The retained versions of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    newest: Version,
    /// Most keys have none. Shared by copies of the index until it changes.
    older: Option<Arc<OlderVersions>>,
}

/// Older versions up to this many lie side by side.
const FEW: usize = 16;

/// Versions of a key that are not its newest, oldest first; never none.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OlderVersions {
    /// In as much memory as they need. A change may have to copy them.
    Few(Vec<Version>),
    /// Of a hot key: in nodes of 2 KiB, of which a change copies a few.
    Many(Vector<Version>),
}

impl OlderVersions {
    fn push(&mut self, version: Version) {
        match self {
            OlderVersions::Few(few) if few.len() < FEW => few.push(version),
            OlderVersions::Few(few) => {
                let mut many: Vector<Version> = few.iter().copied().collect();
                many.push_back(version);
                *self = OlderVersions::Many(many);
            }
            OlderVersions::Many(many) => many.push_back(version),
        }
    }

    fn oldest(&self) -> Option<Version> {
        match self {
            OlderVersions::Few(few) => few.first().copied(),
            OlderVersions::Many(many) => many.front().copied(),
        }
    }

    /// The newest of them at `rev`.
    fn at(&self, rev: u64) -> Option<Version> {
        let count = |found: Result<usize, usize>| found.map_or_else(|count| count, |index| index + 1);
        match self {
            OlderVersions::Few(few) => {
                let count = count(few.binary_search_by(|version| version.rev.cmp(&rev)));
                few.get(count.checked_sub(1)?).copied()
            }
            OlderVersions::Many(many) => {
                let count = count(many.binary_search_by(|version| version.rev.cmp(&rev)));
                many.get(count.checked_sub(1)?).copied()
            }
        }
    }

    /// Forgets versions up to `rev`. False when nothing is left.
    fn forget(&mut self, rev: u64) -> bool {
        match self {
            OlderVersions::Few(few) => {
                few.drain(..few.partition_point(|version| version.rev <= rev));
                if few.len() < few.capacity() / 4 {
                    few.shrink_to_fit();
                }
                !few.is_empty()
            }
            OlderVersions::Many(many) => {
                while many.front().is_some_and(|version| version.rev <= rev) {
                    many.pop_front();
                }
                // Not at once below the limit: keys that stay about there would be copied all the time.
                if many.len() <= FEW / 2 {
                    let few: Vec<Version> = many.iter().copied().collect();
                    *self = OlderVersions::Few(few);
                }
                self.oldest().is_some()
            }
        }
    }
}

impl History {
    fn new(version: Version) -> History {
        History {
            newest: version,
            older: None,
        }
    }

    fn push(&mut self, version: Version) {
        match &mut self.older {
            Some(older) => Arc::make_mut(older).push(self.newest),
            None => self.older = Some(Arc::new(OlderVersions::Few(vec![self.newest]))),
        }
        self.newest = version;
    }

    /// The version that was newest at `rev`, deletions included.
    fn at(&self, rev: u64) -> Option<Version> {
        if self.newest.rev <= rev {
            return Some(self.newest);
        }
        self.older.as_ref()?.at(rev)
    }

    /// Forgets versions up to `rev`. False when nothing is left.
    fn forget(&mut self, rev: u64) -> bool {
        let oldest = self.older.as_ref().and_then(|older| older.oldest());
        if let Some(older) = &mut self.older
            && oldest.is_some_and(|oldest| oldest.rev <= rev)
            && !Arc::make_mut(older).forget(rev)
        {
            self.older = None;
        }
        self.newest.rev > rev || self.older.is_some()
    }
}

/// The state that readers see. The writer alone changes it, after a batch is durable.
#[derive(Clone, Default)]
pub(crate) struct Index {
    keys: OrdMap<Arc<str>, History>,
    pub revision: u64,
    pub oldest: u64,
    pub live: u64,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys stay out of logs.
        let Index {
            revision,
            oldest,
            live,
            ..
        } = self;
        write!(
            f,
            "Index {{ revision: {revision}, oldest: {oldest}, live: {live} }}"
        )
    }
}

impl Index {
    /// An empty state whose history begins at `oldest`.
    pub(crate) fn starting_at(oldest: u64) -> Index {
        Index {
            oldest,
            ..Index::default()
        }
    }

    /// The newest version of a key, if it is live.
    pub(crate) fn get(&self, key: &str) -> Option<Version> {
        self.keys.get(key).and_then(|history| history.newest.live())
    }

    /// The version of a key at a revision, if it was live then.
    pub(crate) fn get_at(&self, key: &str, rev: u64) -> Option<Version> {
        self.keys
            .get(key)
            .and_then(|history| history.at(rev))
            .and_then(Version::live)
    }

    /// The key as the index holds it, to share its allocation.
    pub(crate) fn shared_key(&self, key: &str) -> Arc<str> {
        self.keys
            .get_key_value(key)
            .map_or_else(|| Arc::from(key), |(key, _)| key.clone())
    }

    /// Records a change. Gives the version it replaces.
    pub(crate) fn apply(&mut self, key: &Arc<str>, version: Version) -> Option<Version> {
        let before = match self.keys.get_mut(&**key) {
            Some(history) => {
                let before = history.newest;
                history.push(version);
                Some(before)
            }
            None => {
                self.keys.insert(key.clone(), History::new(version));
                None
            }
        };
        let was_live = before.is_some_and(|version| !version.is_delete());
        match (was_live, version.is_delete()) {
            (false, false) => self.live += 1,
            (true, true) => self.live -= 1,
            _ => {}
        }
        before
    }

    /// Forgets a key's versions up to `rev`.
    pub(crate) fn forget(&mut self, key: &str, rev: u64) {
        if self.keys.get_mut(key).is_some_and(|history| !history.forget(rev)) {
            self.keys.remove(key);
        }
    }

    /// The revision a read at `at` means, or why it cannot be read.
    pub(crate) fn resolve(&self, at: Option<Revision>) -> Result<u64, StorageError> {
        let Some(Revision(asked)) = at else {
            return Ok(self.revision);
        };
        if asked > self.revision {
            return Err(StorageError::FutureRevision {
                asked: Revision(asked),
                newest: Revision(self.revision),
            });
        }
        if asked < self.oldest {
            return Err(StorageError::Compacted {
                asked: Revision(asked),
                oldest: Revision(self.oldest),
            });
        }
        Ok(asked)
    }

    /// The keys whose versions are not those of `other`, in order. What the two share is skipped.
    pub(crate) fn changed(&self, other: &Index) -> Vec<Arc<str>> {
        let changes = self.keys.diff(&other.keys).map(|item| match item {
            DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key,
            DiffItem::Update { new: (key, _), .. } => key,
        });
        changes.cloned().collect()
    }

    /// Live keys at `rev` under `prefix`, from `start` on, in order.
    pub(crate) fn range<'a>(
        &'a self,
        prefix: &'a str,
        start: Option<&'a str>,
        rev: u64,
    ) -> impl Iterator<Item = (&'a Arc<str>, Version)> {
        let from = start.filter(|start| *start > prefix).unwrap_or(prefix);
        self.keys
            .range::<_, str>((Bound::Included(from), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(key, history)| Some((key, history.at(rev)?.live()?)))
    }
}

/// Revisions that readers are at: records that were current then stay in the log until they are done.
#[derive(Debug, Default)]
pub(crate) struct Pins(Mutex<BTreeMap<u64, usize>>);

impl Pins {
    /// To be called under the same lock under which the revision was found readable.
    pub(crate) fn pin(self: &Arc<Self>, rev: u64) -> Pin {
        *self.0.lock().entry(rev).or_insert(0) += 1;
        Pin {
            pins: self.clone(),
            rev,
        }
    }

    pub(crate) fn oldest(&self) -> Option<u64> {
        self.0.lock().keys().next().copied()
    }
}

/// Prevents the removal of records that were current at a revision.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    pub rev: u64,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.0.lock();
        if let Some(count) = pins.get_mut(&self.rev) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.rev);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(rev: u64, create: u64) -> Version {
        Version {
            rev,
            create,
            seq: 0,
            len: 0,
            crc: 0,
        }
    }

    #[test]
    fn a_key_is_found_at_each_of_its_revisions_until_forgotten() {
        let mut index = Index::default();
        let key: Arc<str> = "a".into();
        for version in [put(2, 2), put(4, 2), put(6, 0), put(8, 8)] {
            index.apply(&key, version);
            index.revision = version.rev;
        }
        let seen = |index: &Index| {
            (1..=9)
                .map(|rev| index.get_at("a", rev).map_or(0, |v| v.rev))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(&index), [0, 2, 2, 4, 4, 0, 0, 8, 8]);
        assert_eq!(index.live, 1);
        index.forget("a", 2);
        assert_eq!(seen(&index), [0, 0, 0, 4, 4, 0, 0, 8, 8]);
        index.apply(&key, put(10, 0));
        assert_eq!(index.live, 0);
        index.forget("a", 10);
        assert!(index.keys.is_empty());
    }

    #[test]
    fn a_key_may_have_any_number_of_versions() {
        let (mut index, key) = (Index::default(), Arc::from("a"));
        let check = |index: &Index, range: std::ops::RangeInclusive<u64>| {
            for rev in 1..=range.end() + 1 {
                let found = index.get_at("a", rev).map(|version| version.rev);
                // Every second revision is the key's.
                let expected = (rev & !1).min(*range.end());
                assert_eq!(found, range.contains(&expected).then_some(expected), "at {rev}");
            }
        };
        let most = 10 * FEW as u64;
        for n in 1..=most {
            let before = index.clone();
            index.apply(&key, put(2 * n, 2));
            check(&index, 2..=2 * n);
            if n > 1 {
                check(&before, 2..=2 * (n - 1));
            }
        }
        for n in 1..most {
            let before = index.clone();
            index.forget("a", 2 * n);
            check(&index, 2 * (n + 1)..=2 * most);
            check(&before, 2 * n..=2 * most);
        }
        assert!(index.keys.get("a").is_some_and(|history| history.older.is_none()));
        index.forget("a", 2 * most);
        assert!(index.keys.is_empty());
    }

    #[test]
    fn a_pin_counts() {
        let pins = Arc::new(Pins::default());
        let (a, b, c) = (pins.pin(5), pins.pin(3), pins.pin(3));
        drop(b);
        assert_eq!(pins.oldest(), Some(3));
        drop(c);
        assert_eq!(pins.oldest(), Some(5));
        drop(a);
        assert_eq!(pins.oldest(), None);
    }
}
