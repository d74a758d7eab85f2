//! Which old value a value is to be compared with. Mirrors `k8s.io/apiserver/pkg/cel/common.CorrelatedObject`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::{ListType, SchemaRef};
use crate::steps;

/// A value, its old self and the schema that says how they are matched: the structure's own, also inside junctors.
#[derive(Clone, Copy)]
pub(super) struct Correlated<'a> {
    pub(super) schema: SchemaRef<'a>,
    pub(super) value: &'a Value,
    pub(super) old: &'a Value,
}

impl<'a> Correlated<'a> {
    /// Whether nothing changed.
    pub(super) fn unchanged(self) -> bool {
        self.value == self.old
    }

    /// The pair under a name. The root's `apiVersion` and `kind` are never compared: both are those of the request.
    pub(super) fn key(self, name: &str, root: bool) -> Option<Self> {
        if root && matches!(name, "apiVersion" | "kind") {
            return None;
        }
        Some(Correlated {
            schema: self.schema.value_of(name)?,
            value: self.value.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
        })
    }

    /// The old items of a list; only those of lists of type map are matched.
    pub(super) fn items(self) -> Option<OldItems<'a>> {
        let ListType::Map(keys) = &self.schema.node().list_type else {
            return None;
        };
        let mut items = OldItems {
            schema: self.schema.items()?,
            keys,
            by_key: HashMap::new(),
        };
        for old in self.old.as_array()? {
            steps::count(1);
            if let Some(key) = items.key(old) {
                items.by_key.entry(key).or_insert(old);
            }
        }
        Some(items)
    }
}

/// The items of an old list by the values of their keys; the first of equal ones counts.
pub(super) struct OldItems<'a> {
    schema: SchemaRef<'a>,
    keys: &'a [Arc<str>],
    by_key: HashMap<Vec<Option<&'a Value>>, &'a Value>,
}

impl<'a> OldItems<'a> {
    fn key(&self, item: &'a Value) -> Option<Vec<Option<&'a Value>>> {
        let item = item.as_object()?;
        Some(self.keys.iter().map(|key| item.get(&**key)).collect())
    }

    /// An item with its old self.
    pub(super) fn of(&self, value: &'a Value) -> Option<Correlated<'a>> {
        Some(Correlated {
            schema: self.schema,
            value,
            old: self.by_key.get(&self.key(value)?)?,
        })
    }
}
