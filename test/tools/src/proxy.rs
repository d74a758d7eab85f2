//! Wires that can be cut: connections stay open while nothing passes, as when a network loses packets.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Ports of proxies that nothing reaches.
type Cut = BTreeSet<u16>;

/// Forwards connections to a port of this machine. Ends, with its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    cut: Arc<watch::Sender<Cut>>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Forwards to this port. Needs a tokio runtime.
    pub async fn to(target: u16) -> Proxy {
        Self::among(target, Arc::new(watch::Sender::default())).await
    }

    /// One of several proxies before members that talk to each other: what a member sends says by which proxy it is reached itself, so
    /// that cutting that one cuts it in both directions.
    pub(crate) async fn among(target: u16, cut: Arc<watch::Sender<Cut>>) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let known = cut.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let gate = Gate {
                    cut: known.subscribe(),
                    target: port,
                    sender: Arc::default(),
                };
                connections.spawn(forward(stream, target, gate));
            }
        });
        Proxy {
            port,
            cut,
            _tasks: tasks,
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing passes. Bytes that arrive meanwhile wait.
    pub fn cut(&self) {
        self.cut.send_modify(|cut| _ = cut.insert(self.port));
    }

    /// Everything passes again, what has waited first.
    pub fn heal(&self) {
        self.cut.send_modify(|cut| _ = cut.remove(&self.port));
    }
}

/// The condition under which bytes of a connection pass.
#[derive(Debug, Clone)]
struct Gate {
    cut: watch::Receiver<Cut>,
    target: u16,
    /// The proxy before the member that has opened the connection, once it is known.
    sender: Arc<OnceLock<u16>>,
}

impl Gate {
    /// Waits until neither end is cut off. `false` when there is nothing to wait for any more.
    async fn is_open(&mut self) -> bool {
        let sender = self.sender.get().copied();
        let open =
            |cut: &Cut| !cut.contains(&self.target) && sender.is_none_or(|sender| !cut.contains(&sender));
        self.cut.wait_for(open).await.is_ok()
    }

    /// Learns from the head of a request which etcd member has opened the connection.
    fn learn(&self, sent: &[u8]) {
        const HEADER: &str = "x-peerurls: http://127.0.0.1:";
        if self.sender.get().is_some() {
            return;
        }
        let text = String::from_utf8_lossy(sent).to_ascii_lowercase();
        let port = text
            .split_once(HEADER)
            .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        if let Some(port) = port {
            self.sender.get_or_init(|| port);
        }
    }
}

async fn forward(client: TcpStream, target: u16, mut gate: Gate) {
    if !gate.is_open().await {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        return;
    };
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    // The first direction that ends ends the connection.
    tokio::select! {
        () = pass(client_reads, server_writes, gate.clone(), true) => {}
        () = pass(server_reads, client_writes, gate, false) => {}
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut gate: Gate,
    requests: bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if requests {
            gate.learn(&buffer[..read]);
        }
        if !gate.is_open().await || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
