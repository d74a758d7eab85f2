//! Large answers, made piece by piece while they are sent: memory stays bounded by the piece, whatever the list's length.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::BodyExt;
use machinery::ApiError;

use super::json::Indenter;
use super::{GZIP_ABOVE, finish, mark_gzip};
use crate::negotiate::{Media, Negotiated};
use crate::request::{BoxError, Response};

/// The size of a piece. As large as the bound for compression, so that the first piece decides.
const PIECE: usize = GZIP_ABOVE + 1;
/// Room behind a piece for the item that completes it, at first and at most: growing a piece copies it.
const ROOM: usize = 8 << 10;
const MOST_ROOM: usize = 256 << 10;

/// Writes compact JSON piece by piece.
pub(crate) trait Fill: Send {
    /// Appends at least one item; false when nothing is left to append.
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<bool, ApiError>;
}

/// Answers what `source` writes: at once when it is small, else as a stream.
pub(crate) fn respond(
    negotiated: &Negotiated,
    mut source: impl Fill + Unpin + 'static,
) -> Result<Response, ApiError> {
    let mut first = Vec::new();
    if negotiated.media != Media::Json {
        while source.fill(&mut first)? {}
        return finish(negotiated, first, StatusCode::OK);
    }
    let mut more = true;
    while more && first.len() < PIECE {
        more = source.fill(&mut first)?;
    }
    if !more {
        return finish(negotiated, first, StatusCode::OK);
    }
    let mut body = Pieces {
        source,
        first: Some(first),
        room: ROOM,
        indenter: negotiated.pretty.then(Indenter::default),
        gzip: negotiated
            .gzip
            .then(|| GzEncoder::new(Vec::new(), Compression::fast())),
        done: false,
    };
    if !negotiated.pretty {
        body.first.get_or_insert_default().shrink_to_fit();
    }
    let mut response = Response::new(body.boxed_unsync());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if negotiated.gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}

struct Pieces<S> {
    source: S,
    first: Option<Vec<u8>>,
    /// What pieces need beyond their size, as far as has been seen.
    room: usize,
    indenter: Option<Indenter>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    done: bool,
}

impl<S: Fill> Pieces<S> {
    /// The next piece of the body; empty at the end, and sometimes while the compressor gathers.
    fn next(&mut self) -> Result<Vec<u8>, BoxError> {
        let mut piece = match self.first.take() {
            Some(first) => first,
            None => {
                let mut piece = Vec::with_capacity(PIECE + self.room);
                while piece.len() < PIECE {
                    if !self.source.fill(&mut piece)? {
                        self.done = true;
                        if self.indenter.is_none() {
                            piece.push(b'\n');
                        }
                        break;
                    }
                }
                let beyond = piece.len().saturating_sub(PIECE);
                self.room = self.room.max(beyond.min(MOST_ROOM));
                piece
            }
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
}

impl<S: Fill + Unpin> http_body::Body for Pieces<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        while !this.done {
            match this.next() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Poll::Ready(Some(Ok(Frame::data(piece.into())))),
                Err(error) => {
                    // The head is sent: all that can be done is to cut the answer short, visibly.
                    tracing::error!(%error, "a list ended early");
                    this.done = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}
