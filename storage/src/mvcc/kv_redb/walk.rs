//! A walk through the trees of one commit: which pages fail their checksums, and what can be done about it.

use std::collections::HashMap;
use std::io::ErrorKind;

use redb::StorageBackend;

use super::pages::{FileHeader, Leaf, Link, Node, PAGE, Root, Widths, empty_leaf, heal};
use crate::StorageError;
use crate::mvcc::record;

/// So many pages of a commit are healed; each takes up to a million checksums.
const HEALED_PAGES: usize = 16;
/// Deeper than any tree of redb's.
pub(super) const MOST_DEPTH: usize = 128;
const LEAF_HEIGHT: usize = 1;

/// The content of a tree.
#[derive(Debug, Clone, Copy)]
enum Content {
    Tables,
    Pairs(Widths),
}

impl Content {
    fn widths(self) -> Widths {
        match self {
            Content::Tables => Widths::default(),
            Content::Pairs(widths) => widths,
        }
    }
}

/// What a walk does about pages that fail their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Counts them.
    Look,
    /// Puts all of them right, in memory.
    Heal,
    /// Puts those right that it can, in memory, goes on with other leaves as they are, and empties leaves of values that are none. A branch that
    /// cannot be put right has to lead where its children are: mending that was interrupted leaves such.
    Keep,
    /// The same in the file.
    Write,
}

/// What came of trying to heal the page at this place with this checksum: the page, when it could be.
pub(super) type Tried = HashMap<(u64, u128), Option<Vec<u8>>>;

/// A walk, and what it has found so far.
pub(super) struct Walk<'m> {
    file: &'m dyn StorageBackend,
    header: FileHeader,
    len: u64,
    path: Vec<u64>,
    /// No more pages than the file has: damaged ones may lead anywhere.
    left: u64,
    effort: Effort,
    /// Leaves that hold nothing but values are left out, apart from the first below each branch.
    skips_values: bool,
    /// Pages are tried once, by whichever walk comes first.
    tried: &'m mut Tried,
    /// Those of the bad ones that cannot be followed.
    pub lost: usize,
    pub bad: usize,
    pub healed: usize,
    pub kept: usize,
    pub emptied: usize,
    /// Those of the tree that it is in, so far.
    pairs: u64,
    /// The newest revision in a page that is not bad.
    pub newest: u64,
    /// The newest revision in any page.
    pub apparent: u64,
}

/// Where the keys of a page lie: above the first of these, and not above the second. Nothing bounds the keys of a root.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds<'k> {
    above: &'k [u8],
    up_to: Option<&'k [u8]>,
}

impl Bounds<'_> {
    fn hold(self, key: &[u8]) -> bool {
        (self.above.is_empty() || key > self.above) && self.up_to.is_none_or(|up_to| key <= up_to)
    }
}

/// The first key below a page and the last.
type Keys = (Vec<u8>, Vec<u8>);

/// A page that was walked through, and all below it.
#[derive(Debug)]
struct Walked {
    /// The checksum that it has now.
    sum: u128,
    /// A leaf has one, the branch over it two. `None` of a page that cannot be followed.
    height: Option<usize>,
    /// Where they can be relied on.
    keys: Option<Keys>,
}

/// A page in its place.
struct Page {
    at: u64,
    bytes: Vec<u8>,
    node: Node,
    sum: u128,
    /// It is what its parent says it is, or was made so.
    is_sound: bool,
    /// A page below it has another checksum than it says.
    is_outdated: bool,
}

impl Page {
    /// Writes the checksum of a page below where it stands.
    fn set_sum(&mut self, at: usize, sum: u128) {
        let sum = sum.to_le_bytes();
        if let Some(place) = self.bytes.get_mut(at..at + sum.len())
            && place != sum
        {
            place.copy_from_slice(&sum);
            self.is_outdated = true;
        }
    }
}

