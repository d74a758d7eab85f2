//! Frames over a connection: one reader, and a writer that several tasks share.

use std::io;

use bytes::{Bytes, BytesMut};
use machinery::limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Notify};

use super::frame::{self, BINARY, CLOSE, Decoder, End, Event, PING, PONG, TEXT};

/// Reads what the other end sends.
#[derive(Debug)]
pub struct Reader<R> {
    io: R,
    received: BytesMut,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Of the reading half of a connection to `peer`.
    pub fn new(io: R, peer: End) -> Self {
        Reader {
            io,
            received: BytesMut::new(),
            decoder: Decoder::new(peer),
        }
    }

    /// The next event; `None` at the connection's end. Cancel-safe.
    ///
    /// # Errors
    /// When the connection fails or the peer does not keep to the protocol.
    pub async fn next(&mut self) -> io::Result<Option<Event>> {
        loop {
            let event = self.decoder.next(&mut self.received);
            let event = event.map_err(|violation| io::Error::new(io::ErrorKind::InvalidData, violation))?;
            if event.is_some() {
                return Ok(event);
            }
            self.received.reserve(limits::STREAM_PIECE_BYTES);
            if self.io.read_buf(&mut self.received).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads and drops until the connection's end.
    pub async fn drain(&mut self) {
        let mut room = [0; 4096];
        while matches!(self.io.read(&mut room).await, Ok(read) if read > 0) {}
    }
}

/// Writes messages. A frame that is being written when its future is dropped leaves the connection unusable.
#[derive(Debug)]
pub struct Writer<W> {
    out: Mutex<(W, Vec<u8>)>,
    end: End,
    /// The last ping that has to be answered: one that waits gives way to the next, as the protocol allows.
    asked: parking_lot::Mutex<Bytes>,
    wake: Notify,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Of the writing half of a connection, for this end.
    pub fn new(io: W, end: End) -> Self {
        Writer {
            out: Mutex::new((io, Vec::new())),
            end,
            asked: parking_lot::Mutex::new(Bytes::new()),
            wake: Notify::new(),
        }
    }

    async fn frame(&self, opcode: u8, payload: &[&[u8]]) -> io::Result<()> {
        let mut out = self.out.lock().await;
        let (io, buffer) = &mut *out;
        buffer.clear();
        // Servers send no mask. Clients of this crate are tests, on which no proxy can be confused.
        let mask = (self.end == End::Client).then_some([0x5a, 0xc3, 0x0f, 0x96]);
        let length = payload.iter().map(|part| part.len()).sum();
        frame::put_head(opcode, length, mask, buffer);
        let head = buffer.len();
        payload.iter().for_each(|part| buffer.extend_from_slice(part));
        if let Some(mask) = mask {
            frame::unmask(buffer.get_mut(head..).unwrap_or_default(), mask, 0);
        }
        io.write_all(buffer).await?;
        io.flush().await
    }

    /// Sends a message of bytes, given in parts.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn message(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.frame(BINARY, parts).await
    }

    /// Sends a message of text.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn text(&self, text: &str) -> io::Result<()> {
        self.frame(TEXT, &[text.as_bytes()]).await
    }

    /// Asks the other end whether it is there.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn ping(&self) -> io::Result<()> {
        self.frame(PING, &[]).await
    }

    /// Says that nothing more is sent.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn close(&self, status: u16) -> io::Result<()> {
        self.frame(CLOSE, &[&status.to_be_bytes()]).await?;
        self.out.lock().await.0.shutdown().await
    }

    /// Has [`Writer::answer_pings`] answer a ping; never waits, so a reader that calls it cannot be held up by a writer.
    pub fn pong(&self, payload: Bytes) {
        *self.asked.lock() = payload;
        self.wake.notify_one();
    }

    /// Answers pings until the connection fails.
    pub async fn answer_pings(&self) -> io::Error {
        loop {
            self.wake.notified().await;
            let payload = self.asked.lock().clone();
            if let Err(error) = self.frame(PONG, &[&payload]).await {
                return error;
            }
        }
    }
}
