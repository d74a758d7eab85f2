//! A body as WebSocket messages: logs and watches, for clients that cannot read a body as it comes. Mirrors `wsstream.Reader` and
//! `WatchServer.HandleWS`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use machinery::{codec, limits};
use tokio::time::timeout;

use super::tunnel::keep_client;
use super::websocket::{End, Event, NORMAL, Reader, Writer};
use crate::client::Connection;
use crate::request::Body;

/// How a body becomes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Its bytes as they come, after an empty message that says that the connection is there.
    Bytes,
    /// The same as text in base64.
    Base64,
    /// Each line is a message of text. A piece of the body is whole lines.
    Lines,
    /// Each frame is a message of bytes, without the four bytes before it that say how long it is. A piece of the body is whole frames.
    Frames,
    /// Each document of CBOR is a message of bytes. A piece of the body is whole documents.
    Documents,
}

impl Framing {
    /// The first message in a piece of a body, and what follows it.
    fn split(self, piece: &[u8]) -> (&[u8], &[u8]) {
        let end = match self {
            Framing::Bytes | Framing::Base64 => limits::STREAM_PIECE_BYTES,
            Framing::Lines => {
                let line = piece.iter().position(|byte| *byte == b'\n');
                line.map_or(piece.len(), |at| at + 1)
            }
            Framing::Frames => {
                let (length, rest) = piece.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
                let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                return rest.split_at(length.min(rest.len()));
            }
            Framing::Documents => codec::cbor::item_length(piece).unwrap_or(piece.len()),
        };
        piece.split_at(end.min(piece.len()))
    }
}

/// Sends a body until its end or the client's.
pub async fn messages(client: impl Connection, mut body: Body, framing: Framing) {
    let (from, to) = tokio::io::split(client);
    let (mut reader, writer) = (Reader::new(from, End::Client), Writer::new(to, End::Server));
    let send = async |message: &[u8]| match framing {
        Framing::Bytes | Framing::Frames | Framing::Documents => writer.message(&[message]).await,
        Framing::Base64 => writer.text(&BASE64_STANDARD.encode(message)).await,
        Framing::Lines => writer.text(&String::from_utf8_lossy(message)).await,
    };
    let sending = async {
        if matches!(framing, Framing::Bytes | Framing::Base64) {
            send(&[]).await?;
        }
        while let Some(Ok(frame)) = body.frame().await {
            let data = frame.into_data().unwrap_or_default();
            let mut piece = &*data;
            while !piece.is_empty() {
                let (message, rest) = framing.split(piece);
                send(message).await?;
                piece = rest;
            }
        }
        writer.close(NORMAL).await
    };
    // What a client sends has no meaning, but for its end. Whether it says that it ends.
    let receiving = async {
        loop {
            match reader.next().await {
                Ok(Some(Event::Ping(payload))) => writer.pong(payload),
                Ok(Some(Event::Data { .. } | Event::Pong)) => {}
                Ok(Some(Event::Close(_))) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    };
    // They are polled to the very end: a message that is cut in the middle would be the end of the connection.
    let (mut sending, mut kept) = (std::pin::pin!(sending), std::pin::pin!(keep_client(&writer)));
    let (sent, said) = tokio::select! {
        sent = &mut sending => (sent.is_ok(), false),
        said = receiving => (false, said),
        () = &mut kept => (false, false),
    };
    if said {
        // The writer is taken in turns, so the answer comes after the message that is being sent.
        let answer = writer.close(NORMAL);
        tokio::select! {
            _ = timeout(limits::LINGER, answer) => {}
            _ = sending => {}
            () = kept => {}
        }
    } else if sent {
        let _ = timeout(limits::LINGER, reader.drain()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::full;

    #[tokio::test]
    async fn bodies_become_messages() {
        let check = async |framing: Framing, body: &'static [u8], is_text: bool, expected: &[&[u8]]| {
            let (client, ours) = tokio::io::duplex(256);
            let task = tokio::spawn(messages(ours, full(body), framing));
            let (from, _to) = tokio::io::split(client);
            let mut reader = Reader::new(from, End::Server);
            let mut got = Vec::new();
            loop {
                match reader.next().await.expect("an event") {
                    Some(Event::Data { bytes, binary, .. }) => {
                        assert_eq!(binary, !is_text);
                        got.push(bytes.to_vec());
                    }
                    Some(Event::Close(status)) => break assert_eq!(status, Some(NORMAL)),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(got, expected, "{framing:?}");
            drop((reader, _to));
            task.await.expect("a task");
        };
        check(Framing::Bytes, b"a log", false, &[b"", b"a log"]).await;
        check(Framing::Base64, b"a log", true, &[b"", b"YSBsb2c="]).await;
        check(Framing::Lines, b"{1}\n{2}\n", true, &[b"{1}\n", b"{2}\n"]).await;
        check(Framing::Lines, b"{1}\n{", true, &[b"{1}\n", b"{"]).await;
        check(Framing::Frames, b"\0\0\0\x02ab\0\0\0\x01c", false, &[b"ab", b"c"]).await;
        check(Framing::Documents, b"\xa0\x41a", false, &[b"\xa0", b"\x41a"]).await;
        check(Framing::Documents, b"\xa0\xa1", false, &[b"\xa0", b"\xa1"]).await;
        // A frame that says more than there is is what there is.
        check(Framing::Frames, b"\xff\xff\xff\xffab", false, &[b"ab"]).await;
        check(Framing::Frames, b"\0\0", false, &[b""]).await;
    }

    #[tokio::test]
    async fn a_client_that_says_that_it_ends_is_answered() {
        let (client, ours) = tokio::io::duplex(256);
        let pending = http_body_util::StreamBody::new(futures_util::stream::pending()).boxed_unsync();
        let task = tokio::spawn(messages(ours, pending, Framing::Lines));
        let (from, to) = tokio::io::split(client);
        let (mut reader, writer) = (Reader::new(from, End::Server), Writer::new(to, End::Client));
        writer.close(NORMAL).await.expect("sent");
        assert_eq!(
            reader.next().await.expect("an event"),
            Some(Event::Close(Some(NORMAL)))
        );
        task.await.expect("a task");
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_a_body_that_does_not() {
        let (client, ours) = tokio::io::duplex(256);
        let pending = http_body_util::StreamBody::new(futures_util::stream::pending()).boxed_unsync();
        let task = tokio::spawn(messages(ours, pending, Framing::Lines));
        drop(client);
        task.await.expect("a task");
    }
}