impl<'m> Walk<'m> {
    pub(super) fn new(
        file: &'m dyn StorageBackend,
        header: FileHeader,
        len: u64,
        effort: Effort,
        tried: &'m mut Tried,
    ) -> Walk<'m> {
        Walk {
            file,
            header,
            len,
            path: Vec::new(),
            left: len / PAGE as u64,
            effort,
            skips_values: false,
            tried,
            lost: 0,
            bad: 0,
            healed: 0,
            kept: 0,
            emptied: 0,
            pairs: 0,
            newest: 0,
            apparent: 0,
        }
    }

    /// Through a tree of tables and the tables. Gives the checksum that the tree has now.
    pub(super) fn tables(&mut self, root: Root) -> Result<u128, StorageError> {
        self.tree(root, Content::Tables)
    }

    /// The same for what a start relies on: every page but leaves of values, whose records say themselves whether they are damaged.
    pub(super) fn tables_without_values(&mut self, root: Root) -> Result<(), StorageError> {
        self.skips_values = true;
        self.tables(root)?;
        self.skips_values = false;
        Ok(())
    }

    fn tree(&mut self, root: Root, content: Content) -> Result<u128, StorageError> {
        let (around, bad, emptied) = (std::mem::take(&mut self.pairs), self.bad, self.emptied);
        let walked = self.page(root.link, content, Bounds::default())?;
        let pairs = std::mem::replace(&mut self.pairs, around);
        // A page of another time or place has other pairs than were there.
        let is_other =
            self.bad > bad && self.emptied == emptied && root.pairs.is_some_and(|known| known != pairs);
        if self.effort != Effort::Look && (walked.height.is_none() || is_other) {
            return Err(too_wide());
        }
        Ok(walked.sum)
    }

    /// A page whose keys lie within these bounds, and all below it.
    fn page(&mut self, link: Link, content: Content, bounds: Bounds<'_>) -> Result<Walked, StorageError> {
        let widths = content.widths();
        let Some(mut page) = self.read(link, widths, bounds)? else {
            return self.lose(link);
        };
        let tables = match (&page.node, content) {
            (Node::Leaf(leaf), Content::Tables) => match tables_of(leaf, &page.bytes) {
                Some(tables) => tables,
                None => return self.lose(link),
            },
            _ => Vec::new(),
        };
        if let Node::Leaf(leaf) = &page.node {
            self.pairs += leaf.count() as u64;
        }
        if let (Node::Leaf(leaf), Content::Pairs(_)) = (&page.node, content) {
            let newest = newest(leaf, &page.bytes);
            self.apparent = self.apparent.max(newest);
            if page.is_sound {
                self.newest = self.newest.max(newest);
            }
        }
        self.path.push(link.page);
        let (height, keys) = match &page.node {
            Node::Branch(links) => {
                let links = links.clone();
                let (below, keys) = self.children(&mut page, &links, content, bounds)?;
                (below + 1, keys)
            }
            Node::Leaf(leaf) if page.is_sound => (LEAF_HEIGHT, leaf.keys(&page.bytes)),
            Node::Leaf(_) => (LEAF_HEIGHT, None),
        };
        for (at, mut root, content) in tables {
            if !page.is_sound {
                root.pairs = None;
            }
            let sum = self.tree(root, content)?;
            page.set_sum(at, sum);
        }
        self.path.pop();
        if page.is_outdated {
            self.write(page.at, &page.bytes)?;
            page.sum = widths.sum(&page.bytes).ok_or_else(too_wide)?;
        }
        Ok(Walked {
            sum: page.sum,
            height: Some(height),
            keys,
        })
    }

    /// The pages below a branch, which gets their new checksums. Gives their height, and the keys below.
    fn children(
        &mut self,
        page: &mut Page,
        links: &[(usize, Link)],
        content: Content,
        bounds: Bounds<'_>,
    ) -> Result<(usize, Option<Keys>), StorageError> {
        let keys = (0..links.len() - 1).map(|n| content.widths().branch_key(&page.bytes, n));
        let keys: Vec<Vec<u8>> = std::iter::once(bounds.above)
            .chain(keys.map(Option::unwrap_or_default))
            .map(<[u8]>::to_vec)
            .collect();
        let mut height = None;
        let mut lost = Vec::new();
        let mut below = Vec::new();
        for (n, ((at, link), above)) in links.iter().zip(&keys).enumerate() {
            let is_leaf = height == Some(LEAF_HEIGHT);
            if self.skips_values && is_leaf && record::is_after_headers(above) {
                break;
            }
            let up_to = keys.get(n + 1).map_or(bounds.up_to, |key| Some(key));
            let walked = self.page(*link, content, Bounds { above, up_to })?;
            match walked.height {
                Some(_) => height = walked.height,
                None => lost.push((*at, *link, above)),
            }
            page.set_sum(*at, walked.sum);
            below.push(walked.keys);
        }
        if !page.is_sound && self.effort != Effort::Look && !leads_there(&keys[1..], &below) {
            // Whatever is written later would go where its keys lead.
            return Err(too_wide());
        }
        if self.effort != Effort::Look {
            for (at, link, above) in lost {
                // A branch that is not sound may lead to pages of others.
                let had_values =
                    height == Some(LEAF_HEIGHT) && page.is_sound && record::is_after_headers(above);
                if !had_values {
                    return Err(too_wide());
                }
                page.set_sum(at, self.empty(link, above)?);
            }
        }
        let first = below.first_mut().and_then(Option::take);
        let keys = match below.last_mut().and_then(Option::take) {
            None if links.len() == 1 => first,
            last => first.zip(last).map(|((first, _), (_, last))| (first, last)),
        };
        Ok((height.unwrap_or(LEAF_HEIGHT), keys))
    }

    /// Puts an empty leaf in the place of one that cannot be read. Gives its checksum.
    fn empty(&mut self, link: Link, above: &[u8]) -> Result<u128, StorageError> {
        let place = self.header.place(link.page, self.len).ok_or_else(too_wide)?;
        // The least key that is greater than all in the leaf before.
        let (leaf, sum) = empty_leaf(&[above, b"\0"].concat());
        self.write(place.start, &leaf)?;
        self.emptied += 1;
        Ok(sum)
    }

    /// A page, put right where that can be done. `None` when it cannot be followed.
    fn read(&mut self, link: Link, widths: Widths, bounds: Bounds<'_>) -> Result<Option<Page>, StorageError> {
        let place = self.header.place(link.page, self.len);
        let place = place
            .filter(|_| self.path.len() < MOST_DEPTH && !self.path.contains(&link.page) && self.left > 0);
        let Some(place) = place else {
            return Ok(None);
        };
        self.left -= 1;
        let mut bytes = vec![0; usize::try_from(place.end - place.start).unwrap_or(PAGE)];
        match self.file.read(place.start, &mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let mut sum = widths.sum(&bytes);
        let is_right = |page: &[u8]| widths.sum(page) == Some(link.sum);
        if sum != Some(link.sum) {
            if self.heal(place.start, link.sum, &mut bytes, is_right) {
                self.write(place.start, &bytes)?;
                sum = Some(link.sum);
            } else if self.effort == Effort::Heal {
                return Err(too_wide());
            }
        }
        let (Some(node), Some(sum)) = (widths.node(&bytes), sum) else {
            return Ok(None);
        };
        let is_sound = sum == link.sum;
        if !is_sound && !belongs(&node, widths, &bytes, bounds) {
            // A misdirected or a lost write leaves such a page.
            return Ok(None);
        }
        if !is_sound {
            self.bad += 1;
            self.kept += usize::from(self.effort != Effort::Look);
        }
        Ok(Some(Page {
            at: place.start,
            bytes,
            node,
            sum,
            is_sound,
            is_outdated: false,
        }))
    }

    /// A page that cannot be followed.
    fn lose(&mut self, link: Link) -> Result<Walked, StorageError> {
        self.lost += 1;
        self.bad += 1;
        match self.effort {
            Effort::Heal => Err(too_wide()),
            Effort::Look | Effort::Keep | Effort::Write => Ok(Walked {
                sum: link.sum,
                height: None,
                keys: None,
            }),
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

/// Whether a damaged page can be the one of its place, rather than another's: all keys of a branch lie where its parent says, and most of
/// a leaf, of which some may be damaged.
fn belongs(node: &Node, widths: Widths, page: &[u8], bounds: Bounds<'_>) -> bool {
    let within = |key: Option<&[u8]>| key.is_some_and(|key| bounds.hold(key));
    match node {
        Node::Branch(links) => (0..links.len() - 1).all(|n| within(widths.branch_key(page, n))),
        Node::Leaf(leaf) => {
            let strays = (0..leaf.count()).filter(|n| !within(leaf.key(page, *n))).count();
            strays * 2 <= leaf.count()
        }
    }
}

/// Whether the keys of a branch lie between those of its children, as far as these are known.
fn leads_there(keys: &[Vec<u8>], below: &[Option<Keys>]) -> bool {
    keys.iter().zip(below.windows(2)).all(|(key, children)| {
        let before = children[0].as_ref().is_none_or(|(_, last)| last <= key);
        let after = children[1].as_ref().is_none_or(|(first, _)| first > key);
        before && after
    })
}

fn tables_of(leaf: &Leaf, page: &[u8]) -> Option<Vec<(usize, Root, Content)>> {
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
    StorageError::Corrupt(
        "pages that lead to others, or that say which objects there are, fail their checksums; restore a backup".into(),
    )
}

pub(super) fn failed(error: std::io::Error) -> StorageError {
    if error.kind() == ErrorKind::StorageFull {
        return StorageError::NoSpace(format!("mending: {error}"));
    }
    StorageError::Engine {
        message: "mending the file of redb".into(),
        source: Some(Box::new(error)),
    }
}
