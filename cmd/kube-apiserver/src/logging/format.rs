//! The forms of a log line: klog's text, and the JSON of upstream's `component-base/logs/json`.

use machinery::time::Timestamp;
use serde_json::Value;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::{LogFormat, OPERATOR};

/// Writes events as lines.
#[derive(Debug)]
pub(super) struct Form {
    pub(super) format: LogFormat,
    pub(super) process: u32,
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let now = Timestamp::now();
        let line = match self.format {
            LogFormat::Text => text(event.metadata(), &said, now, self.process),
            LogFormat::Json => json(event.metadata(), &said, now),
        };
        writeln!(writer, "{line}")
    }
}

/// The message of an event and its other fields, in their order.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Said {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            // Upstream's key of an error.
            ("error", value) => self.fields.push(("err", value)),
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            // Writing into a string does not fail.
            let _ = write!(text, ": {cause}");
            source = cause.source();
        }
        self.add(field, text.into());
    }
}

/// The file and line, as klog names them: without folders.
fn place<'a>(metadata: &Metadata<'a>, folders: usize) -> (&'a str, u32) {
    let file = metadata.file().unwrap_or("???");
    let from = file.rmatch_indices('/').nth(folders).map_or(0, |(at, _)| at + 1);
    (&file[from..], metadata.line().unwrap_or(1))
}

/// `I1124 03:51:09.123456   12345 file.rs:12] "message" key="value"`, in UTC.
fn text(metadata: &Metadata<'_>, said: &Said, now: Timestamp, process: u32) -> String {
    let severity = match *metadata.level() {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    // 2026-11-24T03:51:09.123456Z
    let at = now.to_rfc3339_micro();
    let part = |range| at.get(range).unwrap_or_default();
    let (month, day, time) = (part(5..7), part(8..10), part(11..26));
    let (file, line) = place(metadata, 0);
    let mut out = format!(
        "{severity}{month}{day} {time} {process:7} {file}:{line}] {}",
        machinery::go::quote(&said.message)
    );
    for (name, value) in &said.fields {
        let _ = match value {
            Value::String(text) => write!(out, " {name}={}", machinery::go::quote(text)),
            other => write!(out, " {name}={other}"),
        };
    }
    out
}

/// `{"ts":1763956269123.456,"caller":"src/file.rs:12","msg":"message","v":0,"key":"value"}`: milliseconds, and `v` for all but errors.
fn json(metadata: &Metadata<'_>, said: &Said, now: Timestamp) -> String {
    let nanos = now.unix_nanos();
    let (file, line) = place(metadata, 1);
    let mut out = format!(
        "{{\"ts\":{}.{:06},\"caller\":{},\"msg\":{}",
        nanos / 1_000_000,
        nanos % 1_000_000,
        Value::String(format!("{file}:{line}")),
        Value::String(said.message.clone())
    );
    if let Some(v) = verbosity(metadata) {
        let _ = write!(out, ",\"v\":{v}");
    }
    for (name, value) in &said.fields {
        let _ = write!(out, ",{}:{value}", Value::String((*name).to_string()));
    }
    out.push('}');
    out
}

/// The least `-v` that shows an event. Errors have none.
fn verbosity(metadata: &Metadata<'_>) -> Option<u8> {
    match *metadata.level() {
        Level::ERROR => None,
        Level::WARN => Some(0),
        _ if metadata.target() == OPERATOR => Some(0),
        Level::INFO => Some(1),
        Level::DEBUG => Some(4),
        Level::TRACE => Some(6),
    }
}

#[cfg(test)]
mod tests;
