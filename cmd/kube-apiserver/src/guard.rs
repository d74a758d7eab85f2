//! The end of a plane that is dropped rather than stopped: the same stop, in the background.

use std::sync::{Arc, LazyLock};

use generic_server::startup::Running;
use storage::DirectoryLock;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How many planes of this process are being stopped, because they were dropped or asked to.
static STOPPING: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

/// Follows how many planes are being stopped.
pub(crate) fn stopping() -> watch::Receiver<usize> {
    STOPPING.subscribe()
}

/// A running server, which is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    running: Running,
    /// Held until the stores are closed.
    data_lock: Option<Arc<DirectoryLock>>,
    /// The runtime of its tasks.
    runtime: Handle,
    /// It is being stopped.
    stopped: bool,
}

impl Guard {
    /// Called in the runtime that the server's tasks run in.
    pub(crate) fn new(running: Running, data_lock: Option<Arc<DirectoryLock>>) -> Self {
        Guard {
            running,
            data_lock,
            runtime: Handle::current(),
            stopped: false,
        }
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    /// Stops it in order. It goes on stopping when this is dropped.
    pub(crate) async fn stop(mut self) {
        // A runtime that ends meanwhile has ended all of its tasks.
        let _ = self.end().await;
    }

    fn end(&mut self) -> JoinHandle<()> {
        self.stopped = true;
        let (running, lock, counted) = (self.running.clone(), self.data_lock.take(), Counted::new());
        self.runtime.spawn(async move {
            running.stop().await;
            drop((lock, counted));
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.stopped {
            // No new connection from now on, whenever the task runs.
            self.running.chain().end_of_accepting().cancel();
            drop(self.end());
        }
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
