//! Which old value a value is to be compared with. Mirrors `k8s.io/apiserver/pkg/cel/common.CorrelatedObject`.

use serde_json::{Map, Value};

use crate::schema::{ListType, SchemaRef};

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

    /// The pair at an index; only items of lists of type map have an old self.
    pub(super) fn index(self, index: usize) -> Option<Self> {
        let ListType::Map(keys) = &self.schema.node().list_type else {
            return None;
        };
        let value = self.value.as_array()?.get(index)?;
        let wanted = value.as_object()?;
        let same = |old: &Map<String, Value>| keys.iter().all(|key| old.get(&**key) == wanted.get(&**key));
        let old = self
            .old
            .as_array()?
            .iter()
            .find(|old| old.as_object().is_some_and(same))?;
        Some(Correlated {
            schema: self.schema.items()?,
            value,
            old,
        })
    }
}
