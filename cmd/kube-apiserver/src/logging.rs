//! Structured logs on standard error.

mod format;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

use crate::progress;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// The target of events that an operator sees at every verbosity.
pub(crate) const OPERATOR: &str = "operator";

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Upstream's text, for people.
    Text,
    /// One JSON object a line, with upstream's keys.
    Json,
}

/// The filter that `-v` asks for: a number as upstream's, or directives of which each ends in a level.
///
/// # Errors
/// When a directive has no level, which would be taken for the name of a module that logs nothing.
pub(crate) fn filter(v: &str) -> Result<EnvFilter, String> {
    let directives = match v.parse::<u8>() {
        Ok(0) => "warn,operator=info",
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
            "-v {v}: it is a number such as 2, or levels such as `info` or `debug,hyper=warn`"
        )),
    }
}

type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;
/// Changes the filter of the process's own subscriber.
static SET_FILTER: OnceLock<SetFilter> = OnceLock::new();

/// Whether the log is the server's own, so that its verbosity can be changed.
pub(crate) fn is_adjustable() -> bool {
    SET_FILTER.get().is_some()
}

/// Sets the verbosity that `-v` with this number has, from now on.
///
/// # Errors
/// When the log is not the server's own.
pub(crate) fn set_verbosity(v: u8) -> Result<(), String> {
    let set = SET_FILTER.get().ok_or("the log is not the server's own")?;
    set(filter(&v.to_string())?)
}

/// Installs a subscriber with the filter of `-v` and this format. Only a process does this: a library user has its own.
///
/// # Errors
/// When `-v` is invalid, or there is a subscriber already.
pub fn init(v: &str, format: LogFormat) -> Result<(), String> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(v)?)
        .with_writer(|| Lines(io::stderr()))
        // It would say so with `eprintln!`, which panics when the stream is closed.
        .log_internal_errors(false)
        .event_format(format::Form {
            format,
            process: std::process::id(),
        })
        .with_filter_reloading();
    let handle = builder.reload_handle();
    let done = builder.try_init();
    let set: SetFilter = Box::new(move |filter| reloaded(handle.reload(filter)));
    done.map_err(|error| format!("cannot start logging: {error}"))?;
    // The first subscriber of a process is its only one.
    let _ = SET_FILTER.set(set);
    Ok(())
}

fn reloaded(done: Result<(), tracing_subscriber::reload::Error>) -> Result<(), String> {
    done.map_err(|error| format!("the verbosity cannot be changed: {error}"))
}

/// Writes each event as one line. Names, paths and errors come from clients and other servers: a line break in them would begin a line that
/// looks like one of the server's own.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    /// Takes a whole event, its line break included, as the subscriber hands it over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        progress::give_way(&mut self.0)?;
        self.0.write_all(&escaped(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An event whose control characters are escaped, but for tabs and the line break at its end.
fn escaped(event: &[u8]) -> Cow<'_, [u8]> {
    let (text, end) = match event.strip_suffix(b"\n") {
        Some(text) => (text, "\n"),
        None => (event, ""),
    };
    let is_plain = |c: char| !c.is_control() || c == '\t';
    let text = String::from_utf8_lossy(text);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(event);
    }
    let mut line = String::with_capacity(event.len() + 16);
    for c in text.chars() {
        match is_plain(c) {
            true => line.push(c),
            false => line.extend(c.escape_default()),
        }
    }
    line.push_str(end);
    Cow::Owned(line.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        #[track_caller]
        fn check(event: &str, expected: &str) {
            let mut lines = Lines(Vec::new());
            lines.write_all(event.as_bytes()).expect("it is written");
            assert_eq!(String::from_utf8_lossy(&lines.0), expected);
        }
        check("", "");
        check("WARN a: b\tc \u{e9}\n", "WARN a: b\tc \u{e9}\n");
        check("WARN a: b\nERROR c\n", "WARN a: b\\nERROR c\n");
        check("a\r\u{1b}[2Jb\u{85}\n", "a\\r\\u{1b}[2Jb\\u{85}\n");
        check("no end", "no end");
    }
}
