//! An object as it is cached: its final JSON and, packed beside it, what filters and views need without a parse.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use storage::Revision;

use crate::registry::forms::FormSlot;

/// An object as it is cached: its final JSON (stored version, `metadata.resourceVersion` included) and what filters ask for.
///
/// The JSON is compact and begins `{"kind":K,"apiVersion":V,"metadata":{...}` (in either order of the first two), so that
/// the object without its type, its metadata alone, or the object as another version are slices of it.
#[derive(Clone)]
pub struct Entry {
    /// The storage key.
    pub key: Arc<str>,
    /// The revision of its last write: its resourceVersion.
    pub revision: Revision,
    /// The whole object.
    pub json: Bytes,
    facts: Facts,
    /// What has been encoded of it. A clone has none yet.
    forms: FormSlot,
}

/// Offsets into an object's JSON and key, and its packed labels and field values.
#[derive(Clone)]
pub(super) struct Facts {
    /// Where the namespace begins in the key (equal to `name_at` for cluster scope).
    pub(super) namespace_at: u32,
    /// Where the name begins in the key.
    pub(super) name_at: u32,
    /// Where `"metadata":` begins in the JSON.
    pub(super) head: u32,
    /// Where the resourceVersion entry begins (in stored JSON: belongs).
    pub(super) version_at: u32,
    /// Whether another entry of metadata follows it.
    pub(super) comma: bool,
    /// Just after metadata's closing brace.
    pub(super) metadata_end: u32,
    /// It was read from the store: others lay objects out otherwise.
    pub(super) loaded: bool,
    pub(super) packed: Packed,
}

/// Labels and field values in one allocation: every string ends in a NUL, fields first.
#[derive(Clone, Default)]
pub(super) struct Packed {
    text: Box<str>,
    labels_at: u32,
}

impl Packed {
    pub(super) fn new<'a>(
        fields: impl Iterator<Item = String>,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut text = String::new();
        // A NUL cannot be in a valid label; in a field value it would only make the object unfindable by that value.
        let mut push = |part: &str| {
            text.extend(part.chars().filter(|c| *c != '\0'));
            text.push('\0');
            text.len()
        };
        let mut labels_at = 0;
        for field in fields {
            labels_at = push(&field);
        }
        for (key, value) in labels {
            push(key);
            push(value);
        }
        Packed {
            text: text.into(),
            labels_at: offset(labels_at),
        }
    }
}

