//! Connections through a konnectivity server: the packets of its `ProxyService`, one gRPC connection for each connection, as upstream's
//! `konnectivity-client` does it.
//!
//! A task carries bytes between the packets and a pipe, whose other end is the connection. It reads a packet when the one before it has
//! been taken, so that HTTP/2's windows hold back a peer whose bytes nobody reads, and ends with either side.

use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use machinery::limits::{TUNNEL_CHUNK_BYTES, TUNNEL_PIPE_BYTES};
use prost::Message;
use storage::grpc::{Answers, RequestSender, SocketStream, text};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::tcp::Fault;
use super::super::wire::Io;
use super::Stage;
use crate::spawn::Tasks;

const PROXY: &str = "/ProxyService/Proxy";
/// How long the gRPC connection may take to come about. Upstream's figure.
const CONNECT: Duration = Duration::from_secs(30);
/// How long the answer to a dial may take. Upstream's figure.
const DIAL: Duration = Duration::from_secs(30);
/// How long the server has to confirm an end. Upstream's figure.
const CLOSE: Duration = Duration::from_secs(10);

const DIAL_REQ: i32 = 0;
const DIAL_RSP: i32 = 1;
const CLOSE_REQ: i32 = 2;
const CLOSE_RSP: i32 = 3;
const DATA: i32 = 4;
const DIAL_CLS: i32 = 5;

/// One message, in either direction. Of its payloads the one that its kind names is there.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    dial_request: Option<DialRequest>,
    #[prost(message, optional, tag = "3")]
    dial_response: Option<DialResponse>,
    #[prost(message, optional, tag = "4")]
    data: Option<Data>,
    #[prost(message, optional, tag = "5")]
    close_request: Option<CloseRequest>,
    #[prost(message, optional, tag = "7")]
    close_dial: Option<CloseDial>,
}

