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
        let mut output = match &options.path {
            None => Output::Standard,
            Some(path) => Output::File(
                LogFile::open(path, options).map_err(|error| format!("{}: {error}", path.display()))?,
            ),
        };
        Self::start(move |lines| output.write(lines))
    }

    /// A thread that has lines written by this.
    fn start(write: impl FnMut(&[Bytes]) -> Result<(), String> + Send + 'static) -> Result<Self, String> {
        let (jobs, todo) = mpsc::channel(limits::AUDIT_LOG_WRITES);
        let thread = std::thread::Builder::new().name("audit-log".into());
        thread
            .spawn(move || run(write, todo))
            .map_err(|error| error.to_string())?;
        Ok(Log(jobs))
    }
}

fn run(mut write: impl FnMut(&[Bytes]) -> Result<(), String>, mut todo: mpsc::Receiver<Job>) {
    let mut next = None;
    while let Some(Job { mut lines, done }) = next.take().or_else(|| todo.blocking_recv()) {
        // What came meanwhile is written by the same call, as far as there is room.
        let mut senders = vec![done];
        let mut bytes = size(&lines);
        while let Ok(job) = todo.try_recv() {
            bytes += size(&job.lines);
            if bytes > limits::AUDIT_LOG_WRITE_BYTES {
                next = Some(job);
                break;
            }
            lines.extend(job.lines);
            senders.push(job.done);
        }
        let written = write(&lines);
        for sender in senders {
            // A request that has ended does not wait any more.
            let _ = sender.send(written.clone());
        }
    }
}

/// The bytes of lines with their ends.
fn size(lines: &[Bytes]) -> usize {
    lines.iter().map(|line| line.len() + 1).sum()
}

impl Output {
    fn write(&mut self, lines: &[Bytes]) -> Result<(), String> {
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
            Output::File(file) => file.write(lines.iter()),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::future::join_all;
    use futures_util::poll;
    use parking_lot::Mutex;

    use super::*;
    use crate::cpu::tests::Gate;

    /// A log that writes nothing before its gate is open, and the lengths of the lines that each call was to write.
    struct Gated {
        log: Log,
        gate: Arc<Gate>,
        written: Arc<Mutex<Vec<Vec<usize>>>>,
    }

    impl Gated {
        fn new() -> Self {
            let (gate, written) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
            let (closed, seen) = (gate.clone(), written.clone());
            let write = move |lines: &[Bytes]| {
                seen.lock().push(lines.iter().map(Bytes::len).collect());
                closed.block();
                Ok(())
            };
            let log = Log::start(write).expect("a thread");
            Gated { log, gate, written }
        }

        /// A line for which the thread waits at the gate, so that others come meanwhile.
        async fn begin(&self) -> impl Future<Output = Result<(), String>> {
            let mut first = self.log.deliver(vec![Bytes::from_static(b"x")]);
            assert!(poll!(&mut first).is_pending());
            let begun = async {
                while self.written.lock().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), begun)
                .await
                .expect("in time");
            first
        }

        fn line(&self, bytes: usize) -> impl Future<Output = Result<(), String>> + Unpin {
            self.log.deliver(vec![Bytes::from(vec![b'x'; bytes])])
        }
    }

    #[tokio::test]
    async fn lines_are_written_together_up_to_a_bound() {
        const HALF: usize = limits::AUDIT_LOG_WRITE_BYTES / 2 - 1;
        const LARGE: usize = 2 * limits::AUDIT_LOG_WRITE_BYTES;
        let gated = Gated::new();
        let first = gated.begin().await;
        // Two halves with their ends are as much as is written at once.
        let mut lines: Vec<_> = [HALF, HALF, HALF, HALF + 1, LARGE]
            .map(|bytes| gated.line(bytes))
            .into();
        for line in &mut lines {
            assert!(poll!(line).is_pending());
        }
        gated.gate.open();
        first.await.expect("written");
        assert!(join_all(lines).await.iter().all(Result::is_ok));
        let expected = [vec![1], vec![HALF, HALF], vec![HALF], vec![HALF + 1], vec![LARGE]];
        assert_eq!(*gated.written.lock(), expected);
    }

    #[tokio::test]
    async fn so_many_requests_wait_for_the_thread_and_others_for_them() {
        // One task polls all of them: its budget is not the subject.
        tokio::task::unconstrained(async {
            let gated = Gated::new();
            let first = gated.begin().await;
            let waiting = || gated.log.0.max_capacity() - gated.log.0.capacity();
            let mut lines: Vec<_> = (0..=limits::AUDIT_LOG_WRITES).map(|_| gated.line(1)).collect();
            for (index, line) in lines.iter_mut().enumerate() {
                assert_eq!(waiting(), index);
                assert!(poll!(line).is_pending());
            }
            assert_eq!(waiting(), limits::AUDIT_LOG_WRITES);
            gated.gate.open();
            first.await.expect("written");
            assert!(join_all(lines).await.iter().all(Result::is_ok), "none is lost");
        })
        .await;
    }
}
