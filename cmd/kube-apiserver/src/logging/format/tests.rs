use std::io;
use std::sync::mpsc;

use tracing_subscriber::fmt::MakeWriter;

use super::*;

#[derive(Debug, Clone)]
struct Written(mpsc::Sender<Vec<u8>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).expect("the test reads it");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Written {
    type Writer = Written;

    fn make_writer(&'a self) -> Written {
        self.clone()
    }
}

/// The lines that some events make.
fn lines(format: LogFormat, events: impl FnOnce()) -> Vec<String> {
    let (sender, written) = mpsc::channel();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(Written(sender))
        .event_format(Form {
            format,
            process: 12345,
        })
        .finish();
    tracing::subscriber::with_default(subscriber, events);
    let bytes: Vec<u8> = written.try_iter().flatten().collect();
    String::from_utf8(bytes)
        .expect("text")
        .lines()
        .map(String::from)
        .collect()
}

#[test]
fn text_lines_are_klogs() {
    let events = || {
        tracing::info!(count = 3, name = "a \"b\"\nc", on = true, "it began");
        tracing::warn!(error = %"no way", "it goes on");
        tracing::error!("it ended");
        tracing::debug!("a detail");
    };
    let lines = lines(LogFormat::Text, events);
    let ends = [
        r#"] "it began" count=3 name="a \"b\"\nc" on=true"#,
        r#"] "it goes on" err="no way""#,
        r#"] "it ended""#,
        r#"] "a detail""#,
    ];
    assert_eq!(lines.len(), ends.len(), "{lines:?}");
    for ((line, end), severity) in lines.iter().zip(ends).zip(["I", "W", "E", "I"]) {
        assert!(line.starts_with(severity) && line.ends_with(end), "{line}");
        // I1124 03:51:09.123456   12345 tests.rs:12]
        let head: Vec<&str> = line[1..].split_whitespace().take(4).collect();
        assert!(
            head[0].len() == 4 && head[0].bytes().all(|byte| byte.is_ascii_digit()),
            "{line}"
        );
        assert_eq!(head[1].len(), "03:51:09.123456".len(), "{line}");
        assert_eq!(head[2], "12345");
        assert!(
            head[3].starts_with("tests.rs:") && head[3].ends_with(']'),
            "{line}"
        );
    }
}

#[test]
fn json_lines_have_upstreams_keys() {
    let events = || {
        tracing::info!(count = 3, share = 0.5, "it began");
        tracing::info!(target: OPERATOR, "it is served");
        tracing::warn!("it is slow");
        tracing::debug!("a detail");
        tracing::error!(
            error = &io::Error::other("no way") as &dyn std::error::Error,
            "it\nended"
        );
    };
    let lines: Vec<Value> = lines(LogFormat::Json, events)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let v: Vec<&Value> = lines.iter().map(|line| &line["v"]).collect();
    let expected = [1.into(), 0.into(), 0.into(), 4.into(), Value::Null];
    assert!(v.iter().copied().eq(&expected), "{v:?}");
    for line in &lines {
        let caller = line["caller"].as_str().expect("a caller");
        assert!(caller.starts_with("format/tests.rs:"), "{line}");
        assert!(line["ts"].as_f64().is_some_and(|ts| ts > 1.6e12), "{line}");
    }
    assert_eq!(lines[0]["msg"], "it began");
    assert_eq!((&lines[0]["count"], &lines[0]["share"]), (&3.into(), &0.5.into()));
    assert_eq!(
        (&lines[4]["msg"], &lines[4]["err"]),
        (&"it\nended".into(), &"no way".into())
    );
}
