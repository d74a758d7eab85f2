//! A real etcd member on free ports of this machine.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::{eventually, tool};

/// One member that is a cluster by itself, in a directory of its own. Ends when dropped.
#[derive(Debug)]
pub struct Etcd {
    dir: TempDir,
    program: PathBuf,
    client: u16,
    peer: u16,
    process: Option<Child>,
}

/// A port for a member, below those that the system gives out by itself, so that nobody else takes it before the member does.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 15_000 + std::process::id().wrapping_mul(131).wrapping_add(step) % 15_000;
        let port = u16::try_from(port).expect("below 30000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Etcd {
    /// Starts a member: `$ETCD_BIN`, or `etcd` on the path. `None` where there is no etcd, which is said loudly.
    pub async fn start() -> Option<Etcd> {
        let named = std::env::var_os("ETCD_BIN").map(PathBuf::from);
        let program = named.or_else(|| tool("etcd"))?;
        let mut etcd = Etcd {
            dir: tempfile::tempdir().expect("a directory"),
            program,
            client: free_port(),
            peer: free_port(),
            process: None,
        };
        etcd.run().await;
        Some(etcd)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.client)
    }

    /// Kills it where it stands.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts it anew on the same data.
    pub async fn run(&mut self) {
        self.kill();
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peer));
        let process = Command::new(&self.program)
            .arg("--data-dir")
            .arg(self.dir.path())
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd runs");
        self.process = Some(process);
        let client = self.client;
        eventually("etcd's port", || async move {
            tokio::net::TcpStream::connect(("127.0.0.1", client)).await.ok()
        })
        .await;
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}
