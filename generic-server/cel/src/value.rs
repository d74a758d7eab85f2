//! Run-time values. JSON is looked at in place: a list or map of the object is a borrowed slice of it plus its declaration.
//!
//! Conversion from JSON is in `value::json`, equality and order in `value::compare`. Values are cheap to clone: those that
//! are built while evaluating sit behind an `Arc`.

pub(crate) mod compare;
pub(crate) mod json;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;
use time::OffsetDateTime;

use crate::{
    authz::{Authorizer, AuthzResource, AuthzVal, Step},
    error::EvalError,
    opaque::Opaque,
    scalar,
    types::{DeclKind, DeclType, ListType, ObjectType, Type, unescape_field},
};

/// A CEL value.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Str<'a>),
    Bytes(Arc<[u8]>),
    Timestamp(OffsetDateTime),
    /// Nanoseconds.
    Duration(i64),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Val<'a>>>),
    Type(Type),
    /// A URL, IP address, quantity and the like.
    Opaque(Arc<Opaque>),
    /// The authorizer and what its methods return.
    Authz(Arc<AuthzVal<'a>>),
    /// Data without a declaration: only equality sees it.
    Preserved(&'a Value),
}

/// A string borrowed from the data or built while evaluating.
#[derive(Clone)]
pub enum Str<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl std::ops::Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Str::Borrowed(text) => text,
            Str::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    Json {
        items: &'a [Value],
        elem: &'a DeclType,
        list_type: &'a ListType,
    },
    Vals {
        items: Arc<Vec<Val<'a>>>,
        list_type: &'a ListType,
    },
    /// Two lists end to end: `+` copies nothing.
    Concat {
        parts: Arc<(List<'a>, List<'a>)>,
        len: usize,
    },
}

/// A map or object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// An object with declared fields.
    Object {
        map: &'a serde_json::Map<String, Value>,
        object: &'a ObjectType,
    },
    /// A map with string keys.
    Json {
        map: &'a serde_json::Map<String, Value>,
        value: &'a DeclType,
    },
    Vals(Arc<Entries<'a>>),
    /// An object an expression built, with the name of its type.
    Built {
        name: Arc<str>,
        entries: Arc<Entries<'a>>,
    },
    /// Fields computed by the host.
    Lazy(&'a dyn LazyObject),
}

/// Entries by normalised key, each with its key as written.
pub type Entries<'a> = BTreeMap<Key, (Val<'a>, Val<'a>)>;

/// A map key; numbers of different types that are equal are one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    Number(i128),
    String(Arc<str>),
}

/// An object whose fields the host computes when an expression asks for them, such as the variables of an admission policy.
pub trait LazyObject: fmt::Debug + Sync {
    /// The field's value, or `None` if there is no such field.
    fn get(&self, field: &str) -> Option<Result<Val<'_>, EvalError>>;

    /// How many fields there are.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

static ATOMIC: ListType = ListType::Atomic;

impl<'a> Val<'a> {
    /// A string that is not part of the data.
    pub fn string(text: impl Into<Arc<str>>) -> Val<'a> {
        Val::String(Str::Shared(text.into()))
    }

