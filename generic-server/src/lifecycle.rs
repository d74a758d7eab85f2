//! The life of a server as a timeline: starting, ready, shutting down, gone.
//!
//! Shutting down goes: asked to end -> `/readyz` fails -> a delay for load balancers -> no new connections or requests ->
//! requests in flight end -> watches end -> storage closes. The signals are read by the chain, the health endpoints and the
//! listener; one [`Lifecycle::shut_down`] drives them. Mirrors upstream's `lifecycleSignals`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How long each step of shutting down may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeline {
    /// Served as before after `/readyz` began to fail (`--shutdown-delay-duration`).
    pub delay: Duration,
    /// For requests in flight (upstream: the request timeout).
    pub requests: Duration,
    /// For watches to end by themselves (`--shutdown-watch-termination-grace-period`).
    pub watches: Duration,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline {
            delay: Duration::ZERO,
            requests: Duration::from_secs(60),
            watches: Duration::ZERO,
        }
    }
}

/// The signals. Clones are the same server's.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    ready: CancellationToken,
    asked: CancellationToken,
    not_accepting: CancellationToken,
    end_watches: CancellationToken,
    /// Requests being served that a shutdown waits for.
    requests: Arc<Count>,
    /// Watches and the like.
    watches: Arc<Count>,
}

/// Requests of a sort that are being served.
#[derive(Debug, Default)]
struct Count {
    running: AtomicUsize,
    idle: Notify,
}

/// Counts a request as being served until dropped.
#[derive(Debug)]
pub struct Running(Arc<Count>);

impl Count {
    fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        Running(self.clone())
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    async fn idle(&self) {
        loop {
            let woken = self.idle.notified();
            tokio::pin!(woken);
            // Registered before the count is read, so that a last request ending in between wakes us.
            woken.as_mut().enable();
            if self.running() == 0 {
                return;
            }
            woken.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Lifecycle {
    /// A server that has just been made.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the server has been ready once.
    pub fn set_ready(&self) {
        self.0.ready.cancel();
    }

    /// Whether it has been ready.
    pub fn has_been_ready(&self) -> bool {
        self.0.ready.is_cancelled()
    }

    /// Waits until it has been ready.
    pub async fn ready(&self) {
        self.0.ready.cancelled().await;
    }

    /// Whether a stop was requested.
    pub fn is_stop_requested(&self) -> bool {
        self.0.asked.is_cancelled()
    }

    /// Fires when a stop is requested.
    pub fn stop_requested(&self) -> &CancellationToken {
        &self.0.asked
    }

    /// Fires when no more connections and requests are taken.
    pub fn not_accepting(&self) -> &CancellationToken {
        &self.0.not_accepting
    }

    /// Fires when watches are to end.
    pub fn end_watches(&self) -> &CancellationToken {
        &self.0.end_watches
    }

    /// Counts a request that a shutdown waits for.
    pub fn begin_request(&self) -> Running {
        self.0.requests.begin()
    }

    /// Counts a watch or the like, for which a shutdown waits a time of its own.
    pub fn begin_watch(&self) -> Running {
        self.0.watches.begin()
    }

    /// How many requests are being served, watches and the like not counted.
    pub fn running(&self) -> usize {
        self.0.requests.running()
    }

    /// Waits until no watch or the like is left.
    pub async fn watches_ended(&self) {
        self.0.watches.idle().await;
    }

    /// Requests that the server stops. [`Lifecycle::shut_down`] does the rest.
    pub fn request_stop(&self) {
        self.0.asked.cancel();
    }

    /// Goes through the timeline up to and including the end of watches; the caller then drains connections and closes storage.
    pub async fn shut_down(&self, timeline: Timeline) {
        self.request_stop();
        tokio::time::sleep(timeline.delay).await;
        self.0.not_accepting.cancel();
        if tokio::time::timeout(timeline.requests, self.0.requests.idle())
            .await
            .is_err()
        {
            tracing::warn!(
                requests.running = self.running(),
                "requests were still running at the end of their time"
            );
        }
        if !timeline.watches.is_zero() {
            // Those that are left are ended below.
            let _ = tokio::time::timeout(timeline.watches, self.0.watches.idle()).await;
        }
        self.0.end_watches.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_for_requests_then_ends_watches() {
        let life = Lifecycle::new();
        let request = life.begin_request();
        let other = life.clone();
        let ending = tokio::spawn(async move { other.shut_down(Timeline::default()).await });
        life.not_accepting().cancelled().await;
        assert!(life.is_stop_requested());
        assert!(!life.end_watches().is_cancelled());
        drop(request);
        ending.await.unwrap();
        assert!(life.end_watches().is_cancelled());
        assert_eq!(life.running(), 0);
    }
}
