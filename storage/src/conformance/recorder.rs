//! A sink that records its calls and lets tests wait for them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::DEADLINE;
use crate::{Event, Revision, StorageError, WatchSink};

/// A sink for tests.
#[derive(Debug, Default)]
pub struct Recorder {
    seen: Mutex<Seen>,
    changed: Notify,
}

/// The calls that a [`Recorder`] received.
#[derive(Debug, Default)]
pub struct Seen {
    /// All events.
    pub events: Vec<Event>,
    /// How many events each call had, with the revision it named.
    pub calls: Vec<(Revision, usize)>,
    /// The newest revision named.
    pub revision: Revision,
    /// Why the watch ended.
    pub closed: Option<String>,
}

impl Recorder {
    /// A new one.
    pub fn new() -> Arc<Recorder> {
        Arc::default()
    }

    /// Looks at the calls so far.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock())
    }

    /// Waits until `done` holds.
    #[track_caller]
    pub fn wait(&self, done: impl Fn(&Seen) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let waiting = async {
                loop {
                    let changed = self.changed.notified();
                    if done(&self.seen.lock()) {
                        return;
                    }
                    changed.await;
                }
            };
            if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
                let seen = self.seen.lock();
                panic!(
                    "{caller}: not in time; {} events, revision {}, closed: {:?}",
                    seen.events.len(),
                    seen.revision,
                    seen.closed
                );
            }
        }
    }

    /// Waits until the sink knows that it has seen everything up to `revision`.
    #[track_caller]
    pub fn reach(&self, revision: Revision) -> impl Future<Output = ()> {
        self.wait(move |seen| seen.revision >= revision)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
        self.changed.notify_waiters();
    }
}

impl WatchSink for Recorder {
    fn events(&self, revision: Revision, events: &[Event]) {
        self.change(|seen| {
            assert!(!events.is_empty(), "an empty call");
            assert!(
                revision >= seen.revision,
                "revision {revision} after {}",
                seen.revision
            );
            assert!(
                events.iter().all(|event| event.kv.mod_revision <= revision),
                "an event past its call's revision"
            );
            seen.events.extend_from_slice(events);
            seen.calls.push((revision, events.len()));
            seen.revision = revision;
        });
    }

    fn progress(&self, revision: Revision) {
        self.change(|seen| {
            assert!(
                revision >= seen.revision,
                "progress {revision} after {}",
                seen.revision
            );
            seen.revision = revision;
        });
    }

    fn closed(&self, error: StorageError) {
        self.change(|seen| {
            assert!(seen.closed.is_none(), "closed twice");
            seen.closed = Some(error.to_string());
        });
    }
}
