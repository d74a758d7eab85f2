//! The end of a plane that is dropped rather than stopped: the same stop, in the background.

use std::sync::{Arc, LazyLock};

use generic_server::startup::Running;
use storage::DirectoryLock;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How many planes of this process were dropped and are not at their end yet.
static STOPPING: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

/// Follows how many planes are being stopped since they were dropped.
pub(crate) fn stopping() -> watch::Receiver<usize> {
    STOPPING.subscribe()
}

/// A running server, which is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    running: Running,
    /// Held until the stores are closed.
    data_lock: Option<Arc<DirectoryLock>>,
    stopped: bool,
}

impl Guard {
    pub(crate) fn new(running: Running, data_lock: Option<Arc<DirectoryLock>>) -> Self {
        Guard {
            running,
            data_lock,
            stopped: false,
        }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Stops it in order.
    pub(crate) async fn stop(mut self) {
        self.stopped = true;
        self.running.clone().stop().await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without a runtime all of its tasks have ended.
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.stopped) else {
            return;
        };
        let (running, lock, counted) = (self.running.clone(), self.data_lock.take(), Counted::new());
        // No new connection from now on, whenever the task runs.
        running.chain().end_of_accepting().cancel();
        runtime.spawn(async move {
            running.stop().await;
            drop((lock, counted));
        });
    }
}

/// One of [`STOPPING`], also when the runtime ends before the stop.
struct Counted;

impl Counted {
    fn new() -> Self {
        STOPPING.send_modify(|count| *count += 1);
        Counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        STOPPING.send_modify(|count| *count -= 1);
    }
}