    /// A string borrowed for as long as the data.
    pub fn str(text: &'a str) -> Val<'a> {
        Val::String(Str::Borrowed(text))
    }

    /// A list of these values.
    pub fn list(items: Vec<Val<'a>>) -> Val<'a> {
        Val::List(List::Vals {
            items: Arc::new(items),
            list_type: &ATOMIC,
        })
    }

    /// `optional.of(value)`.
    pub fn some(value: Val<'a>) -> Val<'a> {
        Val::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn none() -> Val<'a> {
        Val::Optional(None)
    }

    /// The variable `authorizer`.
    pub fn authorizer(host: &'a dyn Authorizer) -> Val<'a> {
        Val::Authz(Arc::new(AuthzVal::new(host, Step::Authorizer)))
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_check(host: &'a dyn Authorizer, resource: AuthzResource) -> Val<'a> {
        Val::Authz(Arc::new(AuthzVal::new(host, Step::Resource(resource))))
    }

    /// The string form of a scalar.
    pub(crate) fn text(&self) -> Option<String> {
        Some(match self {
            Val::Bool(value) => value.to_string(),
            Val::Int(value) => value.to_string(),
            Val::Uint(value) => value.to_string(),
            Val::Double(value) => go_text::general(*value),
            Val::String(text) => text.to_string(),
            Val::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
            Val::Duration(nanos) => format!("{}s", *nanos as f64 / 1e9),
            Val::Timestamp(at) => scalar::time::format(*at),
            Val::Type(ty) => ty.name().to_string(),
            _ => return None,
        })
    }

    pub(crate) fn opaque(value: Opaque) -> Val<'a> {
        Val::Opaque(Arc::new(value))
    }

    /// The value as a bool, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The value as a string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text),
            _ => None,
        }
    }

    /// The run-time type, as `type(x)` gives it.
    pub fn type_of(&self) -> Type {
        match self {
            Val::Null => Type::Null,
            Val::Bool(_) => Type::Bool,
            Val::Int(_) => Type::Int,
            Val::Uint(_) => Type::Uint,
            Val::Double(_) => Type::Double,
            Val::String(_) => Type::String,
            Val::Bytes(_) => Type::Bytes,
            Val::Timestamp(_) => Type::Timestamp,
            Val::Duration(_) => Type::Duration,
            Val::List(_) => Type::list(Type::Dyn),
            Val::Map(Map::Built { name, .. }) => Type::Open(name.clone()),
            Val::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Val::Optional(_) => Type::optional(Type::Dyn),
            Val::Type(_) => Type::Type(None),
            Val::Opaque(value) => value.type_of(),
            Val::Authz(value) => value.type_of(),
            Val::Preserved(_) => Type::Struct("unknown"),
        }
    }

    /// The size, as cost functions count it: characters, bytes, elements, entries; 1 for everything without one.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Val::Optional(Some(value)) => value.cost_size(),
            other => other.size().unwrap_or(1),
        }
    }

    /// `size(x)`, where there is one.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Val::String(text) => text.chars().count() as u64,
            Val::Bytes(bytes) => bytes.len() as u64,
            Val::List(list) => list.len() as u64,
            Val::Map(map) => map.len() as u64,
            Val::Opaque(value) => return value.size(),
            _ => return None,
        })
    }

    /// Whether this is the zero value of its type, for `optional.ofNonZeroValue`.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Val::Null => true,
            Val::Bool(value) => !value,
            Val::Int(value) | Val::Duration(value) => *value == 0,
            Val::Uint(value) => *value == 0,
            Val::Double(value) => *value == 0.0,
            Val::Timestamp(value) => {
                value.year() == 1 && value.ordinal() == 1 && value.time() == time::Time::MIDNIGHT
            }
            // Lists and maps of the object have no notion of zero upstream.
            Val::List(List::Vals { items, .. }) => items.is_empty(),
            Val::Map(Map::Vals(entries) | Map::Built { entries, .. }) => entries.is_empty(),
            Val::String(text) => text.is_empty(),
            Val::Bytes(bytes) => bytes.is_empty(),
            _ => false,
        }
    }
}

