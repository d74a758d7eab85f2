//! Real etcd members on free ports of this machine: `$ETCD_BIN`, or `etcd` on the path.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use crate::{Proxy, free_port, listening, tool};

/// Members that form a cluster, in a directory of their own. They end when dropped.
#[derive(Debug)]
pub struct Cluster {
    dir: TempDir,
    program: PathBuf,
    members: Vec<Member>,
    extra: Vec<String>,
    scheme: &'static str,
}

#[derive(Debug)]
struct Member {
    name: String,
    client: u16,
    peer: u16,
    /// Before its port for the other members.
    wire: Option<Proxy>,
    process: Option<Child>,
}

impl Member {
    /// Where the other members reach it.
    fn peer_url(&self) -> String {
        let port = self.wire.as_ref().map_or(self.peer, Proxy::port);
        format!("http://127.0.0.1:{port}")
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Cluster {
    /// Starts a cluster. `None` where there is no etcd, which is said loudly.
    pub async fn start(members: usize) -> Option<Cluster> {
        Self::start_with(members, "http", Vec::new()).await
    }

    /// Starts a cluster whose members can be cut off from each other ([`Cluster::wire`]).
    pub async fn start_behind_wires(members: usize) -> Option<Cluster> {
        let mut cluster = Self::new(members, "http", Vec::new())?;
        let cut = Arc::default();
        for member in &mut cluster.members {
            member.wire = Some(Proxy::among(member.peer, Arc::clone(&cut)).await);
        }
        cluster.run().await;
        Some(cluster)
    }

    /// The same with the scheme of client URLs and more flags.
    pub async fn start_with(members: usize, scheme: &'static str, extra: Vec<String>) -> Option<Cluster> {
        let mut cluster = Self::new(members, scheme, extra)?;
        cluster.run().await;
        Some(cluster)
    }

    fn new(members: usize, scheme: &'static str, extra: Vec<String>) -> Option<Cluster> {
        let named = std::env::var_os("ETCD_BIN").map(PathBuf::from);
        let program = named.or_else(|| tool("etcd"))?;
        let members = (0..members).map(|n| Member {
            name: format!("m{n}"),
            client: free_port(),
            peer: free_port(),
            wire: None,
            process: None,
        });
        Some(Cluster {
            dir: tempfile::tempdir().expect("a directory"),
            program,
            members: members.collect(),
            extra,
            scheme,
        })
    }

    async fn run(&mut self) {
        for n in 0..self.members.len() {
            self.start_member(n);
        }
        for n in 0..self.members.len() {
            self.member_listens(n).await;
        }
    }

    /// Kills a member where it stands.
    pub fn kill(&mut self, n: usize) {
        self.members[n].kill();
    }

    /// Restarts a killed member on its data. Does not wait for it.
    pub fn start_member(&mut self, n: usize) {
        self.kill(n);
        let initial = self.members.iter();
        let initial: Vec<String> = initial
            .map(|member| format!("{}={}", member.name, member.peer_url()))
            .collect();
        let client = self.endpoint(&self.members[n]);
        let member = &mut self.members[n];
        let listen = format!("http://127.0.0.1:{}", member.peer);
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(self.dir.path().join(&member.name))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &listen])
            .args(["--initial-advertise-peer-urls", &member.peer_url()])
            .args(["--initial-cluster", &initial.join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        member.process = Some(command.spawn().expect("etcd runs"));
    }

    /// Waits until a member listens.
    pub async fn member_listens(&self, n: usize) {
        listening(self.members[n].client).await;
    }

    fn endpoint(&self, member: &Member) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, member.client)
    }

    /// The wire between a member and all others, in a cluster that was started behind wires.
    pub fn wire(&self, n: usize) -> &Proxy {
        let wire = self.members[n].wire.as_ref();
        wire.expect("members of this cluster are behind wires")
    }

    /// A member's port for clients.
    pub fn port(&self, n: usize) -> u16 {
        self.members[n].client
    }

    /// The members' client URLs.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| self.endpoint(member)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::kill);
    }
}

/// One member that is a cluster by itself.
#[derive(Debug)]
pub struct Etcd(Cluster);

impl Etcd {
    /// Starts a member. `None` where there is no etcd, which is said loudly.
    pub async fn start() -> Option<Etcd> {
        Cluster::start(1).await.map(Etcd)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.0.endpoints().swap_remove(0)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.0.port(0)
    }

    /// Kills it where it stands.
    pub fn kill(&mut self) {
        self.0.kill(0);
    }

    /// Restarts it on the same data.
    pub async fn run(&mut self) {
        self.0.start_member(0);
        self.0.member_listens(0).await;
    }
}
