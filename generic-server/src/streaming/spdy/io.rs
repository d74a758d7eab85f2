//! Frames over a connection: one reader, and a writer that several tasks share.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use machinery::limits;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, Notify};

use super::Violation;
use super::block::Deflater;
use super::frame::{self, Decoder, Frame};

fn violation(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}

/// Reads the frames of a connection.
#[derive(Debug)]
pub struct Reader<R> {
    io: R,
    received: BytesMut,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Of the reading half of a connection.
    pub fn new(io: R) -> Self {
        Reader {
            io,
            received: BytesMut::new(),
            decoder: Decoder::default(),
        }
    }

    /// The next frame; `None` at the connection's end. Cancel-safe.
    ///
    /// # Errors
    /// When the connection fails or the peer does not keep to the protocol.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.next(&mut self.received).map_err(violation)? {
                return Ok(Some(frame));
            }
            self.received.reserve(limits::STREAM_PIECE_BYTES);
            if self.io.read_buf(&mut self.received).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[derive(Debug)]
struct Out<W> {
    io: W,
    deflater: Deflater,
    buffer: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> Out<W> {
    async fn send(&mut self) -> io::Result<()> {
        self.io.write_all(&self.buffer).await?;
        self.io.flush().await
    }
}

/// Writes frames. A frame that is being written when its future is dropped leaves the connection unusable.
#[derive(Debug)]
pub struct Writer<W> {
    out: Mutex<Out<W>>,
    /// The last PING that has to be answered: one that waits gives way to the next.
    asked: AtomicU32,
    wake: Notify,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Of the writing half of a connection.
    pub fn new(io: W) -> Self {
        Writer {
            out: Mutex::new(Out {
                io,
                deflater: Deflater::default(),
                buffer: Vec::new(),
            }),
            asked: AtomicU32::new(0),
            wake: Notify::new(),
        }
    }

    async fn write(
        &self,
        fill: impl FnOnce(&mut Deflater, &mut Vec<u8>) -> Result<(), Violation>,
    ) -> io::Result<()> {
        let mut out = self.out.lock().await;
        let Out { deflater, buffer, .. } = &mut *out;
        buffer.clear();
        fill(deflater, buffer).map_err(violation)?;
        out.send().await
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn open(&self, stream: u32, headers: &[(&str, &str)]) -> io::Result<()> {
        self.write(|deflater, out| {
            frame::open(stream, &deflater.block(headers)?, out);
            Ok(())
        })
        .await
    }

    /// Accepts a stream.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn reply(&self, stream: u32) -> io::Result<()> {
        self.write(|deflater, out| {
            frame::reply(stream, &deflater.block(&[])?, out);
            Ok(())
        })
        .await
    }

    /// Sends data, in frames of [`limits::STREAM_PIECE_BYTES`] at most. `last`: nothing follows on this stream.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn data(&self, stream: u32, data: &[u8], last: bool) -> io::Result<()> {
        let mut pieces = data.chunks(limits::STREAM_PIECE_BYTES).peekable();
        if pieces.peek().is_none() {
            return self.piece(stream, data, last).await;
        }
        while let Some(piece) = pieces.next() {
            self.piece(stream, piece, last && pieces.peek().is_none()).await?;
        }
        Ok(())
    }

    async fn piece(&self, stream: u32, data: &[u8], last: bool) -> io::Result<()> {
        self.write(|_, out| {
            frame::data_head(stream, data.len(), last, out);
            out.extend_from_slice(data);
            Ok(())
        })
        .await
    }

    /// Gives up a stream.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn reset(&self, stream: u32, status: u32) -> io::Result<()> {
        self.write(|_, out| {
            frame::reset(stream, status, out);
            Ok(())
        })
        .await
    }

    /// Sends a PING.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn ping(&self, id: u32) -> io::Result<()> {
        self.write(|_, out| {
            frame::ping(id, out);
            Ok(())
        })
        .await
    }

    /// Has [`Writer::answer_pings`] send a PING back; never waits, so a reader that calls it cannot be held up by a writer.
    pub fn pong(&self, id: u32) {
        self.asked.store(id, Ordering::Release);
        self.wake.notify_one();
    }

    /// Sends PINGs back until the connection fails.
    pub async fn answer_pings(&self) -> io::Error {
        loop {
            self.wake.notified().await;
            let id = self.asked.load(Ordering::Acquire);
            if let Err(error) = self.ping(id).await {
                return error;
            }
        }
    }

    /// Closes the writing half.
    pub async fn shutdown(&self) {
        // A peer that is gone needs no goodbye.
        let _ = self.out.lock().await.io.shutdown().await;
    }
}
