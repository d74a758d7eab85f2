//! A place for something that is made on first use and dropped when it has not been used for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::Mutex;

/// Holds at most one value; readers never wait for each other.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    value: ArcSwapOption<T>,
    used: AtomicBool,
    /// Held while the value is made, so that it is made once. A request that goes away leaves it to the next.
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
    pub(crate) async fn get_or_make<E>(&self, make: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, E> {
        if let Some(value) = self.value.load_full() {
            self.used.store(true, Ordering::Relaxed);
            return Ok(value);
        }
        let _making = self.making.lock().await;
        if let Some(value) = self.value.load_full() {
            return Ok(value);
        }
        let value = Arc::new(make.await?);
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

    #[tokio::test]
    async fn made_once_and_dropped_when_idle() {
        let (slot, mut made) = (Slot::default(), 0);
        for _ in 0..2 {
            let make = async {
                made += 1;
                Ok::<u32, ()>(7)
            };
            assert_eq!(slot.get_or_make(make).await.as_deref(), Ok(&7));
        }
        assert_eq!(made, 1);
        assert!(!slot.drop_idle(), "it was just used");
        assert!(slot.drop_idle());
        assert!(!slot.drop_idle(), "it is gone");
        let failed: Result<Arc<u32>, &str> = slot.get_or_make(async { Err("no") }).await;
        assert_eq!(failed, Err("no"));
    }

    #[tokio::test]
    async fn others_wait_for_the_one_that_makes_it() {
        let slot = Slot::default();
        let mut first = Box::pin(slot.get_or_make(async {
            std::future::pending::<()>().await;
            Ok::<u32, ()>(1)
        }));
        let mut second = Box::pin(slot.get_or_make(async { Ok::<u32, ()>(2) }));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        // A request whose time is over goes away, and the next makes the value.
        drop(first);
        assert_eq!(second.await.as_deref(), Ok(&2));
    }
}
