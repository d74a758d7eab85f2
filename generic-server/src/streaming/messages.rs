//! A body as WebSocket messages: logs for clients that cannot read a body as it comes. Mirrors `wsstream.Reader`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use machinery::limits;
use tokio::time::timeout;

use super::peer::Connection;
use super::tunnel::keep_client;
use super::websocket::{End, Event, NORMAL, Reader, Writer};
use crate::request::Body;

/// Sends a body, each piece in a message, until its end or the client's. `encoded`: as text in base64.
pub async fn messages(client: impl Connection, mut body: Body, encoded: bool) {
    let (from, to) = tokio::io::split(client);
    let (mut reader, writer) = (Reader::new(from, End::Client), Writer::new(to, End::Server));
    let send = async |piece: &[u8]| match encoded {
        true => writer.text(&BASE64_STANDARD.encode(piece)).await,
        false => writer.message(&[piece]).await,
    };
    let sending = async {
        // An empty message says that the connection is there.
        send(&[]).await?;
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            for piece in data.chunks(limits::STREAM_PIECE_BYTES) {
                send(piece).await?;
            }
        }
        writer.close(NORMAL).await
    };
    // What a client sends has no meaning, but for its end.
    let receiving = async {
        loop {
            match reader.next().await {
                Ok(Some(Event::Ping(payload))) => writer.pong(payload),
                Ok(Some(Event::Data { .. } | Event::Pong)) => {}
                Ok(Some(Event::Close(_)) | None) | Err(_) => return,
            }
        }
    };
    let sent = tokio::select! {
        sent = sending => sent.is_ok(),
        () = receiving => false,
        () = keep_client(&writer) => false,
    };
    if sent {
        let _ = timeout(limits::LINGER, reader.drain()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::full;

    #[tokio::test]
    async fn each_piece_is_a_message() {
        for (encoded, expected) in [(false, &b"a log"[..]), (true, b"YSBsb2c=")] {
            let (client, ours) = tokio::io::duplex(256);
            let task = tokio::spawn(messages(ours, full("a log"), encoded));
            let (from, _to) = tokio::io::split(client);
            let mut reader = Reader::new(from, End::Server);
            let mut got = Vec::new();
            loop {
                match reader.next().await.expect("an event") {
                    Some(Event::Data { bytes, binary, .. }) => {
                        assert_eq!(binary, !encoded);
                        got.push(bytes.to_vec());
                    }
                    Some(Event::Close(status)) => break assert_eq!(status, Some(NORMAL)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(got, [b"".to_vec(), expected.to_vec()]);
            drop((reader, _to));
            task.await.expect("a task");
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_a_body_that_does_not() {
        let (client, ours) = tokio::io::duplex(256);
        let pending = http_body_util::StreamBody::new(futures_util::stream::pending()).boxed_unsync();
        let task = tokio::spawn(messages(ours, pending, false));
        drop(client);
        task.await.expect("a task");
    }
}