/// Offsets are kept small: objects of 4 GiB do not exist (requests are bounded far below).
pub(super) fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Entries of one store are the same when they are of the same write.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && self.key == other.key
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Objects may be Secrets: never print their bytes.
        f.debug_struct("Entry")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Entry {
    /// The stored JSON with the resourceVersion put where the facts say.
    pub(super) fn splice(key: Arc<str>, json: &[u8], facts: &Facts, revision: Revision) -> Self {
        let mut facts = facts.clone();
        let at = facts.version_at as usize;
        let mut out = Vec::with_capacity(json.len() + 42);
        out.extend_from_slice(&json[..at]);
        write_version(&mut out, revision, facts.comma);
        facts.metadata_end += offset(out.len() - at);
        out.extend_from_slice(&json[at..]);
        out.shrink_to_fit();
        Entry {
            key,
            revision,
            json: out.into(),
            facts,
            forms: FormSlot::default(),
        }
    }

    /// The same object as of another revision: the last state of a deleted one has the deletion's resourceVersion.
    pub fn at_revision(&self, revision: Revision) -> Entry {
        let at = self.facts.version_at as usize;
        let old = version_len(self.revision, self.facts.comma);
        let mut facts = self.facts.clone();
        let mut out = Vec::with_capacity(self.json.len() + 20);
        out.extend_from_slice(&self.json[..at]);
        write_version(&mut out, revision, facts.comma);
        facts.metadata_end = facts.metadata_end - offset(old) + offset(out.len() - at);
        out.extend_from_slice(&self.json[at + old..]);
        Entry {
            key: self.key.clone(),
            revision,
            json: out.into(),
            facts,
            forms: FormSlot::default(),
        }
    }

    /// About what it takes in memory.
    pub(super) fn weight(&self) -> usize {
        self.json.len() + self.key.len() + self.facts.packed.text.len() + 256
    }

    /// Whether another state of the object says the same, however it is laid out. `other` is laid out by this process.
    pub(crate) fn is(&self, other: &Entry) -> bool {
        self.json == other.json || (self.facts.loaded && self.value() == other.value())
    }

    /// The object, parsed. Costs a parse: for writes and views that need it, never for plain reads.
    pub fn value(&self) -> serde_json::Value {
        machinery::codec::json::value(&self.json).unwrap_or(serde_json::Value::Null)
    }

    /// The object without the members of these names, wherever they are: for large objects of which little is looked at.
    pub fn value_without(&self, names: &[&str]) -> serde_json::Value {
        machinery::codec::sparse(&self.json, names).unwrap_or_else(|| self.value())
    }

    /// Whether a text that JSON writes without escapes is anywhere in the object. Where the name of a member is not, the object need not be
    /// parsed to know that it has no such member.
    pub fn mentions(&self, text: &str) -> bool {
        memchr::memmem::find(&self.json, text.as_bytes()).is_some()
    }

    /// The namespace, or empty.
    pub fn namespace(&self) -> &str {
        let (from, to) = (self.facts.namespace_at as usize, self.facts.name_at as usize);
        self.key.get(from..to).unwrap_or_default().trim_end_matches('/')
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.key.get(self.facts.name_at as usize..).unwrap_or_default()
    }

    /// The labels, sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let packed = &self.facts.packed;
        let mut parts = packed.text[packed.labels_at as usize..].split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let packed = &self.facts.packed;
        let mut rest = &packed.text[packed.labels_at as usize..];
        let until_nul = |text: &str| text.bytes().position(|b| b == 0);
        loop {
            let name_end = until_nul(rest)?;
            let (name, tail) = (&rest[..name_end], &rest[name_end + 1..]);
            let value_end = until_nul(tail)?;
            if name == key {
                return Some(&tail[..value_end]);
            }
            rest = &tail[value_end + 1..];
        }
    }

    /// The value of the store's selectable field at `index` of its list.
    pub fn field(&self, index: usize) -> &str {
        let packed = &self.facts.packed;
        packed.text[..packed.labels_at as usize]
            .split('\0')
            .nth(index)
            .unwrap_or_default()
    }

    /// The values of all selectable fields, in the store's order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let packed = &self.facts.packed;
        packed.text[..packed.labels_at as usize].split_terminator('\0')
    }

    /// `"metadata":{...},...}`: the object without its type and its opening brace.
    pub fn untyped(&self) -> &[u8] {
        &self.json[self.facts.head as usize..]
    }

    /// Where [`Entry::untyped`] begins in the JSON.
    pub fn untyped_at(&self) -> usize {
        self.facts.head as usize
    }

    /// Other forms of it than its JSON, as far as they are kept.
    pub(crate) fn forms(&self) -> &FormSlot {
        &self.forms
    }

    /// `"metadata":{...}`.
    pub fn metadata(&self) -> &[u8] {
        &self.json[self.facts.head as usize..self.facts.metadata_end as usize]
    }
}

impl machinery::selector::LabelSource for Entry {
    fn label(&self, key: &str) -> Option<&str> {
        self.label(key)
    }
}

fn write_version(out: &mut Vec<u8>, revision: Revision, comma: bool) {
    out.extend_from_slice(b"\"resourceVersion\":\"");
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(if comma { b"\"," } else { b"\"" });
}

fn version_len(revision: Revision, comma: bool) -> usize {
    let digits = revision.0.checked_ilog10().unwrap_or_default() as usize + 1;
    b"\"resourceVersion\":\"".len() + digits + 1 + usize::from(comma)
}
