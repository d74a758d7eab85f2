//! A wire that can be cut: connections stay open while nothing passes, as when a network loses packets.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to a port of this machine. Ends, with its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    open: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Forwards to this port. Needs a tokio runtime.
    pub async fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let (open, is_open) = watch::channel(true);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(forward(stream, target, is_open.clone()));
            }
        });
        Proxy {
            port,
            open,
            _tasks: tasks,
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing passes. Bytes that arrive meanwhile wait.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Everything passes again, what has waited first.
    pub fn heal(&self) {
        self.open.send_replace(true);
    }
}

async fn forward(client: TcpStream, target: u16, mut is_open: watch::Receiver<bool>) {
    if is_open.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else {
        return;
    };
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    // The first direction that ends ends the connection.
    tokio::select! {
        () = pass(client_reads, server_writes, is_open.clone()) => {}
        () = pass(server_reads, client_writes, is_open) => {}
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut is_open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let passes = is_open.wait_for(|open| *open).await.is_ok();
        if !passes || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
