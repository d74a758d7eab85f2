//! The forms of one entry.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{FormCache, FormId};

/// What a form costs besides its bytes, its share of the list of forms included.
pub(super) const FORM_COST: usize = 192;

/// The place of an entry's forms. Takes two words as long as nobody has asked for one.
#[derive(Default)]
pub(crate) struct FormSlot(OnceLock<Arc<EntryForms>>);

/// A copy of an entry may be changed before it is shared: it begins without forms.
impl Clone for FormSlot {
    fn clone(&self) -> Self {
        FormSlot::default()
    }
}

impl fmt::Debug for FormSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Forms of Secrets are secret, too.
        f.write_str("FormSlot")
    }
}

/// The forms of one entry, once there are any.
pub(super) struct EntryForms {
    cache: Arc<FormCache>,
    /// When one of them was asked for last, in seconds of the cache.
    used: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    forms: Vec<(FormId, Bytes)>,
    /// It waits to be looked at.
    entered: bool,
}

impl fmt::Debug for EntryForms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntryForms")
    }
}

fn weight(bytes: &Bytes) -> usize {
    bytes.len() + FORM_COST
}

impl FormSlot {
    /// A form, if it is kept.
    pub(crate) fn get(&self, id: FormId) -> Option<Bytes> {
        let forms = self.0.get()?;
        let bytes = forms.find(id)?;
        forms.used.store(forms.cache.now(), Ordering::Relaxed);
        Some(bytes)
    }

    /// A form, kept if there is room.
    ///
    /// # Errors
    /// Those of `make`, which encodes it if it is not there.
    pub(crate) fn get_or_make<E>(
        &self,
        cache: &Arc<FormCache>,
        id: FormId,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        if let Some(bytes) = self.get(id) {
            return Ok(bytes);
        }
        // Without the spare capacity of the encoder, which would be kept too.
        let bytes = Bytes::from(make()?.into_boxed_slice());
        self.keep(cache, id, &bytes);
        Ok(bytes)
    }

    /// Lets go of all forms: the object has changed, and few will ask for an older state.
    pub(crate) fn clear(&self) {
        if let Some(forms) = self.0.get() {
            forms.clear();
        }
    }

    fn keep(&self, cache: &Arc<FormCache>, id: FormId, bytes: &Bytes) {
        if !cache.reserve(weight(bytes)) {
            return;
        }
        let forms = self.0.get_or_init(|| {
            Arc::new(EntryForms {
                cache: cache.clone(),
                used: AtomicU32::new(0),
                state: Mutex::default(),
            })
        });
        forms.used.store(cache.now(), Ordering::Relaxed);
        let mut state = forms.state.lock();
        if state.forms.iter().any(|(known, _)| *known == id) {
            // Another reader has made it meanwhile.
            cache.release(weight(bytes));
            return;
        }
        state.forms.reserve_exact(1);
        state.forms.push((id, bytes.clone()));
        let enters = !std::mem::replace(&mut state.entered, true);
        drop(state);
        if enters {
            cache.enter(forms);
        }
    }
}

impl EntryForms {
    fn find(&self, id: FormId) -> Option<Bytes> {
        let state = self.state.lock();
        let found = state.forms.iter().find(|(known, _)| *known == id);
        found.map(|(_, bytes)| bytes.clone())
    }

    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Lets go of all of them.
    fn clear(&self) {
        let gone = std::mem::take(&mut self.state.lock().forms);
        self.release(&gone);
    }

    /// The same, when the entry has been looked at; it is not looked at again before it has others.
    pub(super) fn leave(&self) {
        let gone = std::mem::take(&mut *self.state.lock());
        self.release(&gone.forms);
    }

    fn release(&self, gone: &[(FormId, Bytes)]) {
        self.cache
            .release(gone.iter().map(|(_, bytes)| weight(bytes)).sum());
    }
}

impl Drop for EntryForms {
    fn drop(&mut self) {
        self.clear();
    }
}
