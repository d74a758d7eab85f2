//! Spawning tasks that have an owner, a name in the log and an end.
//!
//! Everything that runs in the background belongs to a [`Tasks`]; its owner can stop all of them and wait.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A group of tasks that end together. Clones are the same group.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task until it is done or the group is stopped: then it is dropped where it waits, so it must be cancel-safe.
    /// A task that wants to end in its own way takes [`Tasks::stopping`] and goes through [`Tasks::spawn_to_end`].
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.spawn_to_end(name, async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        })
    }

    /// Runs a task to its own end; the group's stop waits for it.
    pub fn spawn_to_end<F>(&self, name: &'static str, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let span = tracing::debug_span!("task", task.name = name);
        self.tracker.spawn(task.instrument(span))
    }

    /// Fires when the group is to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// How many tasks are running.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Asks all tasks to stop and waits for them, no longer than `limit`. Says whether all ended.
    pub async fn stop(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }
}