/// The form in error texts.
impl fmt::Display for Val<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Null => f.write_str("null"),
            Val::Bool(value) => write!(f, "{value}"),
            Val::Int(value) => write!(f, "{value}"),
            Val::Uint(value) => write!(f, "{value}"),
            Val::Double(value) => f.write_str(&go_text::general(*value)),
            Val::String(text) => f.write_str(text),
            Val::Type(ty) => f.write_str(ty.name()),
            Val::Duration(nanos) => write!(f, "{}s", *nanos as f64 / 1e9),
            other => f.write_str(other.type_of().name()),
        }
    }
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json { items, .. } => items.len(),
            List::Vals { items, .. } => items.len(),
            List::Concat { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index that is within the list.
    pub(crate) fn at(&self, index: usize) -> Result<Val<'a>, EvalError> {
        match self {
            List::Json { items, elem, .. } => match items.get(index) {
                Some(item) => Val::json(item, elem),
                None => Err(EvalError::new(format!("index out of bounds: {index}"))),
            },
            List::Vals { items, .. } => items
                .get(index)
                .cloned()
                .ok_or_else(|| EvalError::new(format!("index out of bounds: {index}"))),
            List::Concat { parts, .. } => match index.checked_sub(parts.0.len()) {
                Some(index) => parts.1.at(index),
                None => parts.0.at(index),
            },
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Val<'a>, EvalError>> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    pub(crate) fn list_type(&self) -> &'a ListType {
        match self {
            List::Json { list_type, .. } | List::Vals { list_type, .. } => list_type,
            List::Concat { .. } => &ATOMIC,
        }
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Object { map, .. } | Map::Json { map, .. } => map.len(),
            Map::Vals(entries) | Map::Built { entries, .. } => entries.len(),
            Map::Lazy(object) => object.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a field name or string key.
    pub fn field(&self, name: &str) -> Option<Result<Val<'a>, EvalError>> {
        match self {
            Map::Object { map, object } => {
                let field = object.field(name)?;
                match map.get(&*field.json_name)? {
                    // A null field of an object is an absent one.
                    Value::Null => None,
                    value => Some(Val::json(value, &field.decl)),
                }
            }
            Map::Json { map, value } => {
                let escaped = matches!(value.kind(), DeclKind::Untyped) && name.contains("__");
                let unescaped = escaped.then(|| unescape_field(name)).flatten();
                map.get(unescaped.as_deref().unwrap_or(name))
                    .map(|item| Val::json(item, value))
            }
            Map::Vals(entries) | Map::Built { entries, .. } => entries
                .get(&Key::String(name.into()))
                .map(|entry| Ok(entry.1.clone())),
            Map::Lazy(object) => object.get(name),
        }
    }

    /// The value under any key.
    pub(crate) fn find(&self, key: &Val<'_>) -> Option<Result<Val<'a>, EvalError>> {
        match (self, key) {
            (_, Val::String(name)) => self.field(name),
            (Map::Vals(entries), key) => {
                let key = Key::lookup(key)?;
                entries.get(&key).map(|entry| Ok(entry.1.clone()))
            }
            _ => Some(Err(EvalError::NO_OVERLOAD)),
        }
    }

    /// Keys and values as CEL sees them; fields without a declaration are skipped.
    pub(crate) fn entries(&self) -> Vec<(Val<'a>, Result<Val<'a>, EvalError>)> {
        match self {
            Map::Object { map, object } => map
                .iter()
                .filter_map(|(key, value)| {
                    let (name, field) = object.by_json(key)?;
                    Some((Val::str(name), Val::json(value, &field.decl)))
                })
                .collect(),
            Map::Json { map, value } => map
                .iter()
                .map(|(key, item)| (Val::str(key.as_str()), Val::json(item, value)))
                .collect(),
            Map::Vals(entries) | Map::Built { entries, .. } => entries
                .values()
                .map(|(key, value)| (key.clone(), Ok(value.clone())))
                .collect(),
            Map::Lazy(_) => Vec::new(),
        }
    }
}

impl Key {
    /// The key a map literal or insertion makes.
    pub(crate) fn new(val: &Val<'_>) -> Result<Key, EvalError> {
        Key::lookup(val)
            .ok_or_else(|| EvalError::new(format!("unsupported key type: {}", val.type_of().name())))
    }

    /// The key a look-up means; a fraction is equal to no key.
    pub(crate) fn lookup(val: &Val<'_>) -> Option<Key> {
        Some(match val {
            Val::Bool(value) => Key::Bool(*value),
            Val::Int(value) => Key::Number((*value).into()),
            Val::Uint(value) => Key::Number((*value).into()),
            Val::Double(value) if value.fract() == 0.0 && value.abs() < 1e30 => Key::Number(*value as i128),
            Val::String(text) => Key::String((**text).into()),
            _ => return None,
        })
    }
}
