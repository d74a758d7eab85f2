//! Commands over WebSocket (`v5.channel.k8s.io`), translated to the streams of SPDY that nodes take. Mirrors `streamtranslator.go` and
//! client-go's `remotecommand`.
//!
//! Each message of the client begins with the number of a channel; a message of 255 and a number closes one. Invariants: what one side
//! sends is written to the other before more is read; nothing that answers a PING waits for a writer, so the two directions never wait
//! for each other; only the node's answer or the client's end ends a command.

mod download;
mod status;
mod upload;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use machinery::{ApiError, limits};
use serde_json::Value;
use tokio::io::{AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::spdy;
use super::tunnel::keep_client;
use super::websocket::{self, End, NORMAL};
use crate::client::Io;

/// The subprotocol that is translated.
const PROTOCOL: &str = "v5.channel.k8s.io";
/// The protocols that a node may choose from, the preferred one first.
const NODE_PROTOCOLS: [&str; 5] = [
    PROTOCOL,
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];

/// The client's numbers of channels.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Closes the channel whose number follows.
const CLOSE: u8 = 255;

/// How long the client may take to read the end of a command. Upstream's figure.
const GOODBYE: Duration = Duration::from_secs(10);
/// What is said of a node that does not accept a command's streams in time, as upstream says it.
const TIMED_OUT: &str = "Timeout occurred";

/// What a client asks to be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels {
    /// The command's input.
    pub stdin: bool,
    /// Its output.
    pub stdout: bool,
    /// Its errors; a terminal has none of its own.
    pub stderr: bool,
    /// Whether it has a terminal, whose size may change.
    pub tty: bool,
}

/// The version of the node's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u8);

impl Version {
    /// By its name; without one it is the first.
    fn of(name: &str) -> Self {
        match name {
            "v5.channel.k8s.io" => Version(5),
            "v4.channel.k8s.io" => Version(4),
            "v3.channel.k8s.io" => Version(3),
            "v2.channel.k8s.io" => Version(2),
            _ => Version(1),
        }
    }
}

/// The streams to the node by number; 0 where there is none.
#[derive(Debug, Clone, Copy, Default)]
struct Streams {
    error: u32,
    stdin: u32,
    stdout: u32,
    stderr: u32,
    resize: u32,
}

impl Streams {
    /// In the order that upstream opens them.
    fn new(channels: Channels, version: Version) -> Self {
        let mut next = 1;
        let mut stream = |wanted: bool| {
            let id = if wanted { next } else { return 0 };
            next += 2;
            id
        };
        Streams {
            error: stream(true),
            stdin: stream(channels.stdin),
            stdout: stream(channels.stdout),
            stderr: stream(channels.stderr && !channels.tty),
            resize: stream(channels.tty && version >= Version(3)),
        }
    }

    /// Those that there are, with the names of their types.
    fn all(&self) -> impl Iterator<Item = (u32, &'static str)> {
        let named = [
            (self.error, "error"),
            (self.stdin, "stdin"),
            (self.stdout, "stdout"),
            (self.stderr, "stderr"),
            (self.resize, "resize"),
        ];
        named.into_iter().filter(|(stream, _)| *stream != 0)
    }
}

type ToClient = websocket::Writer<WriteHalf<Io>>;
type FromClient = websocket::Reader<ReadHalf<Io>>;
type ToNode = spdy::Writer<WriteHalf<Io>>;
type FromNode = spdy::Reader<ReadHalf<Io>>;

/// The command's input as both directions see it.
#[derive(Debug)]
struct Stdin {
    stream: u32,
    closed: AtomicBool,
    /// The node takes no more of it.
    refused: Notify,
}

impl Stdin {
    /// Says that nothing follows, once.
    async fn close<W: AsyncWrite + Unpin>(&self, node: &spdy::Writer<W>) {
        if self.stream != 0 && !self.closed.swap(true, Ordering::AcqRel) {
            // A node that takes nothing more says how the command ended.
            let _ = node.data(self.stream, &[], true).await;
        }
    }
}

/// How the work on a command ended.
#[derive(Debug)]
enum Ended {
    /// With a Status.
    Status(Value),
    /// The client left.
    Left,
    /// The client left or cannot be written to, and a frame to the node may be cut.
    Cut,
}

/// A command on its way.
#[derive(Debug, Clone, Copy)]
pub struct RemoteCommand {
    /// What is connected.
    pub channels: Channels,
}

