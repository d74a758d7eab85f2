//! The sample extension API server as a process: parse, start, say where, wait for a signal, stop in order.

use std::process::ExitCode;

use clap::Parser;
use sample_extension::{Extension, Options};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let extension = match Extension::start(Options::parse()).await {
        Ok(extension) => extension,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            return ExitCode::FAILURE;
        }
    };
    tracing::info!(address = %extension.address(), "ready");
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return ExitCode::FAILURE;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    extension.stop().await;
    ExitCode::SUCCESS
}
