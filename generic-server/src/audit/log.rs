//! The log: events as lines of a file that is rotated, or of the standard output. One thread writes.

mod file;

use std::io::Write;

use bytes::Bytes;
use machinery::limits;
use tokio::sync::{mpsc, oneshot};

use self::file::LogFile;
use super::options::LogOptions;
use super::sink::Destination;

/// Lines that are to be written, and what their sender wants to know.
struct Job {
    lines: Vec<Bytes>,
    done: oneshot::Sender<Result<(), String>>,
}

/// The thread that writes, until dropped.
#[derive(Debug)]
pub(super) struct Log(mpsc::Sender<Job>);

/// Where lines go.
#[derive(Debug)]
enum Output {
    Standard,
    File(LogFile),
}

impl Log {
    /// Opens or makes the file. The error names it.
    pub(super) fn open(options: &LogOptions) -> Result<Self, String> {
        let output = match &options.path {
            None => Output::Standard,
            Some(path) => Output::File(
                LogFile::open(path, options).map_err(|error| format!("{}: {error}", path.display()))?,
            ),
        };
        let (jobs, todo) = mpsc::channel(limits::AUDIT_LOG_WRITES);
        let thread = std::thread::Builder::new().name("audit-log".into());
        thread
            .spawn(move || run(output, todo))
            .map_err(|error| error.to_string())?;
        Ok(Log(jobs))
    }
}

fn run(mut output: Output, mut todo: mpsc::Receiver<Job>) {
    while let Some(job) = todo.blocking_recv() {
        // What came meanwhile is written by the same call.
        let mut jobs = vec![job];
        let mut bytes = size(&jobs[0]);
        while bytes < limits::AUDIT_LOG_WRITE_BYTES
            && let Ok(job) = todo.try_recv()
        {
            bytes += size(&job);
            jobs.push(job);
        }
        let written = output.write(jobs.iter().flat_map(|job| &job.lines));
        for job in jobs {
            // A request that has ended does not wait any more.
            let _ = job.done.send(written.clone());
        }
    }
}

fn size(job: &Job) -> usize {
    job.lines.iter().map(Bytes::len).sum()
}

impl Output {
    fn write<'l>(&mut self, lines: impl Iterator<Item = &'l Bytes>) -> Result<(), String> {
        let written = match self {
            Output::Standard => {
                let mut text = Vec::new();
                for line in lines {
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
                let mut out = std::io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Output::File(file) => file.write(lines),
        };
        written.map_err(|error| format!("cannot write the audit log: {error}"))
    }
}

#[async_trait::async_trait]
impl Destination for Log {
    async fn deliver(&self, lines: Vec<Bytes>) -> Result<(), String> {
        let (done, written) = oneshot::channel();
        let gone = || "the thread that writes the audit log has ended".to_string();
        self.0.send(Job { lines, done }).await.map_err(|_| gone())?;
        written.await.map_err(|_| gone())?
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}