#[derive(Clone, PartialEq, Message)]
struct DialRequest {
    #[prost(string, tag = "1")]
    protocol: String,
    #[prost(string, tag = "2")]
    address: String,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct DialResponse {
    #[prost(string, tag = "1")]
    error: String,
    #[prost(int64, tag = "2")]
    connection: i64,
    #[prost(int64, tag = "3")]
    random: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Data {
    #[prost(int64, tag = "1")]
    connection: i64,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct CloseRequest {
    #[prost(int64, tag = "1")]
    connection: i64,
}

#[derive(Clone, PartialEq, Message)]
struct CloseDial {
    #[prost(int64, tag = "1")]
    random: i64,
}

/// Connects to `authority` through the server at a socket. The tunnel's task belongs to `tasks`.
///
/// # Errors
/// Why not, with the stage at which it failed.
pub(super) async fn open(socket: &Path, authority: &str, tasks: &Tasks) -> Result<Io, (Stage, Fault)> {
    let connected = SocketStream::connect(socket, CONNECT).await;
    let connected = connected.map_err(|status| (Stage::Connect, Fault(text(&status))))?;
    let (answer, outcome) = oneshot::channel();
    tasks.spawn("egress tunnel", tunnel(connected, authority.to_string(), answer));
    let outcome = outcome.await.unwrap_or_else(|_| Err("tunnel closed".into()));
    outcome
        .map(|pipe| Box::new(pipe) as Io)
        .map_err(|why| (Stage::Proxy, Fault(why)))
}

/// A call of the server, once it has begun to answer.
struct Call {
    requests: RequestSender<Packet>,
    answers: Answers<Packet>,
}

/// Dials, answers with the connection or why there is none, and carries its bytes.
async fn tunnel(
    connected: SocketStream,
    authority: String,
    mut answer: oneshot::Sender<Result<DuplexStream, String>>,
) {
    let random = rand::random::<i64>() & i64::MAX;
    let dialled = tokio::select! {
        dialled = timeout(DIAL, dial(connected, authority, random)) => {
            dialled.unwrap_or_else(|_| Err("dial timeout, backstop".into()))
        }
        // Who asked has given up. The end of the connection ends the call, and with it the dial.
        () = answer.closed() => return,
    };
    let (call, connection) = match dialled {
        Ok(dialled) => dialled,
        Err(why) => {
            // Whoever asked may have given up meanwhile.
            let _ = answer.send(Err(why));
            return;
        }
    };
    let (near, far) = pipe();
    // Without a reader the pipe is closed, and the tunnel ends at once.
    let _ = answer.send(Ok(near));
    carry(call, far, connection).await;
}

/// The connection and the tunnel's end of it.
fn pipe() -> (DuplexStream, DuplexStream) {
    duplex(TUNNEL_PIPE_BYTES)
}

/// Asks for a connection, and gives its number.
async fn dial(connected: SocketStream, authority: String, random: i64) -> Result<(Call, i64), String> {
    let request = Packet {
        kind: DIAL_REQ,
        dial_request: Some(DialRequest {
            protocol: "tcp".into(),
            address: authority,
            random,
        }),
        ..Packet::default()
    };
    let call = connected.call::<Packet, Packet>(PROXY, request).await;
    let (requests, mut answers) = call.map_err(|status| text(&status))?;
    while let Some(packet) = answers.next().await.map_err(|status| text(&status))? {
        match (packet.kind, packet.dial_response) {
            (DIAL_RSP, Some(answer)) if answer.random == random => {
                return match answer.error.is_empty() {
                    true => Ok((Call { requests, answers }, answer.connection)),
                    false => Err(answer.error),
                };
            }
            // A connection has one dial.
            (DIAL_RSP, _) => break,
            (DIAL_CLS, _) => return Err("dial closed".into()),
            _ => {}
        }
    }
    Err("tunnel closed".into())
}

/// Carries bytes until either side ends.
async fn carry(call: Call, pipe: DuplexStream, connection: i64) {
    let Call {
        requests,
        mut answers,
    } = call;
    let (reader, writer) = split(pipe);
    let packets = stream::unfold(&mut answers, |answers| async {
        let packet = answers.next().await.ok()??;
        Some((packet, answers))
    });
    let ended_there = tokio::select! {
        () = upward(reader, &requests, connection) => false,
        () = downward(packets, writer, connection) => true,
    };
    if ended_there {
        return;
    }
    let close = Packet {
        kind: CLOSE_REQ,
        close_request: Some(CloseRequest { connection }),
        ..Packet::default()
    };
    let closed = async {
        if requests.send(close).await.is_ok() {
            // Data that is under way has nobody who would read it.
            while let Ok(Some(packet)) = answers.next().await {
                if packet.kind == CLOSE_RSP {
                    break;
                }
            }
        }
    };
    // A server that does not confirm the end learns it from the end of the connection.
    let _ = timeout(CLOSE, closed).await;
}

/// From the pipe to the server, until the connection is dropped or shut down.
async fn upward(mut reader: ReadHalf<DuplexStream>, requests: &RequestSender<Packet>, connection: i64) {
    while let Some(data) = chunk(&mut reader).await {
        let packet = Packet {
            kind: DATA,
            data: Some(Data { connection, data }),
            ..Packet::default()
        };
        if requests.send(packet).await.is_err() {
            return;
        }
    }
}

/// What is there to be read, up to the size of a packet; `None` at the end.
async fn chunk(reader: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let mut bytes = BytesMut::with_capacity(TUNNEL_CHUNK_BYTES);
    match reader.read_buf(&mut bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(bytes.freeze()),
    }
}

/// From the server to the pipe, until the peer closes.
async fn downward(packets: impl Stream<Item = Packet>, mut writer: WriteHalf<DuplexStream>, connection: i64) {
    let mut packets = std::pin::pin!(packets);
    while let Some(packet) = packets.next().await {
        if packet.kind == CLOSE_RSP {
            break;
        }
        let data = packet
            .data
            .filter(|data| packet.kind == DATA && data.connection == connection);
        // Without a reader nothing more is wanted.
        if let Some(data) = data
            && writer.write_all(&data.data).await.is_err()
        {
            return;
        }
    }
    // What came before the end can still be read from the pipe.
    let _ = writer.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn packets_have_so_many_bytes() {
        async fn check(written: usize, expected: &[usize]) {
            let (mut near, mut far) = duplex(3 * TUNNEL_CHUNK_BYTES);
            near.write_all(&vec![b'x'; written]).await.expect("there is room");
            drop(near);
            let mut sizes = Vec::new();
            while let Some(data) = chunk(&mut far).await {
                sizes.push(data.len());
            }
            assert_eq!(sizes, expected, "{written}");
        }
        check(0, &[]).await;
        check(1, &[1]).await;
        check(TUNNEL_CHUNK_BYTES, &[TUNNEL_CHUNK_BYTES]).await;
        check(TUNNEL_CHUNK_BYTES + 1, &[TUNNEL_CHUNK_BYTES, 1]).await;
    }

    #[tokio::test]
    async fn a_peer_waits_while_nobody_reads() {
        const CONNECTION: i64 = 7;
        const PIECE: usize = 4096;
        let taken = Cell::new(0);
        let packets = stream::repeat_with(|| {
            taken.set(taken.get() + 1);
            Packet {
                kind: DATA,
                data: Some(Data {
                    connection: CONNECTION,
                    data: Bytes::from_static(&[b'x'; PIECE]),
                }),
                ..Packet::default()
            }
        });
        let (mut near, far) = pipe();
        let (_reader, writer) = split(far);
        let mut carrying = std::pin::pin!(downward(packets, writer, CONNECTION));
        // The packet that has no room is the last that is taken.
        for more in 1..4 {
            assert!(poll!(&mut carrying).is_pending());
            assert_eq!(taken.get(), TUNNEL_PIPE_BYTES / PIECE + more);
            near.read_exact(&mut [0; PIECE]).await.expect("read");
        }
    }
}
