//! Structured logs on standard error.

use tracing_subscriber::EnvFilter;

use crate::Options;

/// Installs the subscriber that the options ask for. Only a process does this: a library user has its own.
pub fn init(options: &Options) -> Result<(), String> {
    let filter = match options.v.parse::<u8>() {
        Ok(0) => "warn".to_string(),
        Ok(1..=3) => "info".to_string(),
        Ok(4..=5) => "debug,h2=info,hyper=info,rustls=info,sled=info".to_string(),
        Ok(_) => "trace,h2=info,hyper=info,rustls=info,sled=info".to_string(),
        Err(_) => options.v.clone(),
    };
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("-v {}: {error}", options.v))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would say so with `eprintln!`, which panics when the stream is closed.
        .log_internal_errors(false);
    let done = if options.logging_format == "json" {
        builder.json().try_init()
    } else {
        builder.with_ansi(false).try_init()
    };
    done.map_err(|error| format!("cannot start logging: {error}"))
}
