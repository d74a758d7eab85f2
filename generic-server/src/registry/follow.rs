//! Keeping what is made of a resource's objects in step with them: indexes and compiled configuration that requests read.
//!
//! Requests read a [`Synced`] value: there is nothing to read before the objects have been read once, so that nothing is
//! decided on a list that is empty because it was never read. A store that cannot be read, or that holds an object that cannot be
//! decoded, leaves the last state in place, as an upstream informer does.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::watch;

use super::ObjectStore;
use super::cache::Snapshot;
use super::reflector::{Event, Reflector};

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
        // Whether it came in time shows in the state.
        let _ = tokio::time::timeout(patience, synced.wait_for(|synced| *synced)).await;
        self.get()
    }
}

/// Calls `apply` with everything there is, and again after every change, for ever. Changes that come together are one call. A
/// state with objects that cannot be decoded is not applied: it is logged, and the one before stays until they can be or are gone.
pub async fn follow(store: Arc<ObjectStore>, mut apply: impl FnMut(&Arc<Snapshot>) + Send) {
    let resource = store.config().resource.clone();
    let mut logged: Option<Arc<str>> = None;
    // Gives whether the snapshot was whole.
    let mut take = |snapshot: &Arc<Snapshot>| {
        let Some(key) = snapshot.unreadable.keys().next() else {
            logged = None;
            apply(snapshot);
            return true;
        };
        if logged.as_ref() != Some(key) {
            tracing::error!(%resource, key = &**key, "an object cannot be decoded; the state before it stays in force");
            logged = Some(key.clone());
        }
        false
    };
    let mut reflector = Reflector::new(store.clone());
    let mut changes = Vec::new();
    let mut whole = true;
    loop {
        // A key that was away may be back without any change: decoding is retried.
        let patience = if whole { Duration::MAX } else { DECODE_PAUSE };
        let snapshot = match tokio::time::timeout(patience, reflector.next(&mut changes)).await {
            Ok(Event::Listed(snapshot)) => Some(snapshot),
            Ok(Event::Changed) => reflector.newest(),
            Ok(Event::Failed(error)) => {
                tracing::warn!(%resource, %error, "cannot list; retrying");
                None
            }
            Err(_) => {
                if let Some(snapshot) = reflector.newest() {
                    let unreadable: Vec<_> = snapshot.unreadable.values().cloned().collect();
                    if let Err(error) = store.unreadable_in_list(&unreadable).await {
                        tracing::warn!(%resource, %error, "cannot read; retrying");
                    }
                }
                reflector.newest()
            }
        };
        changes.clear();
        if let Some(snapshot) = snapshot {
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
