//! Closing an engine with a bounded wait.

use std::sync::mpsc;
use std::time::Duration;

use super::kv::{Kv, guarded};

/// How long an engine that works may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one may take that has failed: sled tries for ever to write out what there is no room for.
const CLOSE_TIMEOUT_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Closes an engine, in a thread of its own because the time that takes is unknown. An engine that is not closed in time
/// ends with the process; every acknowledged batch is durable already. False when it was not closed.
pub(super) fn close_kv(kv: Box<dyn Kv>, healthy: bool) -> bool {
    if !kv.on_disk() {
        return true;
    }
    let name = kv.name();
    let timeout = if healthy {
        CLOSE_TIMEOUT
    } else {
        CLOSE_TIMEOUT_AFTER_FAILURE
    };
    let (done, closed) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("storage-close".into())
        .spawn(move || {
            let result = guarded(name, "closing", || {
                drop(kv);
                Ok(())
            });
            // The receiver is gone after the timeout.
            let _ = done.send(result);
        });
    if let Err(error) = thread {
        // The engine was closed with the thread's closure.
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the store was closed in place"
        );
        return true;
    }
    match closed.recv_timeout(timeout) {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the store cannot be closed"
            );
            false
        }
        Err(_) => {
            tracing::error!(
                engine = name,
                "the store does not close in time; the shutdown goes on without it"
            );
            false
        }
    }
}
