//! Keeping what is made of a resource's objects in step with them: indexes and compiled configuration that requests read.
//!
//! What requests read is a [`Synced`] value: there is nothing to read before the objects have been read once, so that nothing is
//! decided on a list that is empty because nobody has looked. A store that cannot be read, or that holds an object that cannot be
//! decoded, leaves the last state in place, as an upstream informer does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::watch;

use super::ObjectStore;
use super::cache::{Interest, Snapshot};

/// How long to wait before a store that could not be read is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long to wait before objects that cannot be decoded are read again.
const DECODE_PAUSE: Duration = Duration::from_secs(10);

/// State made of a resource's objects, absent until they have been read for the first time.
///
/// ```
/// # use generic_server::registry::Synced;
/// let hooks: Synced<Vec<&str>> = Synced::default();
/// assert!(hooks.get().is_none());
/// hooks.set(vec![]);
/// assert!(hooks.get().is_some_and(|hooks| hooks.is_empty()));
/// ```
#[derive(Debug)]
pub struct Synced<T> {
    state: ArcSwapOption<T>,
    synced: watch::Sender<bool>,
}

impl<T> Default for Synced<T> {
    fn default() -> Self {
        Synced {
            state: ArcSwapOption::empty(),
            synced: watch::Sender::new(false),
        }
    }
}

impl<T> Synced<T> {
    /// Replaces the state and gives the new one. From the first call on there is always one.
    pub fn set(&self, state: T) -> Arc<T> {
        let state = Arc::new(state);
        self.state.store(Some(state.clone()));
        self.synced
            .send_if_modified(|synced| !std::mem::replace(synced, true));
        state
    }

    /// The newest state, `None` while nothing has been read.
    pub fn get(&self) -> Option<Arc<T>> {
        self.state.load_full()
    }

    /// The same for a short look, without counting a reference.
    pub fn peek(&self) -> Guard<Option<Arc<T>>> {
        self.state.load()
    }

    /// Whether the objects have been read once.
    pub fn is_synced(&self) -> bool {
        self.state.load().is_some()
    }

    /// The newest state; waits for the first one, no longer than `patience`.
    pub async fn wait(&self, patience: Duration) -> Option<Arc<T>> {
        if let Some(state) = self.get() {
            return Some(state);
        }
        let mut synced = self.synced.subscribe();
        // Late or not, the state tells.
        let _ = tokio::time::timeout(patience, synced.wait_for(|synced| *synced)).await;
        self.get()
    }
}

/// Calls `apply` with everything there is, and again after every change, for ever. Changes that come together are one call. A
/// state with objects that cannot be decoded is not applied: it is logged, and the one before stays until they can be or are gone.
pub async fn follow(store: Arc<ObjectStore>, mut apply: impl FnMut(&Arc<Snapshot>) + Send) {
    let resource = &store.config().resource;
    let mut told: Option<Arc<str>> = None;
    // Whether the snapshot was whole.
    let mut take = |snapshot: &Arc<Snapshot>| {
        let Some(key) = snapshot.unreadable.keys().next() else {
            told = None;
            apply(snapshot);
            return true;
        };
        if told.as_ref() != Some(key) {
            tracing::error!(%resource, key = &**key, "an object cannot be decoded; the state before it stays in force");
            told = Some(key.clone());
        }
        false
    };
    loop {
        let cache = match store.cache().await {
            Ok(cache) => cache,
            Err(error) => {
                tracing::warn!(%resource, %error, "cannot list; retrying");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let mut snapshot = cache.snapshot();
        let mut whole = take(&snapshot);
        // Too far behind already: everything anew.
        let Ok(mut feed) = cache.feed(snapshot.revision, Interest::All).await else {
            continue;
        };
        let mut changes = Vec::new();
        loop {
            // A key that was away may be back without any change: what could not be decoded is tried again.
            let patience = if whole { Duration::MAX } else { DECODE_PAUSE };
            match tokio::time::timeout(patience, feed.next(&mut changes)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    let unreadable: Vec<_> = snapshot.unreadable.values().cloned().collect();
                    if let Err(error) = store.unreadable_in_list(&unreadable).await {
                        tracing::warn!(%resource, %error, "cannot read; retrying");
                    }
                }
            }
            changes.clear();
            snapshot = cache.snapshot();
            whole = take(&snapshot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn there_is_no_state_before_the_first() {
        let synced: Arc<Synced<Vec<u8>>> = Arc::default();
        assert!(!synced.is_synced() && synced.get().is_none() && synced.peek().is_none());
        assert!(synced.wait(Duration::from_secs(10)).await.is_none());

        let waiting = tokio::spawn({
            let synced = synced.clone();
            async move { synced.wait(Duration::from_secs(10)).await }
        });
        tokio::task::yield_now().await;
        synced.set(Vec::new());
        assert_eq!(waiting.await.unwrap().as_deref(), Some(&Vec::new()));
        synced.set(vec![1]);
        assert_eq!(synced.get().as_deref(), Some(&vec![1]));
        assert!(synced.is_synced());
    }
}
