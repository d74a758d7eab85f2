//! The signals that end the process.

use std::io;

/// SIGTERM and SIGINT, listened to from [`Signals::new`] on: none that comes between two questions is lost.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Begins to listen; the default action, which ends the process at once, does not happen any more.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn new() -> io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Signals {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    /// Resolves at the next of them, with its name.
    pub async fn next(&mut self) -> &'static str {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
        #[cfg(not(unix))]
        {
            // Without a handler ctrl-c ends the process by itself.
            let _ = tokio::signal::ctrl_c().await;
            "an interrupt"
        }
    }
}
