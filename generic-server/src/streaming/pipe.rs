//! Two connections joined: what one end sends, the other gets, until either end is gone.

use std::io;

use machinery::limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::Connection;

/// Hands on what is read before more is taken.
async fn copy(mut from: impl AsyncRead + Unpin, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut room = vec![0; limits::STREAM_PIECE_BYTES];
    loop {
        let read = from.read(&mut room).await?;
        if read == 0 {
            return to.flush().await;
        }
        to.write_all(room.get(..read).unwrap_or_default()).await?;
        to.flush().await?;
    }
}

/// Joins a client with a node. As upstream, both connections end when one direction does; the client gets all that the node sent before.
pub async fn join(client: impl Connection, node: impl Connection) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (from_node, mut to_node) = tokio::io::split(node);
    let node_ended = tokio::select! {
        outcome = copy(from_node, &mut to_client) => outcome.is_ok(),
        _ = copy(&mut from_client, &mut to_node) => false,
    };
    let goodbye = async {
        // Ends that are gone need none.
        let _ = to_node.shutdown().await;
        let _ = to_client.shutdown().await;
        if node_ended {
            // Bytes of the client that are left unread would reset the connection, and could overtake what it was sent.
            let _ = copy(from_client, &mut tokio::io::sink()).await;
        }
    };
    let _ = timeout(limits::LINGER, goodbye).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_node_sent_arrives_before_the_end() {
        let (mut client, ours) = tokio::io::duplex(16);
        let (mut node, theirs) = tokio::io::duplex(16);
        let joined = tokio::spawn(join(ours, theirs));
        client.write_all(b"question").await.expect("written");
        let mut question = [0; 8];
        node.read_exact(&mut question).await.expect("read");
        assert_eq!(&question, b"question");
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.map(|_| all)
        });
        let answer = vec![7; 1000];
        node.write_all(&answer).await.expect("written");
        drop(node);
        assert_eq!(reading.await.expect("a task").expect("read"), answer);
        joined.await.expect("a task");
    }

    #[tokio::test]
    async fn either_end_ends_both() {
        for drops_client in [true, false] {
            let (client, ours) = tokio::io::duplex(16);
            let (node, theirs) = tokio::io::duplex(16);
            let joined = tokio::spawn(join(ours, theirs));
            let mut other = if drops_client {
                drop(client);
                node
            } else {
                drop(node);
                client
            };
            assert_eq!(other.read(&mut [0; 1]).await.expect("read"), 0);
            drop(other);
            joined.await.expect("a task");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_holds_the_writer() {
        let (mut client, ours) = tokio::io::duplex(1024);
        let (node, theirs) = tokio::io::duplex(1024);
        let joined = tokio::spawn(join(ours, theirs));
        // Both pipes and one piece are all that is between them.
        let room = 2 * 1024 + limits::STREAM_PIECE_BYTES;
        let mut sent = 0;
        let sending = async {
            loop {
                sent += client.write(&[0; 512]).await.expect("written");
            }
        };
        let _ = timeout(std::time::Duration::from_millis(50), sending).await;
        assert!(sent <= room, "{sent}");
        drop(node);
        drop(client);
        joined.await.expect("a task");
    }
}
