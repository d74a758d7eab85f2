//! Which form of whose objects: identities that are never used twice.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// What decides how objects look: a resource at one version, with its schema, converter and columns.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// A form of an owner's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FormId(pub(super) u64);

impl FormId {
    /// The number, for what is kept elsewhere by form.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The identities that are in use. A weak reference keeps the owner's address from being used by another.
#[derive(Debug, Default)]
pub(super) struct Ids {
    known: HashMap<(usize, u16), (Weak<dyn Any + Send + Sync>, FormId)>,
    last: u64,
    /// The number of identities from which those of owners that have gone are let go of.
    sweep_at: usize,
}

impl Ids {
    pub(super) fn get(&mut self, owner: &Owner, view: u16) -> FormId {
        let at = (Arc::as_ptr(owner).cast::<()>().addr(), view);
        if let Some((_, id)) = self.known.get(&at) {
            return *id;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, (owner, _)| owner.strong_count() > 0);
            self.sweep_at = 64.max(2 * self.known.len());
        }
        self.last += 1;
        let id = FormId(self.last);
        self.known.insert(at, (Arc::downgrade(owner), id));
        id
    }
}

#[cfg(test)]
impl Ids {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
