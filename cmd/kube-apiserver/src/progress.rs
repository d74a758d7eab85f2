//! A line about long work, for a person at a terminal: what is done, for how long, and how much has been written. Nothing is shown of
//! work that is done at once, and nothing where standard error is no terminal.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long work lasts before it is shown, and how often the line is written again.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(500);
/// Back to the start of the line, which is cleared.
const CLEAR: &[u8] = b"\r\x1b[K";

/// Whether a line of progress stands on the terminal.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Work that is being done. The line is gone when this is dropped.
#[derive(Debug)]
pub struct Progress {
    /// Dropped first, which ends the thread.
    done: Option<mpsc::Sender<()>>,
    line: Option<thread::JoinHandle<()>>,
}

impl Progress {
    /// Begins to show this work, with the size of the files that it makes. A thread of its own writes, because the work may leave no
    /// other one free.
    pub fn begin(work: &'static str, files: Vec<PathBuf>) -> Self {
        if !io::stderr().is_terminal() {
            return Progress {
                done: None,
                line: None,
            };
        }
        let (done, ended) = mpsc::channel::<()>();
        let line = thread::Builder::new()
            .name("progress".into())
            .spawn(move || show(work, &files, &ended));
        Progress {
            done: Some(done),
            // Without a thread there is no line.
            line: line.ok(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(line) = self.line.take() {
            // It has ended either way.
            let _ = line.join();
        }
    }
}

fn show(work: &str, files: &[PathBuf], ended: &mpsc::Receiver<()>) {
    let began = Instant::now();
    let mut wait = PATIENCE;
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        wait = INTERVAL;
        let bytes = files.iter().map(|file| size(file)).max().unwrap_or(0);
        let text = line(work, began.elapsed(), bytes);
        // A closed stream is no reason to end.
        let _ = io::stderr().lock().write_all(&[CLEAR, text.as_bytes()].concat());
        SHOWN.store(true, Ordering::Release);
    }
    let _ = give_way(&mut io::stderr().lock());
}

/// Clears the line before something else is written.
pub(crate) fn give_way(out: &mut impl Write) -> io::Result<()> {
    match SHOWN.swap(false, Ordering::AcqRel) {
        true => out.write_all(CLEAR),
        false => Ok(()),
    }
}

fn line(work: &str, time: Duration, bytes: u64) -> String {
    let seconds = time.as_secs();
    match bytes >> 20 {
        0 => format!("{work}: {seconds} s"),
        mib => format!("{work}: {mib} MiB, {seconds} s"),
    }
}

/// The size of a file, or of the files of a directory.
fn size(path: &Path) -> u64 {
    let own = std::fs::metadata(path).map_or(0, |file| file.len());
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let within = entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|file| file.len());
    own + within.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_how_much_and_how_long() {
        let line = |bytes| line("writing the snapshot", Duration::from_millis(3900), bytes);
        assert_eq!(line(0), "writing the snapshot: 3 s");
        assert_eq!(line(12 << 20), "writing the snapshot: 12 MiB, 3 s");
    }

    #[test]
    fn sizes_are_of_files_and_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = size(dir.path());
        std::fs::write(dir.path().join("a"), [0; 1000]).expect("written");
        assert_eq!(size(&dir.path().join("a")), 1000);
        assert!(size(dir.path()) >= before + 1000);
        assert_eq!(size(&dir.path().join("none")), 0);
    }
}
