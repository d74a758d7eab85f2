//! A server that the adversary starts: a process with a directory of its own, which it may restart and which it ends before the machine
//! suffers.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::{Error, Shot, Target};

/// How long a server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. It ends when dropped.
#[derive(Debug)]
pub struct Server {
    /// The program.
    pub binary: PathBuf,
    /// The server.
    pub target: Target,
    directory: tempfile::TempDir,
    port: u16,
    flags: Vec<String>,
    child: Child,
}

impl Server {
    /// Starts one with more flags, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start(binary: &Path, flags: &[&str]) -> Result<Self, Error> {
        Self::limited(binary, flags, None).await
    }

    /// The same with a bound on its file descriptors.
    ///
    /// # Errors
    /// As there.
    pub async fn limited(binary: &Path, flags: &[&str], descriptors: Option<u32>) -> Result<Self, Error> {
        let directory = tempfile::tempdir()?;
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_string()).collect();
        let port = test_tools::free_port();
        let mut child = spawn(binary, directory.path(), port, &flags, descriptors)?;
        let kubeconfig = directory.path().join("admin.kubeconfig");
        let begun = Instant::now();
        let target = loop {
            if let Ok(target) = Target::read(&kubeconfig)
                && ready(&target).await
            {
                break target;
            }
            waited(&mut child, begun).await?;
        };
        Ok(Server {
            binary: binary.to_path_buf(),
            target,
            directory,
            port,
            flags,
            child,
        })
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Where it keeps everything.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends it at once and starts it again with the same directory and port; does not wait until it is ready.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub async fn restart(&mut self, flags: Option<&[&str]>) -> Result<(), Error> {
        self.child.kill().await?;
        if let Some(flags) = flags {
            self.flags = flags.iter().map(|flag| (*flag).to_string()).collect();
        }
        self.child = spawn(&self.binary, self.directory.path(), self.port, &self.flags, None)?;
        Ok(())
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn ready(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while !ready(&self.target).await {
            waited(&mut self.child, begun).await?;
        }
        Ok(())
    }

    /// Whether it is running and answers within a moment.
    pub async fn is_well(&mut self) -> bool {
        let running = self.child.try_wait().is_ok_and(|ended| ended.is_none());
        let answer = tokio::time::timeout(Duration::from_secs(2), ready(&self.target));
        running && answer.await.unwrap_or_default()
    }
}

async fn ready(target: &Target) -> bool {
    let answer = target.send(Shot::get("/readyz")).await;
    answer.is_ok_and(|answer| answer.status == 200)
}

async fn waited(child: &mut Child, begun: Instant) -> Result<(), Error> {
    if let Some(status) = child.try_wait()? {
        return Err(format!("the server ended: {status}").into());
    }
    if begun.elapsed() > PATIENCE {
        return Err("the server did not become ready".into());
    }
    // Another process: there is nothing to be woken by.
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}

fn spawn(
    binary: &Path,
    directory: &Path,
    port: u16,
    flags: &[String],
    descriptors: Option<u32>,
) -> Result<Child, Error> {
    let mut command = match descriptors {
        None => Command::new(binary),
        Some(count) => {
            let mut shell = Command::new("sh");
            shell
                .arg("-c")
                .arg(format!("ulimit -n {count}; exec \"$0\" \"$@\""))
                .arg(binary);
            shell
        }
    };
    command
        .arg("--data-dir")
        .arg(directory)
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={port}"))
        .args(flags)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    Ok(command.spawn()?)
}