impl RemoteCommand {
    /// The subprotocol that is translated, if the client offers it.
    pub fn protocol(headers: &http::HeaderMap) -> Option<&'static str> {
        let asked = websocket::is_asked(headers) && websocket::offered(headers).any(|name| name == PROTOCOL);
        asked.then_some(PROTOCOL)
    }

    /// The protocols to offer a node.
    pub fn node_protocols() -> &'static [&'static str] {
        &NODE_PROTOCOLS
    }

    /// Runs the command of a client whose handshake is done. `node` gives the node's connection and the protocol that it chose. Gives the
    /// status code of its end, 200 for a command that ended with any exit code; `None` when the client left.
    pub async fn run(
        self,
        client: Io,
        node: impl Future<Output = Result<(Io, String), ApiError>>,
    ) -> Option<u16> {
        let (from_client, to_client) = tokio::io::split(client);
        let client = websocket::Writer::new(to_client, End::Server);
        let mut reader = websocket::Reader::new(from_client, End::Client);
        // It is polled to the very end: a pong that is cut in the middle would be the end of the client's connection.
        let mut kept = std::pin::pin!(keep_client(&client));
        let status = tokio::select! {
            () = &mut kept => return None,
            ended = self.work(&client, &mut reader, node) => ended?,
        };
        let goodbye = async {
            let text = status.to_string();
            let sent = client.message(&[&[ERROR], text.as_bytes()]).await;
            if sent.is_ok() && client.close(NORMAL).await.is_ok() {
                // Bytes of the client that are left unread would reset the connection, and could overtake the status.
                let _ = timeout(limits::LINGER_IN_ALL, reader.drain()).await;
            }
        };
        tokio::select! {
            _ = timeout(GOODBYE, goodbye) => {}
            () = kept => {}
        }
        Some(status::code(&status))
    }

    /// The Status that ends the command; `None` when the client left.
    async fn work(
        self,
        client: &ToClient,
        reader: &mut FromClient,
        node: impl Future<Output = Result<(Io, String), ApiError>>,
    ) -> Option<Value> {
        // An empty message says that the connection is there.
        let lowest = match self.channels {
            Channels { stdout: true, .. } => STDOUT,
            Channels { stderr: true, .. } => STDERR,
            _ => ERROR,
        };
        client.message(&[&[lowest]]).await.ok()?;
        let (node, protocol) = match node.await {
            Ok(connected) => connected,
            Err(error) => return Some(status::of_error(&error)),
        };
        let version = Version::of(&protocol);
        let streams = Streams::new(self.channels, version);
        let (from_node, to_node) = tokio::io::split(node);
        let node = spdy::Writer::new(to_node);
        let mut frames = spdy::Reader::new(from_node);
        let stdin = Stdin {
            stream: streams.stdin,
            closed: AtomicBool::new(false),
            refused: Notify::new(),
        };
        let failed = |error: &dyn std::fmt::Display| Some(status::of_error(&ApiError::internal(error)));
        let accepted_by = Instant::now() + limits::STREAM_WAIT;
        for (stream, kind) in streams.all() {
            match timeout_at(accepted_by, node.open(stream, &[("streamtype", kind)])).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return failed(&error),
                Err(_) => return failed(&TIMED_OUT),
            }
        }
        let (ready, opened) = watch::channel(false);
        let accepted = (ready, accepted_by);
        let ended = tokio::select! {
            ended = download::run(streams, version, &mut frames, client, &node, &stdin, accepted) => ended,
            () = upload::run(streams, reader, client, &node, &stdin, opened) => Ended::Left,
            () = keep_node(&node, &stdin) => Ended::Cut,
        };
        match ended {
            Ended::Status(status) => {
                let _ = timeout(limits::LINGER, node.shutdown()).await;
                Some(status)
            }
            Ended::Left => {
                let goodbye = async {
                    stdin.close(&node).await;
                    node.shutdown().await;
                };
                let _ = timeout(limits::LINGER, goodbye).await;
                None
            }
            Ended::Cut => None,
        }
    }
}

/// Asks a node again and again whether it is there, answers its own questions, and closes an input that it takes no more of. A node that cannot be
/// written to may still have to be read, so this never ends.
async fn keep_node(node: &ToNode, stdin: &Stdin) {
    let asking = async {
        let mut id = 1_u32;
        loop {
            tokio::time::sleep(limits::STREAM_PING).await;
            if node.ping(id).await.is_err() {
                break;
            }
            id = id.wrapping_add(2);
        }
        std::future::pending().await
    };
    let answering = async {
        node.answer_pings().await;
        std::future::pending().await
    };
    let closing = async {
        stdin.refused.notified().await;
        stdin.close(node).await;
        std::future::pending().await
    };
    let ((), (), ()) = tokio::join!(asking, answering, closing);
}

#[cfg(test)]
mod tests;
