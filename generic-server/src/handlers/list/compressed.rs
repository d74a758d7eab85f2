//! Compressed lists of cached objects: one gzip member, joined of blocks of neighbouring objects that are compressed once for each state of
//! them and shared by all lists that they are in.

mod blocks;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body::Frame;
use http_body_util::BodyExt;
use machinery::{ApiError, codec, limits};

use super::protobuf;
use super::rows::Rows;
use super::text::Layout;
use super::{ListMeta, is_a_list};
use crate::cpu::{Pool, Turns};
use crate::handlers::message::Messages;
use crate::negotiate::{Media, Negotiated, View};
use crate::request::{BoxError, Held, Response};
use crate::resource::ServedResource;
use crate::respond::gzip::{self, Checksum, Member};
use crate::respond::{GZIP_ABOVE, mark_gzip};
use blocks::{Blocks, Items, Next};

/// Blocks that are there are joined up to this size: fewer, larger writes.
const JOIN: usize = 64 * 1024;

/// Answers a list of cached objects that is large enough to be compressed. `None` for all others.
pub(super) async fn respond(
    resource: &Arc<ServedResource>,
    negotiated: &Negotiated,
    metadata: &ListMeta,
    rows: &Rows,
) -> Result<Option<Response>, ApiError> {
    let view = negotiated.view;
    let indented = negotiated.pretty && negotiated.media == Media::Json;
    let (Some(entries), Some(store)) = (rows.entries(), resource.store()) else {
        return Ok(None);
    };
    if !negotiated.gzip || indented {
        return Ok(None);
    }
    if matches!(view, View::Partial(_)) {
        return Err(is_a_list(resource));
    }
    let (items, end): (_, &[u8]) = match negotiated.media {
        Media::Json => (Items::Json(Layout::new(resource, view, metadata)?), b"]}\n"),
        Media::Protobuf => (
            Items::Protobuf(Messages::new(resource, view)?),
            codec::protobuf::LIST_END,
        ),
        Media::Yaml | Media::Cbor => return Ok(None),
    };
    let mut blocks = Blocks::new(resource, store.forms(), negotiated, items, entries.clone());
    if !blocks.exceed(GZIP_ABOVE.saturating_sub(end.len())).await? {
        return Ok(None);
    }
    let mut held = 0;
    let head = match negotiated.media {
        Media::Protobuf => {
            let announced = blocks.measure().await?;
            held = blocks.held();
            let list_kind = protobuf::list_kind(resource, view)?;
            protobuf::begin(blocks.messages()?, list_kind, metadata, announced)?
        }
        Media::Json | Media::Yaml | Media::Cbor => blocks.head().to_vec(),
    };
    let mut out = Vec::with_capacity(JOIN);
    let mut member = Member::begin(&mut out);
    out.extend_from_slice(&gzip::deflate(b"", &head));
    member.part(Checksum::of(&head));
    let body = Compressed {
        blocks,
        out,
        member: Some(member),
        end,
        turns: Turns::of_answer(Pool::shared()),
    };
    let mut response = Response::new(body.boxed_unsync());
    if held > 0 {
        response.extensions_mut().insert(Held(held));
    }
    let content_type = HeaderValue::from_static(negotiated.media.content_type());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    mark_gzip(&mut response);
    Ok(Some(response))
}

/// The body of such a list.
struct Compressed {
    blocks: Blocks,
    /// What is ready to be sent.
    out: Vec<u8>,
    /// `None` once its end is written.
    member: Option<Member>,
    /// The text behind the items.
    end: &'static [u8],
    /// Blocks that are not there are made in turns with other long computations.
    turns: Turns,
}

impl Compressed {
    /// Joins blocks that are there. True when the next one has to be made before there is anything to send.
    fn join(&mut self) -> bool {
        while self.out.len() < JOIN {
            let Some(member) = &mut self.member else {
                return false;
            };
            match self.blocks.next() {
                Next::Block(block, separator) => {
                    if !separator.is_empty() {
                        member.store(&mut self.out, separator);
                    }
                    self.out.extend_from_slice(&block.deflated);
                    member.part(Checksum {
                        crc: block.crc,
                        len: block.len,
                    });
                }
                Next::Missing => return self.out.is_empty(),
                Next::End => {
                    if let Some(member) = self.member.take() {
                        member.end(&mut self.out, self.end);
                    }
                }
            }
        }
        false
    }
}

impl http_body::Body for Compressed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        while this.join() {
            let blocks = &mut this.blocks;
            if let Err(error) = std::task::ready!(this.turns.poll(cx, |_| blocks.make())) {
                // The head is sent: all that can be done is to cut the answer short, visibly.
                tracing::error!(%error, "a list ended early");
                this.member = None;
                return Poll::Ready(Some(Err(error.into())));
            }
        }
        if this.out.is_empty() {
            return Poll::Ready(None);
        }
        let piece = std::mem::replace(&mut this.out, Vec::with_capacity(JOIN));
        Poll::Ready(Some(Ok(Frame::data(piece.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.member.is_none() && self.out.is_empty()
    }
}

/// Bytes of blocks that are held on to between the two passes over a protobuf list, where they cannot be kept for others.
const HELD: usize = limits::KEPT_BYTES;
