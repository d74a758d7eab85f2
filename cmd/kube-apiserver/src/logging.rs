//! Structured logs on standard error.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter that `-v` asks for: a number as upstream's, or directives of which each ends in a level.
///
/// # Errors
/// When a directive has no level, which would be taken for the name of a module that logs nothing.
pub(crate) fn filter(v: &str) -> Result<EnvFilter, String> {
    let directives = match v.parse::<u8>() {
        Ok(0) => "warn",
        Ok(1..=3) => "info",
        Ok(4..=5) => "debug,h2=info,hyper=info,rustls=info,sled=info",
        Ok(_) => "trace,h2=info,hyper=info,rustls=info,sled=info",
        Err(_) => v,
    };
    let level = |directive: &str| {
        directive
            .rsplit('=')
            .next()
            .is_some_and(|text| text.parse::<LevelFilter>().is_ok())
    };
    match EnvFilter::try_new(directives) {
        Ok(filter) if directives.split(',').all(level) => Ok(filter),
        _ => Err(format!(
            "-v {v}: it is a number from 0 to 10, or levels such as `info` or `debug,hyper=warn`"
        )),
    }
}

/// Installs a subscriber with the filter of `-v` and this format. Only a process does this: a library user has its own.
///
/// # Errors
/// When `-v` is invalid, or there is a subscriber already.
pub fn init(v: &str, format: LogFormat) -> Result<(), String> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(v)?)
        .with_writer(std::io::stderr)
        // It would say so with `eprintln!`, which panics when the stream is closed.
        .log_internal_errors(false);
    let done = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
    done.map_err(|error| format!("cannot start logging: {error}"))
}
