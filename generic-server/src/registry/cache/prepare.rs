//! From an object to its stored bytes, and from stored bytes to what the cache keeps.
//!
//! Objects written by this process are laid out once, by [`Prepared::from_value`], and never read back. Values of other writers are
//! scanned once, without building a tree, and only laid out again when they do not begin as entries have to.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use storage::Revision;

use super::codec::{StorageCodec, ValueError};
use super::entry::{Entry, Facts, Packed, offset};
use crate::registry::config::StoreConfig;
use crate::registry::strategy::FieldValue;

/// An object ready to be stored, with all that its entry needs but the revision.
#[derive(Clone)]
pub struct Prepared {
    key: Arc<str>,
    json: Bytes,
    stored: Bytes,
    facts: Facts,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// Lays out an object of the stored version; its resourceVersion, if any, is left out. Fails when it is no object, has
    /// no name, or the codec does not take it.
    pub fn from_value(
        config: &StoreConfig,
        object: &Value,
        codec: &dyn StorageCodec,
    ) -> Result<Self, ValueError> {
        let namespace = machinery::meta::namespace(object);
        let key = config.key(namespace, machinery::meta::name(object));
        let mut prepared = Self::lay_out(config, key.into(), object)?;
        prepared.stored = codec.encode(&prepared.key, object, &prepared.json)?;
        Ok(prepared)
    }

    /// The storage key.
    pub fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The value to store.
    pub fn stored(&self) -> &Bytes {
        &self.stored
    }

    /// The entry once the revision is known.
    pub fn finish(&self, revision: Revision) -> Entry {
        Entry::splice(self.key.clone(), &self.json, &self.facts, revision)
    }

    pub(super) fn lay_out(config: &StoreConfig, key: Arc<str>, object: &Value) -> Result<Self, ValueError> {
        let corrupt = || ValueError::undecodable("the object has no metadata");
        let (Some(map), Some(metadata)) = (object.as_object(), machinery::meta::metadata(object)) else {
            return Err(corrupt());
        };
        let mut out: Vec<u8> = Vec::with_capacity(1024);
        out.push(b'{');
        for part in ["kind", "apiVersion"] {
            if let Some(value) = map.get(part) {
                field(&mut out, part, value)?;
                out.push(b',');
            }
        }
        let head = out.len();
        out.extend_from_slice(b"\"metadata\":{");
        let mut version_at = None;
        let mut first = true;
        for (name, value) in metadata.iter().filter(|(n, _)| *n != "resourceVersion") {
            if !first {
                out.push(b',');
            }
            first = false;
            if version_at.is_none() && name.as_str() > "resourceVersion" {
                version_at = Some(out.len());
            }
            field(&mut out, name, value)?;
        }
        // Without a later key it goes first: all revisions must use the same position.
        let version_at = version_at.unwrap_or(head + b"\"metadata\":{".len());
        out.push(b'}');
        let metadata_end = out.len();
        let typed = ["kind", "apiVersion", "metadata"];
        for (name, value) in map.iter().filter(|(n, _)| !typed.contains(&n.as_str())) {
            out.push(b',');
            field(&mut out, name, value)?;
        }
        out.push(b'}');
        out.shrink_to_fit();
        let labels = machinery::meta::labels(object);
        let labels = labels
            .into_iter()
            .flatten()
            .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)));
        let packed = Packed::new(config.fields.iter().map(|f| f.of(object)), labels);
        let (namespace_at, name_at) = key_parts(config, &key);
        let json = Bytes::from(out);
        Ok(Prepared {
            key,
            stored: json.clone(),
            json,
            facts: Facts {
                namespace_at,
                name_at,
                head: offset(head),
                version_at: offset(version_at),
                comma: !first,
                metadata_end: offset(metadata_end),
                loaded: false,
                packed,
            },
        })
    }

    /// A value that another process stored.
    pub(crate) fn from_stored(
        config: &StoreConfig,
        key: &Arc<str>,
        stored: &Bytes,
        codec: &dyn StorageCodec,
    ) -> Result<Self, ValueError> {
        let json = codec.decode(key, stored)?;
        let json = json.slice(..json.trim_ascii_end().len());
        if let Some(facts) = scan(config, key, &json) {
            return Ok(Prepared {
                key: key.clone(),
                stored: stored.clone(),
                json,
                facts,
            });
        }
        let object: Value = serde_json::from_slice(&json).map_err(ValueError::undecodable)?;
        Self::lay_out(config, key.clone(), &object)
    }
}

fn field(out: &mut Vec<u8>, name: &str, value: &Value) -> Result<(), ValueError> {
    let failed = |error: serde_json::Error| ValueError::undecodable(error);
    serde_json::to_writer(&mut *out, name).map_err(failed)?;
    out.push(b':');
    serde_json::to_writer(&mut *out, value).map_err(failed)
}

/// Where namespace and name begin in a key.
fn key_parts(config: &StoreConfig, key: &str) -> (u32, u32) {
    let start = config.prefix.len() + 1;
    let name_at = match key.get(start..).and_then(|rest| rest.find('/')) {
        Some(slash) if config.namespaced => start + slash + 1,
        _ => start,
    };
    (offset(start), offset(name_at))
}

