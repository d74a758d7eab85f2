//! The blocks of one list.
//!
//! A block ends behind an object whose name says so, once it is large enough: the blocks of two lists, or of two states of one, are the same
//! where the objects are the same. The compressor may refer to the object before the block, so that a block compresses as
//! well as it would within the whole; that object is part of the block's identity.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use machinery::{ApiError, codec, limits};

use super::HELD;
use crate::cpu;
use crate::handlers::list::rows::Item;
use crate::handlers::list::text::{Layout, Written};
use crate::handlers::message::Messages;
use crate::handlers::served;
use crate::negotiate::Negotiated;
use crate::registry::cache::Entry;
use crate::registry::forms::{Block, BlockKey, FormCache, FormId};
use crate::registry::list::Entries;
use crate::resource::ServedResource;
use crate::respond::gzip::{self, Checksum};

/// To find a block costs this part of what it costs to make it, at most.
const FOUND: usize = 256;

/// For how many seconds the ages in a block have to hold for it to be kept.
const HOLDS: i64 = 5;

/// How items are written.
pub(super) enum Items {
    Json(Layout),
    Protobuf(Messages),
}

/// The next block of a list.
pub(super) enum Next {
    /// It is there; the text between it and what was sent before.
    Block(Arc<Block>, &'static [u8]),
    /// It has to be made.
    Missing,
    /// There is none.
    End,
}

/// A list's items, block by block.
pub(super) struct Blocks {
    resource: Arc<ServedResource>,
    forms: Arc<FormCache>,
    form: FormId,
    items: Items,
    /// Those that are in no block yet.
    entries: Entries,
    /// The one before the next block.
    before: Option<Arc<Entry>>,
    /// The objects and the identity of the next block, if it has been looked for.
    next: Option<(Vec<Arc<Entry>>, BlockKey)>,
    /// The next block, once it has been made.
    made: Option<Arc<Block>>,
    /// For each of the next blocks the block itself, if it may not be among those that are kept.
    held: VecDeque<Option<Arc<Block>>>,
}

impl Blocks {
    pub(super) fn new(
        resource: &Arc<ServedResource>,
        forms: &Arc<FormCache>,
        negotiated: &Negotiated,
        items: Items,
        entries: Entries,
    ) -> Self {
        let form = served::Form::Items(negotiated.media, negotiated.view);
        Blocks {
            resource: resource.clone(),
            forms: forms.clone(),
            form: served::form(resource, forms, form),
            items,
            entries,
            before: None,
            next: None,
            made: None,
            held: VecDeque::new(),
        }
    }

    /// The text before the items, of lists that do not begin with a length.
    pub(super) fn head(&self) -> &[u8] {
        match &self.items {
            Items::Json(layout) => layout.head(),
            Items::Protobuf(_) => &[],
        }
    }

    /// The messages of the items.
    pub(super) fn messages(&self) -> Result<&Messages, ApiError> {
        match &self.items {
            Items::Protobuf(messages) => Ok(messages),
            Items::Json(_) => Err(ApiError::internal("the list is not one of messages")),
        }
    }

    /// Whether head and items take more than so many bytes.
    pub(super) async fn exceed(&mut self, limit: usize) -> Result<bool, ApiError> {
        let (mut text, mut worked) = (self.head().to_vec(), 0);
        for (index, entry) in self.entries.clone().enumerate() {
            if index > 0 {
                text.extend_from_slice(self.separator());
            }
            let made = self.write(&mut text, &entry, true)?.made;
            if text.len() > limit {
                return Ok(true);
            }
            // Of large objects the items may be small: rows, and metadata.
            let size = entry.json.len();
            worked += if made { size } else { size / FOUND };
            if worked >= limits::SLICE_BYTES {
                worked = 0;
                cpu::pause(cpu::Lane::Answers).await;
            }
        }
        Ok(false)
    }

    /// The bytes of all items. What has to be made for that is kept, or held on to as far as there is room.
    pub(super) async fn measure(&mut self) -> Result<usize, ApiError> {
        let (mut bytes, mut worked, mut holding) = (0, 0, 0);
        let mut held = VecDeque::new();
        let begin = self.entries.clone();
        while let Some((members, key)) = self.find() {
            let size: usize = members.iter().map(|entry| entry.json.len()).sum();
            let (block, made) = match self.kept(&key) {
                Some(block) => (block, false),
                None => (self.compress(&members, key)?, true),
            };
            bytes += usize::try_from(block.len).unwrap_or(usize::MAX);
            let hold = made && holding < HELD;
            holding += if hold { block.deflated.len() } else { 0 };
            held.push_back(hold.then_some(block));
            self.before = members.last().cloned();
            worked += if made { size } else { size / FOUND };
            if worked >= limits::SLICE_BYTES {
                worked = 0;
                cpu::pause(cpu::Lane::Answers).await;
            }
        }
        self.entries = begin;
        self.before = None;
        self.held = held;
        Ok(bytes)
    }

