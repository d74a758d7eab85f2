//! Reports the first object of a resource that has no follower. One watch of each engine looks at keys alone: a resource without objects
//! has no cache, no task and no timer here, and an object that another replica has written is noticed too.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use generic_server::directory::Directory;
use machinery::GroupResource;
use parking_lot::Mutex;
use storage::{Event, EventKind, Revision, StorageError, Store, WatchHandle, WatchSink};
use tokio::sync::Notify;

/// The state of the watches.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    seen: Mutex<Seen>,
    /// Notified when there is something to take.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    /// The followed resources, with the revision of their newest write.
    followed: HashMap<GroupResource, Revision>,
    arrived: HashSet<GroupResource>,
    /// A watch has ended: arrivals may have been missed.
    ended: bool,
}

/// The changes since the last call.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Arrived {
    /// Resources that have objects now, and are not followed.
    pub(super) resources: HashSet<GroupResource>,
    /// The watches have to be restarted.
    pub(super) ended: bool,
}

impl Arrivals {
    /// Takes what has happened.
    pub(super) fn take(&self) -> Arrived {
        let mut seen = self.seen.lock();
        Arrived {
            resources: std::mem::take(&mut seen.arrived),
            ended: std::mem::take(&mut seen.ended),
        }
    }

    /// A resource is followed from now on.
    pub(super) fn join(&self, resource: &GroupResource) {
        let mut seen = self.seen.lock();
        seen.arrived.remove(resource);
        seen.followed.insert(resource.clone(), Revision(0));
    }

    /// A resource that was empty at a revision is followed no longer; refused when something has been written since.
    pub(super) fn leave(&self, resource: &GroupResource, empty_at: Revision) -> bool {
        let mut seen = self.seen.lock();
        let left = seen
            .followed
            .get(resource)
            .is_none_or(|newest| *newest <= empty_at);
        if left {
            seen.followed.remove(resource);
        }
        left
    }

    /// A resource is not served any more.
    pub(super) fn forget(&self, resource: &GroupResource) {
        let mut seen = self.seen.lock();
        seen.followed.remove(resource);
        seen.arrived.remove(resource);
    }

    /// Everything has to be looked at again.
    pub(super) fn begin_again(&self) {
        self.seen.lock().ended = true;
        self.changed.notify_one();
    }

    fn written(&self, directory: &Directory, ignored: &GroupResource, events: &[Event]) {
        let mut arrived = false;
        for event in events.iter().filter(|e| e.kind == EventKind::Put) {
            let Some(resource) = directory.of_key(&event.kv.key) else {
                continue;
            };
            let mut seen = self.seen.lock();
            match seen.followed.get_mut(&resource) {
                Some(newest) => *newest = event.kv.mod_revision,
                None if resource == *ignored => {}
                None => arrived |= seen.arrived.insert(resource),
            }
        }
        if arrived {
            self.changed.notify_one();
        }
    }

    /// Watches an engine from now on, below a prefix. Writes to `ignored` are of no interest.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub(super) async fn watch(
        self: &Arc<Self>,
        engine: &Arc<dyn Store>,
        prefix: &str,
        directory: &Arc<Directory>,
        ignored: &GroupResource,
    ) -> Result<WatchHandle, StorageError> {
        let sink = Arc::new(Sink {
            arrivals: self.clone(),
            directory: directory.clone(),
            ignored: ignored.clone(),
        });
        let now = engine.fresh().await?;
        engine.watch(&format!("{prefix}/"), now, sink).await
    }
}

struct Sink {
    arrivals: Arc<Arrivals>,
    directory: Arc<Directory>,
    ignored: GroupResource,
}

impl WatchSink for Sink {
    fn events(&self, _revision: Revision, events: &[Event]) {
        self.arrivals.written(&self.directory, &self.ignored, events);
    }

    fn progress(&self, _revision: Revision) {}

    fn closed(&self, _error: StorageError) {
        self.arrivals.begin_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_with_newer_writes_stays_followed() {
        let arrivals = Arrivals::default();
        let pods = GroupResource::new("", "pods");
        arrivals.join(&pods);
        arrivals.seen.lock().followed.insert(pods.clone(), Revision(5));
        assert!(!arrivals.leave(&pods, Revision(4)));
        assert!(arrivals.leave(&pods, Revision(5)));
        assert!(arrivals.leave(&pods, Revision(0)), "it has no follower");
        assert_eq!(arrivals.take(), Arrived::default());
    }
}
