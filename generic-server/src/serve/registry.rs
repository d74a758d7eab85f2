//! Which connections there are, and which of them is closed when there are too many.
//!
//! Requests do not come by here: a connection's place in the order is looked at only when one has to be closed. The recorded
//! moment of a connection is never later than the moment since which it is idle, so the first one whose record is exact is the
//! one that is idle longest; those that are not are recorded again and pass behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::ConnectionLimits;
use crate::metrics::{Closed, ConnectionMetrics};

/// Connections whose records are looked at for one that is idle, before the new one is closed instead.
const LOOKED_AT: usize = 256;

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Registry {
    limits: ConnectionLimits,
    metrics: Arc<ConnectionMetrics>,
    epoch: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    open: usize,
    /// Those whose first request is awaited, in the order in which they came.
    waiting: BTreeMap<u64, Arc<Activity>>,
    /// Those that had one, by the recorded moment since which they are idle.
    served: BTreeMap<(u64, u64), Arc<Activity>>,
}

/// The state of a connection, for those that may close it.
#[derive(Debug)]
pub(super) struct Activity {
    id: u64,
    epoch: Instant,
    opened: u64,
    /// Requests that are being answered.
    running: AtomicUsize,
    /// Requests that have begun.
    begun: AtomicU64,
    /// Milliseconds since the epoch at which the last request ended.
    idle_since: AtomicU64,
    /// Under which moment `Inner::served` has it. Changes under the registry's lock alone.
    recorded: AtomicU64,
    /// Whether the registry gave its place away. Changes under the registry's lock alone.
    evicted: AtomicBool,
    /// Bytes read and written.
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
    /// Fires when the connection is to end once its requests are answered.
    pub(super) closing: CancellationToken,
}

/// A connection's place among all. It is given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) activity: Arc<Activity>,
    registry: Arc<Registry>,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Running(Arc<Activity>);

impl Registry {
    pub(super) fn new(limits: ConnectionLimits, metrics: Arc<ConnectionMetrics>) -> Arc<Self> {
        Arc::new(Registry {
            limits,
            metrics,
            epoch: Instant::now(),
            inner: Mutex::default(),
        })
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    pub(super) fn metrics(&self) -> &ConnectionMetrics {
        &self.metrics
    }

    /// Takes a new connection in; where there are too many, another makes room. `None` when none can.
    pub(super) fn admit(self: &Arc<Self>, closing: CancellationToken) -> Option<Place> {
        let now = milliseconds(self.epoch);
        let mut inner = self.inner.lock();
        let handshakes = self.limits.handshakes.min(self.limits.connections / 2).max(1);
        if inner.waiting.len() >= handshakes
            && let Some((_, longest)) = inner.waiting.pop_first()
        {
            self.evict(&mut inner, &longest, Closed::HandshakeEvicted);
        }
        if inner.open >= self.limits.connections && !self.make_room(&mut inner, now) {
            self.metrics.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        inner.next += 1;
        let activity = Arc::new(Activity {
            id: inner.next,
            epoch: self.epoch,
            opened: now,
            running: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            idle_since: AtomicU64::new(now),
            recorded: AtomicU64::new(now),
            evicted: AtomicBool::new(false),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            closing,
        });
        inner.open += 1;
        inner.waiting.insert(activity.id, activity.clone());
        drop(inner);
        self.metrics.accepted.fetch_add(1, Ordering::Relaxed);
        self.metrics.open.fetch_add(1, Ordering::Relaxed);
        Some(Place {
            activity,
            registry: self.clone(),
        })
    }

    /// Closes the connection that is idle longest, if one is: for when descriptors run out.
    pub(super) fn close_one(&self) {
        let now = milliseconds(self.epoch);
        self.make_room(&mut self.inner.lock(), now);
    }

    fn make_room(&self, inner: &mut Inner, now: u64) -> bool {
        for _ in 0..LOOKED_AT {
            let Some((&(since, id), activity)) = inner.served.first_key_value() else {
                break;
            };
            // A connection without any request counts from when it came.
            if inner
                .waiting
                .first_key_value()
                .is_some_and(|(_, first)| first.opened < since)
            {
                break;
            }
            let actual = match activity.running.load(Ordering::Acquire) {
                0 => activity.idle_since.load(Ordering::Acquire),
                _ => now.max(since + 1),
            };
            let Some(activity) = inner.served.remove(&(since, id)) else {
                break;
            };
            if actual <= since {
                self.evict(inner, &activity, Closed::Evicted);
                return true;
            }
            activity.recorded.store(actual, Ordering::Relaxed);
            inner.served.insert((actual, id), activity);
        }
        match inner.waiting.pop_first() {
            Some((_, longest)) => {
                self.evict(inner, &longest, Closed::Evicted);
                true
            }
            None => false,
        }
    }

    fn evict(&self, inner: &mut Inner, activity: &Activity, why: Closed) {
        inner.open -= 1;
        activity.evicted.store(true, Ordering::Relaxed);
        activity.closing.cancel();
        self.metrics.closed(why);
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize, usize) {
        let inner = self.inner.lock();
        (inner.open, inner.waiting.len(), inner.served.len())
    }
}

impl Place {
    /// For the requests of this connection.
    pub(super) fn requests(&self) -> Requests {
        Requests {
            activity: self.activity.clone(),
            registry: self.registry.clone(),
        }
    }
}

/// Counts the requests of a connection.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    activity: Arc<Activity>,
    registry: Arc<Registry>,
}

impl Requests {
    /// Counts a request as running until the guard is dropped.
    pub(super) fn begin(&self) -> Running {
        let activity = &self.activity;
        activity.running.fetch_add(1, Ordering::AcqRel);
        if activity.begun.fetch_add(1, Ordering::Relaxed) == 0 {
            let mut inner = self.registry.inner.lock();
            if inner.waiting.remove(&activity.id).is_some() {
                let recorded = activity.recorded.load(Ordering::Relaxed);
                inner.served.insert((recorded, activity.id), activity.clone());
            }
        }
        Running(activity.clone())
    }

    /// Takes the connection out of those that may be closed: it speaks another protocol from now on. It stays counted.
    pub(super) fn detach(&self) {
        forget(&mut self.registry.inner.lock(), &self.activity);
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.registry.limits
    }

    /// Counts that the server closes the connection.
    pub(super) fn closed(&self, why: Closed) {
        self.registry.metrics.closed(why);
    }
}

fn forget(inner: &mut Inner, activity: &Activity) {
    inner.waiting.remove(&activity.id);
    let recorded = activity.recorded.load(Ordering::Relaxed);
    inner.served.remove(&(recorded, activity.id));
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.registry.inner.lock();
        forget(&mut inner, &self.activity);
        if !self.activity.evicted.load(Ordering::Relaxed) {
            inner.open -= 1;
        }
        self.registry.metrics.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Before the count, so that a reader of zero reads the time of it too.
        self.0.touch();
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Activity {
    pub(super) fn is_busy(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Whether its place was given to another connection.
    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// How many requests have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Records that the connection was in use until now.
    pub(super) fn touch(&self) {
        self.idle_since.store(milliseconds(self.epoch), Ordering::Release);
    }

    /// When the connection was accepted.
    pub(super) fn opened(&self) -> Instant {
        self.epoch + Duration::from_millis(self.opened)
    }

    /// Since when it is idle, unless it is busy.
    pub(super) fn idle_since(&self) -> Instant {
        self.epoch + Duration::from_millis(self.idle_since.load(Ordering::Acquire))
    }
}

fn milliseconds(epoch: Instant) -> u64 {
    u64::try_from(epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