    /// Bytes of the blocks that are held on to.
    pub(super) fn held(&self) -> usize {
        let held = self.held.iter().flatten();
        held.map(|block| block.deflated.len()).sum()
    }

    /// The next block, if it is there.
    pub(super) fn next(&mut self) -> Next {
        if self.next.is_none() {
            self.next = self.find();
            // One for each block, in their order.
            self.made = self.held.pop_front().flatten();
        }
        let Some((members, key)) = self.next.take() else {
            return Next::End;
        };
        let made = self.made.take().filter(|block| block.is(&key));
        let Some(block) = made.or_else(|| self.kept(&key)) else {
            self.next = Some((members, key));
            return Next::Missing;
        };
        let separator = match self.before {
            None => b"",
            Some(_) => self.separator(),
        };
        self.before = members.last().cloned();
        Next::Block(block, separator)
    }

    /// Makes the block that was missing.
    pub(super) fn make(&mut self) -> Result<(), ApiError> {
        if let Some((members, key)) = self.next.take() {
            self.made = Some(self.compress(&members, key.clone())?);
            self.next = Some((members, key));
        }
        Ok(())
    }

    /// Takes the objects of the next block, with its identity.
    pub(super) fn find(&mut self) -> Option<(Vec<Arc<Entry>>, BlockKey)> {
        let (mut bytes, mut members) = (0, Vec::new());
        for entry in self.entries.by_ref() {
            bytes += entry.json.len();
            let may_end = bytes >= limits::BLOCK_LEAST_BYTES && ends_block(&entry);
            members.push(entry);
            if may_end || bytes >= limits::BLOCK_MOST_BYTES {
                break;
            }
        }
        if members.is_empty() {
            return None;
        }
        let objects = self.before.iter().chain(&members);
        let objects = objects.map(|entry| (&*entry.key, entry.revision.0));
        let key = BlockKey::new(&self.forms, self.form, self.before.is_some(), objects);
        Some((members, key))
    }

    /// Makes the block of these objects, and keeps it.
    fn compress(&self, members: &[Arc<Entry>], key: BlockKey) -> Result<Arc<Block>, ApiError> {
        let mut text = Vec::with_capacity(limits::BLOCK_MOST_BYTES);
        let mut until = None;
        if let Some(before) = &self.before {
            until = self.write(&mut text, before, false)?.until;
            text.extend_from_slice(self.separator());
        }
        let begin = text.len();
        for entry in members {
            if text.len() > begin {
                text.extend_from_slice(self.separator());
            }
            until = self
                .write(&mut text, entry, false)?
                .until
                .into_iter()
                .chain(until)
                .min();
        }
        let (before, text) = text.split_at(begin);
        let Checksum { crc, len } = Checksum::of(text);
        let valid = until.map(|until| self.now()..until);
        let block = Block::new(key, gzip::deflate(before, text), crc, len, valid);
        // Not what is about to grow old.
        if until.is_none_or(|until| until > self.now().saturating_add(HOLDS)) {
            self.forms.keep_block(&block);
        }
        Ok(block)
    }

    fn separator(&self) -> &'static [u8] {
        match self.items {
            Items::Json(_) => b",",
            Items::Protobuf(_) => b"",
        }
    }

    /// The second of the list.
    fn now(&self) -> i64 {
        match &self.items {
            Items::Json(layout) => layout.now(),
            Items::Protobuf(_) => 0,
        }
    }

    /// A block, if it is kept and says what is true now.
    fn kept(&self, key: &BlockKey) -> Option<Arc<Block>> {
        let block = self.forms.block(key)?;
        // Of another second the ages in it, and those before it that it refers to, may be others.
        let valid = block.valid.as_ref();
        valid
            .is_none_or(|valid| valid.contains(&self.now()))
            .then_some(block)
    }

    /// Writes an item. `keep` says whether it will be asked for again besides the block that it is in.
    fn write(&self, out: &mut Vec<u8>, entry: &Arc<Entry>, keep: bool) -> Result<Written, ApiError> {
        match &self.items {
            Items::Json(layout) => {
                let row = Item::Entry(entry.clone()).row(&self.resource)?;
                layout.item(out, &row)
            }
            Items::Protobuf(messages) => {
                let (message, made) = match keep {
                    true => messages.of(entry)?,
                    false => (messages.once(entry)?, true),
                };
                codec::protobuf::encode_list_item(out, &message);
                Ok(Written { made, until: None })
            }
        }
    }
}

/// Whether a block may end behind an object: the more likely the larger it is, so that blocks are of about the same size. A change of its size
/// seldom changes that.
pub(super) fn ends_block(entry: &Entry) -> bool {
    let mut hasher = DefaultHasher::new();
    entry.key.hash(&mut hasher);
    let of = hasher.finish() % limits::BLOCK_LEAST_BYTES as u64;
    of < entry.json.len().next_power_of_two() as u64
}
