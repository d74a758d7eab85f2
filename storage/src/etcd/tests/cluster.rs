//! Real etcd members on free ports of this machine.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::conformance::DEADLINE;

/// The etcd to test with.
pub(super) fn binary() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let named = std::env::var_os("ETCD_BIN").map(PathBuf::from);
    let on_path = || {
        std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path)
                .map(|dir| dir.join("etcd"))
                .find(|path| path.is_file())
        })
    };
    let found = named.or_else(on_path);
    if found.is_none() {
        SAID.call_once(|| eprintln!("SKIPPED: no etcd found (ETCD_BIN or PATH), its tests were not run"));
    }
    found
}

/// A port for a member, below those the system gives out by itself, so that nobody else takes it before the member does.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 15_000 + (std::process::id().wrapping_mul(131).wrapping_add(step)) % 15_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(super) struct Member {
    name: String,
    pub(super) client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl Member {
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub(super) struct Cluster {
    dir: TempDir,
    pub(super) members: Vec<Member>,
    extra: Vec<String>,
    scheme: &'static str,
}

impl Cluster {
    /// `None` where there is no etcd.
    pub(super) async fn start(members: usize) -> Option<Cluster> {
        Self::start_with(members, "http", Vec::new()).await
    }

    pub(super) async fn start_with(
        members: usize,
        scheme: &'static str,
        extra: Vec<String>,
    ) -> Option<Cluster> {
        binary()?;
        let dir = tempfile::tempdir().unwrap();
        let members = (0..members)
            .map(|n| Member {
                name: format!("m{n}"),
                client_port: free_port(),
                peer_port: free_port(),
                process: None,
            })
            .collect();
        let mut cluster = Cluster {
            dir,
            members,
            extra,
            scheme,
        };
        for n in 0..cluster.members.len() {
            cluster.start_member(n);
        }
        cluster.ready().await;
        Some(cluster)
    }

    pub(super) fn start_member(&mut self, n: usize) {
        let initial: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}=http://127.0.0.1:{}", member.name, member.peer_port))
            .collect();
        let member = &mut self.members[n];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client_port);
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        let process = Command::new(binary().unwrap())
            .arg("--name")
            .arg(&member.name)
            .arg("--data-dir")
            .arg(self.dir.path().join(&member.name))
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
            .args(["--initial-cluster", &initial.join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        member.process = Some(process);
    }

    pub(super) fn endpoints(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| format!("{}://127.0.0.1:{}", self.scheme, member.client_port))
            .collect()
    }

    async fn ready(&self) {
        for member in &self.members {
            let connected = async {
                while tokio::net::TcpStream::connect(("127.0.0.1", member.client_port))
                    .await
                    .is_err()
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(DEADLINE, connected)
                .await
                .expect("the member listens");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}
