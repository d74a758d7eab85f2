//! Following the parent process: a test that is killed with -9 stops nothing that it has started.

use std::time::Duration;

use rustix::process::{Pid, getppid};

/// How often the parent is looked at where it cannot be followed.
const INTERVAL: Duration = Duration::from_secs(1);

/// The process that started this one, if init did not. Asked for first of all: whoever asks later, when that one may have ended, is told of
/// the process that took over.
pub(super) fn id() -> Option<Pid> {
    getppid().filter(|parent| *parent != Pid::INIT)
}

/// Resolves when the given process that started this one has ended; never for one that init started.
pub(super) async fn ended(parent: Option<Pid>) {
    let Some(parent) = parent else {
        return std::future::pending().await;
    };
    #[cfg(target_os = "linux")]
    if followed(parent).await.is_ok() {
        return;
    }
    while getppid() == Some(parent) {
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for the end of the parent, in a thread that has nothing else to do. Not by a signal at its death: that comes when the thread that
/// started this process ends.
#[cfg(target_os = "linux")]
async fn followed(parent: Pid) -> std::io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use rustix::process::{PidfdFlags, pidfd_open};

    let process = pidfd_open(parent, PidfdFlags::empty())?;
    // The number may be another process's by then.
    if getppid() != Some(parent) {
        return Ok(());
    }
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("parent".into()).spawn(move || {
        let outcome = loop {
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                outcome => break outcome.map(drop),
            }
        };
        // Nobody waits any more when the process is about to end.
        let _ = ended.send(outcome);
    })?;
    match end.await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(std::io::ErrorKind::Other.into()),
    }
}
