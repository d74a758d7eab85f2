//! Large answers, made piece by piece while they are sent: memory stays bounded by the piece, for lists of any length.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt;
use machinery::{ApiError, limits};

use crate::cpu::{self, Pool, Turns};
use crate::negotiate::{Media, Negotiated};
use crate::request::{BoxError, Held, Response};
use crate::respond::json::Indenter;
use crate::respond::{GZIP_ABOVE, finish, mark_gzip, ready};

/// The size of a piece. As large as the bound for compression, so that the first piece decides.
const PIECE: usize = GZIP_ABOVE + 1;
/// Room behind a piece for the item that completes it, at first and at most: growing a piece copies it.
const ROOM: usize = 8 << 10;
const MOST_ROOM: usize = 256 << 10;

/// The addition to a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// An item, for which this many bytes were gone through.
    Item(usize),
    /// The text after the last item.
    End,
}

/// Writes a list item by item, in the negotiated encoding; JSON is written compact.
pub(crate) trait Fill: Send {
    /// Appends an item, or what comes after the last. It is not called again after that.
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<Filled, ApiError>;

    /// Bytes of items that are encoded and not written yet.
    fn held(&self) -> usize {
        0
    }
}

/// Answers what `source` writes: at once when it is small, else as a stream. `heavy` says that items are parsed or encoded rather
/// than copied: that is done in slices, in the pool for long computations.
pub(crate) async fn respond(
    negotiated: &Negotiated,
    mut source: impl Fill + Unpin + 'static,
    heavy: bool,
) -> Result<Response, ApiError> {
    let (mut first, mut worked) = (Vec::new(), 0);
    while first.len() < PIECE {
        match source.fill(&mut first)? {
            Filled::Item(bytes) => worked += bytes,
            Filled::End if negotiated.media == Media::Json => {
                return finish(negotiated, first, StatusCode::OK);
            }
            Filled::End => return Ok(ready(negotiated, first, StatusCode::OK)),
        }
        if heavy && worked >= limits::SLICE_BYTES {
            worked = 0;
            cpu::pause(cpu::Lane::Answers).await;
        }
    }
    let is_json = negotiated.media == Media::Json;
    let pretty = is_json && negotiated.pretty;
    if !pretty {
        first.shrink_to_fit();
    }
    let held = source.held();
    let body = Pieces {
        making: Making {
            source,
            first: Some(first),
            room: ROOM,
            ends_in_newline: is_json && !pretty,
            indenter: pretty.then(Indenter::default),
            gzip: negotiated
                .gzip
                .then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            done: false,
        },
        turns: (heavy || pretty || negotiated.gzip).then(|| Turns::of_answer(Pool::shared())),
    };
    let mut response = Response::new(body.boxed_unsync());
    if held > 0 {
        response.extensions_mut().insert(Held(held));
    }
    let content_type = HeaderValue::from_static(negotiated.media.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    if negotiated.gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}

/// What `source` writes, up to the item that passes `limit`.
pub(crate) async fn beginning(mut source: impl Fill, limit: usize) -> Result<Vec<u8>, ApiError> {
    let (mut text, mut worked) = (Vec::new(), 0);
    while text.len() <= limit {
        let Filled::Item(bytes) = source.fill(&mut text)? else {
            break;
        };
        worked += bytes;
        if worked >= limits::SLICE_BYTES {
            worked = 0;
            cpu::pause(cpu::Lane::Answers).await;
        }
    }
    Ok(text)
}

struct Pieces<S> {
    making: Making<S>,
    /// Pieces that take long to make are made in turns with other long computations.
    turns: Option<Turns>,
}

struct Making<S> {
    source: S,
    first: Option<Vec<u8>>,
    /// The most room that pieces have needed beyond their size so far.
    room: usize,
    ends_in_newline: bool,
    indenter: Option<Indenter>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

impl<S: Fill> Making<S> {
    /// The next piece of the body; empty at the end, and sometimes while the compressor gathers.
    fn next(&mut self) -> Result<Vec<u8>, BoxError> {
        let mut piece = match self.first.take() {
            Some(first) => first,
            None => self.fill()?,
        };
        if let Some(indenter) = &mut self.indenter {
            let mut indented = Vec::with_capacity(piece.len() * 2);
            indenter.feed(&piece, &mut indented);
            piece = indented;
        }
        let Some(mut gzip) = self.gzip.take() else {
            return Ok(piece);
        };
        gzip.write_all(&piece)?;
        if self.done {
            return Ok(gzip.finish()?);
        }
        let out = std::mem::take(gzip.get_mut());
        self.gzip = Some(gzip);
        Ok(out)
    }

    /// A piece, smaller than others where its items take long to encode.
    fn fill(&mut self) -> Result<Vec<u8>, ApiError> {
        let mut piece = Vec::with_capacity(PIECE + self.room);
        let mut worked = 0;
        while piece.len() < PIECE && worked < limits::SLICE_BYTES {
            match self.source.fill(&mut piece)? {
                Filled::Item(bytes) => worked += bytes,
                Filled::End => {
                    self.done = true;
                    if self.ends_in_newline {
                        piece.push(b'\n');
                    }
                    break;
                }
            }
        }
        let beyond = piece.len().saturating_sub(PIECE);
        self.room = self.room.max(beyond.min(MOST_ROOM));
        Ok(piece)
    }
}

impl<S: Fill + Unpin> http_body::Body for Pieces<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Pieces { making, turns } = self.get_mut();
        while !making.done {
            let piece = match turns {
                Some(turns) => std::task::ready!(turns.poll(cx, |_| making.next())),
                None => making.next(),
            };
            match piece {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                Err(error) => {
                    // The head is sent: all that can be done is to cut the answer short, visibly.
                    tracing::error!(%error, "a list ended early");
                    making.done = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.making.done
    }
}
