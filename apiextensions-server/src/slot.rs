//! A place for something that is made on first use and dropped when it has not been used for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

/// Holds at most one value; readers never wait for each other.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    value: ArcSwapOption<T>,
    used: AtomicBool,
    /// Held while the value is made, so that it is made once.
    making: Mutex<()>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot {
            value: ArcSwapOption::empty(),
            used: AtomicBool::new(false),
            making: Mutex::new(()),
        }
    }
}

impl<T> Slot<T> {
    /// The value, made by `make` when it is not there. Errors are not kept.
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(value) = self.value.load_full() {
            self.used.store(true, Ordering::Relaxed);
            return Ok(value);
        }
        let _making = self.making.lock();
        if let Some(value) = self.value.load_full() {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        self.value.store(Some(value.clone()));
        self.used.store(true, Ordering::Relaxed);
        Ok(value)
    }

    /// The value, when it is there; this is no use of it.
    pub(crate) fn peek(&self) -> Option<Arc<T>> {
        self.value.load_full()
    }

    /// Drops the value unless it was used since the last call. Existing references stay valid.
    pub(crate) fn drop_idle(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.value.swap(None).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_dropped_when_idle() {
        let slot = Slot::default();
        let mut made = 0;
        for _ in 0..2 {
            let got: Result<Arc<u32>, ()> = slot.get_or_make(|| {
                made += 1;
                Ok(7)
            });
            assert_eq!(got.as_deref(), Ok(&7));
        }
        assert_eq!(made, 1);
        assert!(!slot.drop_idle(), "it was just used");
        assert!(slot.drop_idle());
        assert!(!slot.drop_idle(), "it is gone");
        let failed: Result<Arc<u32>, &str> = slot.get_or_make(|| Err("no"));
        assert_eq!(failed, Err("no"));
    }
}
