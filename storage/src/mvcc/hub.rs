//! Where the writer hands events to watches.
//!
//! One lock orders publications and registrations, so that a watch's replay joins the live stream without a gap or a
//! repeat. Sinks are called under that lock, on the writer's thread: they return quickly and do not call the store.

use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::{Event, Revision, StorageError, WatchSink};

/// A registered watch. Its handle owns it; the hub forgets it once the handle is gone.
pub(crate) struct Watcher {
    pub prefix: String,
    pub sink: Arc<dyn WatchSink>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Hub(Mutex<Watchers>);

#[derive(Debug, Default)]
struct Watchers {
    list: Vec<Weak<Watcher>>,
    closed: bool,
}

pub(crate) struct HubGuard<'a>(MutexGuard<'a, Watchers>);

impl Hub {
    pub(crate) fn lock(&self) -> HubGuard<'_> {
        HubGuard(self.0.lock())
    }

    /// Ends every watch, and takes no more.
    pub(crate) fn close(&self, error: impl Fn() -> StorageError) {
        let watchers = {
            let mut inner = self.0.lock();
            inner.closed = true;
            std::mem::take(&mut inner.list)
        };
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            watcher.sink.closed(error());
        }
    }
}

impl HubGuard<'_> {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed
    }

    pub(crate) fn add(&mut self, watcher: &Arc<Watcher>) {
        self.0.list.push(Arc::downgrade(watcher));
    }

    /// Tells every sink about a group of whole revisions: those it watches, or that there was nothing for it.
    /// `event` builds the event of a changed key; it is called only for keys that somebody watches.
    pub(crate) fn publish(&mut self, revision: Revision, keys: &[Arc<str>], event: impl Fn(usize) -> Event) {
        let mut events: Vec<Option<Event>> = vec![None; keys.len()];
        let mut matching = Vec::new();
        self.0.list.retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else {
                return false;
            };
            matching.clear();
            for (index, key) in keys.iter().enumerate() {
                if key.starts_with(&*watcher.prefix) {
                    matching.push(events[index].get_or_insert_with(|| event(index)).clone());
                }
            }
            if matching.is_empty() {
                watcher.sink.progress(revision);
            } else {
                watcher.sink.events(revision, &matching);
            }
            true
        });
    }
}