/// The facts of JSON that is laid out as entries are, without building a tree. `None` when it is not.
fn scan(config: &StoreConfig, key: &str, json: &[u8]) -> Option<Facts> {
    let text = std::str::from_utf8(json).ok()?;
    let top: Top<'_> = serde_json::from_str(text).ok()?;
    let within = |part: &str| (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
    let metadata_at = within(top.metadata?)?;
    let meta: Meta<'_> = serde_json::from_str(top.metadata?).ok()?;
    if meta.versioned {
        return None;
    }
    // Between the key and its value only a colon: then the key's quote is where it has to be.
    let head = metadata_at.checked_sub(b"\"metadata\":".len())?;
    if text.get(head..metadata_at)? != "\"metadata\":" || !top.head_first {
        return None;
    }
    let after = meta.after.map(|key| within(key).map(|at| at - 1));
    let packed = match &config.fields[..] {
        [] => Packed::new(std::iter::empty(), meta.labels()),
        fields if fields.iter().all(|f| matches!(f.value, FieldValue::Path(_))) => {
            let mut root = PathNode::default();
            for (index, f) in fields.iter().enumerate() {
                if let FieldValue::Path(path) = &f.value {
                    root.add(path, index);
                }
            }
            let mut values = vec![String::new(); fields.len()];
            root.collect(text, &mut values)?;
            Packed::new(values.into_iter(), meta.labels())
        }
        fields => {
            let object: Value = serde_json::from_str(text).ok()?;
            Packed::new(fields.iter().map(|f| f.of(&object)), meta.labels())
        }
    };
    let (namespace_at, name_at) = key_parts(config, key);
    Some(Facts {
        namespace_at,
        name_at,
        head: offset(head),
        version_at: offset(after.unwrap_or(Some(metadata_at + 1))?),
        comma: meta.any,
        metadata_end: offset(metadata_at + top.metadata?.len()),
        loaded: true,
        packed,
    })
}

/// The top level of an object.
#[derive(Default)]
struct Top<'a> {
    metadata: Option<&'a str>,
    /// Nothing but the type comes before metadata.
    head_first: bool,
}

impl<'de> Deserialize<'de> for Top<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopVisitor;
        impl<'de> Visitor<'de> for TopVisitor {
            type Value = Top<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut top = Top {
                    metadata: None,
                    head_first: true,
                };
                while let Some(Key(name)) = map.next_key()? {
                    match &*name {
                        "metadata" => top.metadata = Some(map.next_value::<&RawValue>()?.get()),
                        other => {
                            map.next_value::<IgnoredAny>()?;
                            if top.metadata.is_none() && other != "kind" && other != "apiVersion" {
                                top.head_first = false;
                            }
                        }
                    }
                }
                Ok(top)
            }
        }
        deserializer.deserialize_map(TopVisitor)
    }
}

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// The needed part of metadata.
#[derive(Default)]
struct Meta<'a> {
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The first key that sorts after resourceVersion, as it lies in the text.
    after: Option<&'a str>,
    /// There is a resourceVersion already.
    versioned: bool,
    /// There is any key.
    any: bool,
}

impl Meta<'_> {
    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (&**k, &**v))
    }
}

impl<'de> Deserialize<'de> for Meta<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetaVisitor;
        impl<'de> Visitor<'de> for MetaVisitor {
            type Value = Meta<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut meta = Meta::default();
                while let Some(Key(name)) = map.next_key()? {
                    meta.any = true;
                    meta.versioned |= name == "resourceVersion";
                    if meta.after.is_none() {
                        meta.after = match &name {
                            Cow::Borrowed(text) if *text > "resourceVersion" => Some(text),
                            _ => None,
                        };
                    }
                    if name == "labels" {
                        let Labels(labels) = map.next_value()?;
                        meta.labels = labels;
                        meta.labels.sort();
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(meta)
            }
        }
        deserializer.deserialize_map(MetaVisitor)
    }
}

/// Labels as they lie in the text.
struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Labels<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;
        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = Labels<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Labels(Vec::new()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut labels = Vec::new();
                while let Some((Key(key), Key(value))) = map.next_entry()? {
                    labels.push((key, value));
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_any(LabelsVisitor)
    }
}

/// Paths of selectable fields as a tree, to collect all of them in one pass over the text.
#[derive(Default)]
struct PathNode<'p> {
    children: Vec<(&'p str, PathNode<'p>)>,
    fields: Vec<usize>,
}

impl<'p> PathNode<'p> {
    fn add(&mut self, path: &'p [Cow<'static, str>], index: usize) {
        let Some((first, rest)) = path.split_first() else {
            self.fields.push(index);
            return;
        };
        let at = match self.children.iter().position(|(name, _)| name == first) {
            Some(at) => at,
            None => {
                self.children.push((first, PathNode::default()));
                self.children.len() - 1
            }
        };
        self.children[at].1.add(rest, index);
    }

    fn collect(&self, text: &str, values: &mut [String]) -> Option<()> {
        if !self.fields.is_empty() {
            let value: Value = serde_json::from_str(text).ok()?;
            let scalar = match value {
                Value::String(s) => s,
                Value::Null => String::new(),
                other => other.to_string(),
            };
            for index in &self.fields {
                values[*index].clone_from(&scalar);
            }
        }
        if self.children.is_empty() || !text.starts_with('{') {
            return Some(());
        }
        // The recursion is as deep as the deepest declared path.
        let Members(members) = serde_json::from_str(text).ok()?;
        for (name, raw) in members {
            if let Some((_, child)) = self.children.iter().find(|(n, _)| *n == name) {
                child.collect(raw, values)?;
            }
        }
        Some(())
    }
}

/// The members of an object, unparsed.
struct Members<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(name)) = map.next_key()? {
                    members.push((name, map.next_value::<&RawValue>()?.get()));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A write in flight, with the entry that the sink takes over without reading the bytes back.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) prepared: Prepared,
    pub(super) entry: OnceLock<Arc<Entry>>,
}
