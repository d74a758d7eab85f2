//! Where the writer hands events to watches.
//!
//! One lock orders publications and registrations, so that a watch's replay joins the live stream without a gap or a
//! repeat. Sinks are called under that lock: they return quickly and do not call the store.
//!
//! The cost of a publication depends on the changed keys and their watches, not on the number of all watches: watches
//! are found by their prefixes, and those without events get the store's revision only on request ([`HubGuard::notify_progress`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::{Event, Revision, StorageError, WatchSink};

/// A registered watch. Its handle owns it; the hub forgets it once the handle is gone.
pub(crate) struct Watcher {
    pub prefix: Box<str>,
    pub sink: Arc<dyn WatchSink>,
    /// The revision up to which the hub has notified the sink.
    notified: AtomicU64,
}

impl Watcher {
    pub(crate) fn new(prefix: &str, sink: Arc<dyn WatchSink>) -> Watcher {
        Watcher {
            prefix: prefix.into(),
            sink,
            notified: AtomicU64::new(0),
        }
    }
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
    by_prefix: HashMap<Box<str>, Vec<Weak<Watcher>>>,
    /// The lengths of prefixes: a key's prefixes are looked up length by length.
    lengths: BTreeSet<usize>,
    /// Registrations since those that are gone were last forgotten everywhere, and the prefixes that were left then.
    added: usize,
    left: usize,
    closed: bool,
}

/// Registrations, beside as many as prefixes were left, after which those that are gone are forgotten everywhere.
const SWEEP_AFTER: usize = 64;

impl Watchers {
    /// Forgets watches that are gone.
    fn sweep(&mut self) {
        self.by_prefix.retain(|_, list| {
            list.retain(|watcher| watcher.strong_count() > 0);
            !list.is_empty()
        });
        self.lengths = self.by_prefix.keys().map(|prefix| prefix.len()).collect();
        self.added = 0;
        self.left = self.by_prefix.len();
    }
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
            std::mem::take(&mut inner.by_prefix)
        };
        for watcher in watchers.values().flatten().filter_map(Weak::upgrade) {
            watcher.sink.closed(error());
        }
    }
}

impl HubGuard<'_> {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed
    }

    /// Registers a watch whose sink has received everything up to `revision`.
    pub(crate) fn add(&mut self, watcher: &Arc<Watcher>, revision: Revision) {
        watcher.notified.store(revision.0, Ordering::Relaxed);
        let inner = &mut *self.0;
        inner.added += 1;
        if inner.added > inner.left + SWEEP_AFTER {
            inner.sweep();
        }
        inner.lengths.insert(watcher.prefix.len());
        let list = inner.by_prefix.entry(watcher.prefix.clone()).or_default();
        list.push(Arc::downgrade(watcher));
    }

    /// Delivers changes of these keys to the sinks that watch them, in whole revisions up to `revision`.
    /// `event` builds the event of a changed key; it is called only for keys with a watch.
    pub(crate) fn publish(&mut self, revision: Revision, keys: &[Arc<str>], event: impl Fn(usize) -> Event) {
        let inner = &mut *self.0;
        // By prefix, the keys under it.
        let mut matches: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, key) in keys.iter().enumerate() {
            for length in &inner.lengths {
                let Some(prefix) = key.get(..*length) else {
                    continue;
                };
                if inner.by_prefix.contains_key(prefix) {
                    matches.entry(prefix).or_default().push(index);
                }
            }
        }
        let mut made: Vec<Option<Event>> = vec![None; keys.len()];
        for (prefix, indices) in matches {
            let Some(watchers) = inner.by_prefix.get_mut(prefix) else {
                continue;
            };
            let mut events = Vec::new();
            watchers.retain(|watcher| {
                let Some(watcher) = watcher.upgrade() else {
                    return false;
                };
                if events.is_empty() {
                    let make = |index: &usize| made[*index].get_or_insert_with(|| event(*index)).clone();
                    events = indices.iter().map(make).collect();
                }
                watcher.notified.store(revision.0, Ordering::Relaxed);
                watcher.sink.events(revision, &events);
                true
            });
        }
    }

    /// Notifies sinks that are behind of `revision`, the newest that was published.
    pub(crate) fn notify_progress(&self, revision: Revision) {
        for watcher in self.0.by_prefix.values().flatten().filter_map(Weak::upgrade) {
            if watcher.notified.swap(revision.0, Ordering::Relaxed) < revision.0 {
                watcher.sink.progress(revision);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Recorder;
    use crate::{EventKind, KeyValue};

    fn event(key: &Arc<str>, revision: Revision) -> Event {
        Event {
            kind: EventKind::Put,
            kv: KeyValue {
                damage: None,
                key: key.clone(),
                value: "x".into(),
                create_revision: revision,
                mod_revision: revision,
            },
            prev: None,
        }
    }

    #[test]
    fn watches_are_found_by_their_prefixes() {
        let hub = Hub::default();
        let prefixes = ["", "/", "/pods/", "/pods/a", "/pods/a/", "/p", "/nodes/", "/é"];
        let watches = prefixes.map(|prefix| {
            let seen = Recorder::new();
            let watcher = Arc::new(Watcher::new(prefix, seen.clone()));
            hub.lock().add(&watcher, Revision(1));
            (watcher, seen)
        });
        let keys = ["/pods/a/1", "/nodes/n", "/pods/b/1", "/ê", "/pods", "x"].map(Arc::from);
        hub.lock()
            .publish(Revision(2), &keys, |index| event(&keys[index], Revision(2)));
        for (watcher, seen) in &watches {
            let under = keys.iter().filter(|key| key.starts_with(&*watcher.prefix));
            let under: Vec<&Arc<str>> = under.collect();
            seen.look(|seen| {
                let keys: Vec<&Arc<str>> = seen.events.iter().map(|event| &event.kv.key).collect();
                assert_eq!(keys, under, "under {:?}", watcher.prefix);
            });
        }
        // Those without events are notified of the revision on request.
        watches[7].1.look(|seen| assert_eq!(seen.revision, Revision(0)));
        hub.lock().notify_progress(Revision(2));
        for (_, seen) in &watches {
            seen.look(|seen| assert!(seen.revision == Revision(2) && seen.calls.len() < 2));
        }
    }

    #[test]
    fn watches_that_are_gone_are_forgotten() {
        let hub = Hub::default();
        for n in 0..10_000 {
            let watcher = Arc::new(Watcher::new(&format!("/{n}/"), Recorder::new()));
            hub.lock().add(&watcher, Revision(1));
        }
        assert!(hub.0.lock().by_prefix.len() <= 2 * SWEEP_AFTER);
    }
}
