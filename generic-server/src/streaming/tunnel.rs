//! SPDY through WebSocket: the bytes of a node's connection as messages to a client, and back. Mirrors `streamtunnel.go`.

use std::time::Duration;

use machinery::limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::websocket::{End, Event, NORMAL, Reader, Writer};
use crate::client::Connection;

/// How long the end may take.
const GOODBYE: Duration = Duration::from_secs(10);

/// Asks a client again and again whether it is there, and answers its own questions; ends when it is gone.
pub(super) async fn keep_client<W: tokio::io::AsyncWrite + Unpin>(client: &Writer<W>) {
    let asking = async {
        loop {
            tokio::time::sleep(limits::STREAM_PING).await;
            if client.ping().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = asking => {}
        _ = client.answer_pings() => {}
    }
}

/// Carries a node's connection over a client's, until either is gone.
pub async fn tunnel(client: impl Connection, node: impl Connection) {
    let (from_client, to_client) = tokio::io::split(client);
    let (mut from_node, mut to_node) = tokio::io::split(node);
    let mut reader = Reader::new(from_client, End::Client);
    let writer = Writer::new(to_client, End::Server);
    let up = async {
        loop {
            match reader.next().await {
                Ok(Some(Event::Data {
                    bytes, binary: true, ..
                })) => {
                    if to_node.write_all(&bytes).await.is_err() || to_node.flush().await.is_err() {
                        return;
                    }
                }
                Ok(Some(Event::Ping(payload))) => writer.pong(payload),
                Ok(Some(Event::Pong)) => {}
                // Its end, or what no tunnel carries.
                Ok(Some(Event::Data { .. } | Event::Close(_)) | None) | Err(_) => return,
            }
        }
    };
    let down = async {
        let mut room = vec![0; limits::STREAM_PIECE_BYTES];
        loop {
            match from_node.read(&mut room).await {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    let piece = room.get(..read).unwrap_or_default();
                    if writer.message(&[piece]).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    // It is polled to the very end: a pong that is cut in the middle would be the end of the client's connection.
    let mut kept = std::pin::pin!(keep_client(&writer));
    let node_ended = tokio::select! {
        () = down => true,
        () = up => false,
        () = &mut kept => return,
    };
    let goodbye = async {
        let _ = to_node.shutdown().await;
        if node_ended && writer.close(NORMAL).await.is_ok() {
            let _ = timeout(limits::LINGER, reader.drain()).await;
        }
    };
    tokio::select! {
        _ = timeout(GOODBYE, goodbye) => {}
        () = kept => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn bytes_are_carried_both_ways_and_the_end_is_said() {
        let (client, ours) = duplex(256);
        let (mut node, theirs) = duplex(256);
        let task = tokio::spawn(tunnel(ours, theirs));
        let (from, to) = tokio::io::split(client);
        let (mut reader, writer) = (Reader::new(from, End::Server), Writer::new(to, End::Client));
        writer.message(&[b"one", b"two"]).await.expect("sent");
        let mut got = [0; 6];
        node.read_exact(&mut got).await.expect("read");
        assert_eq!(&got, b"onetwo");
        writer.ping().await.expect("sent");
        assert_eq!(reader.next().await.expect("an event"), Some(Event::Pong));
        node.write_all(b"three").await.expect("written");
        drop(node);
        let mut bytes = Vec::new();
        loop {
            match reader.next().await.expect("an event") {
                Some(Event::Data { bytes: more, .. }) => bytes.extend_from_slice(&more),
                Some(Event::Close(status)) => break assert_eq!(status, Some(NORMAL)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes, b"three");
        drop((reader, writer));
        task.await.expect("a task");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_asked_in_time_whether_it_is_there() {
        let (client, ours) = duplex(256);
        let (_node, theirs) = duplex(256);
        let task = tokio::spawn(tunnel(ours, theirs));
        let (from, to) = tokio::io::split(client);
        let mut reader = Reader::new(from, End::Server);
        let since = Instant::now();
        for times in 1..4 {
            let event = reader.next().await.expect("an event");
            assert!(matches!(event, Some(Event::Ping(_))), "{event:?}");
            assert_eq!(since.elapsed(), limits::STREAM_PING * times);
        }
        drop((reader, to));
        task.await.expect("a task");
    }

    #[tokio::test]
    async fn text_is_no_tunnel() {
        let (client, ours) = duplex(256);
        let (mut node, theirs) = duplex(256);
        let task = tokio::spawn(tunnel(ours, theirs));
        let (mut from, mut to) = tokio::io::split(client);
        to.write_all(b"\x81\x81\0\0\0\0a").await.expect("written");
        assert_eq!(node.read(&mut [0; 1]).await.expect("read"), 0);
        assert_eq!(from.read(&mut [0; 1]).await.expect("read"), 0);
        task.await.expect("a task");
    }
}
