//! The signals that end the process.

/// Resolves at SIGTERM or SIGINT.
pub async fn asked_to_end() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupt => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    // Without a handler for SIGTERM the default action ends the process; ctrl-c still ends it in order.
    let _ = interrupt.await;
}
