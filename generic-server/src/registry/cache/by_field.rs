//! Objects by the value of the one field that upstream indexes, too: kubelets list and watch pods by `spec.nodeName`, and
//! must not pay for the pods of all other nodes.

use std::ops::Bound;
use std::sync::Arc;

use super::Entry;
use crate::registry::config::StoreConfig;

/// The indexed field, in the kinds that have it.
const INDEXED: &str = "spec.nodeName";

/// Keys by field value. Cheap to clone, as the snapshot it belongs to.
#[derive(Debug, Clone, Default)]
pub struct ByField {
    /// The field's place in the store's list; kinds without it have no index.
    field: Option<usize>,
    /// Value and key of objects whose value is not empty.
    keys: imbl::OrdSet<(Arc<str>, Arc<str>)>,
}

impl ByField {
    /// The empty index of a store.
    pub(super) fn of(config: &StoreConfig) -> Self {
        ByField {
            field: config.fields.iter().position(|field| field.name == INDEXED),
            keys: imbl::OrdSet::new(),
        }
    }

    /// Takes note of an object's change from one state to the next; `None` is absence.
    pub(super) fn change(&mut self, before: Option<&Entry>, after: Option<&Entry>) {
        let Some(field) = self.field else { return };
        let old = before.map(|entry| entry.field(field)).unwrap_or_default();
        let new = after.map(|entry| entry.field(field)).unwrap_or_default();
        if old == new {
            return;
        }
        if let (Some(before), false) = (before, old.is_empty()) {
            self.keys.remove(&(old.into(), before.key.clone()));
        }
        if let (Some(after), false) = (after, new.is_empty()) {
            self.keys.insert((new.into(), after.key.clone()));
        }
    }

    /// Whether this field's values are indexed.
    pub(crate) fn covers(&self, field: usize) -> bool {
        self.field == Some(field)
    }

    /// Keys of objects with this value (which is not empty), from `first` up to and without `end`, in order.
    pub(crate) fn keys(
        &self,
        value: &str,
        first: &str,
        end: &str,
    ) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        let bound = |key: &str| (Arc::<str>::from(value), Arc::<str>::from(key));
        let range = (Bound::Included(bound(first)), Bound::Excluded(bound(end)));
        self.keys.range(range).map(|(_, key)| key)
    }
}
