//! From the client to the node: input, its end, and sizes of the terminal.

use std::sync::atomic::Ordering;

use machinery::limits;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::super::websocket::Event;
use super::{CLOSE, FromClient, RESIZE, STDIN, Stdin, Streams, ToClient, ToNode};

/// The highest number of a channel.
const CHANNELS: u8 = RESIZE;

/// The size of a terminal, as clients say it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Size {
    #[serde(alias = "width")]
    width: u16,
    #[serde(alias = "height")]
    height: u16,
}

/// Sizes, of bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    pending: Vec<u8>,
    /// What came cannot be read: as upstream, all that follows is passed over.
    over: bool,
}

impl Sizes {
    /// The sizes that are complete, as the node takes them.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if self.over || self.pending.len() + bytes.len() > limits::TERMINAL_SIZE_BYTES {
            self.over = true;
            return out;
        }
        self.pending.extend_from_slice(bytes);
        let mut sizes = serde_json::Deserializer::from_slice(&self.pending).into_iter::<Size>();
        loop {
            match sizes.next() {
                Some(Ok(size)) => {
                    // A struct of two numbers has a form.
                    out.extend(serde_json::to_vec(&size).unwrap_or_default());
                    out.push(b'\n');
                }
                Some(Err(error)) if !error.is_eof() => {
                    self.over = true;
                    break;
                }
                _ => break,
            }
        }
        let read = sizes.byte_offset();
        self.pending.drain(..read.min(self.pending.len()));
        out
    }
}

/// What a message is about, by its first byte.
#[derive(Debug, Default)]
struct Message {
    channel: Option<u8>,
    /// The number that follows [`CLOSE`], once it is there.
    closes: Option<u8>,
    wrong: bool,
}

/// Carries what the client sends, until the client is gone or breaks the protocol.
pub(super) async fn run(
    streams: Streams,
    reader: &mut FromClient,
    client: &ToClient,
    node: &ToNode,
    stdin: &Stdin,
    mut opened: watch::Receiver<bool>,
) {
    // Nodes read nothing before they have all streams.
    if opened.wait_for(|opened| *opened).await.is_err() {
        return std::future::pending().await;
    }
    let mut message = Message::default();
    let mut sizes = Sizes::default();
    loop {
        let (mut bytes, last) = match reader.next().await {
            Ok(Some(Event::Data { bytes, last, .. })) => (bytes, last),
            Ok(Some(Event::Ping(payload))) => {
                client.pong(payload);
                continue;
            }
            Ok(Some(Event::Pong)) => continue,
            Ok(Some(Event::Close(_)) | None) | Err(_) => return,
        };
        if message.channel.is_none() && !bytes.is_empty() {
            message.channel = bytes.split_to(1).first().copied();
        }
        match message.channel {
            Some(CLOSE) => {
                message.wrong |= bytes.len() + usize::from(message.closes.is_some()) > 1;
                message.closes = message.closes.or(bytes.first().copied());
            }
            // Data of a stream that is closed is dropped, as the node would.
            Some(STDIN)
                if streams.stdin != 0 && !bytes.is_empty() && !stdin.closed.load(Ordering::Acquire) =>
            {
                let sent = node.data(streams.stdin, &bytes, false).await;
                stdin.closed.fetch_or(sent.is_err(), Ordering::AcqRel);
            }
            Some(RESIZE) if streams.resize != 0 => {
                let read = sizes.read(&bytes);
                if !read.is_empty() && node.data(streams.resize, &read, false).await.is_err() {
                    sizes.over = true;
                }
            }
            _ => {}
        }
        if !last {
            continue;
        }
        let ended = std::mem::take(&mut message);
        if ended.channel == Some(CLOSE) {
            match ended.closes {
                Some(STDIN) if !ended.wrong => stdin.close(node).await,
                Some(channel) if !ended.wrong && channel <= CHANNELS => {}
                _ => return,
            }
        }
    }
}
