//! Frames: read from bytes as they come, written whole. Data is passed on in pieces and never gathered.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use machinery::limits;

use super::Violation;
use super::block::{Headers, Inflater};

/// Bytes of every frame's head.
const HEAD: usize = 8;
/// The first two bytes of a control frame: its bit, and version 3.
const CONTROL: u16 = 0x8003;
const CONTROL_BIT: u8 = 0x80;
const FIN: u8 = 1;
/// A stream's number without the bit that is reserved.
const STREAM: u32 = 0x7fff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A frame that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Some data of a stream. `last`: the peer sends no more on it.
    Data {
        /// The stream.
        stream: u32,
        /// The data, as much as was there.
        bytes: Bytes,
        /// Whether it is the stream's end.
        last: bool,
    },
    /// The peer opens a stream.
    Open {
        /// The stream.
        stream: u32,
        /// What it is for.
        headers: Headers,
        /// Whether the peer sends nothing on it.
        last: bool,
    },
    /// The peer accepts a stream.
    Reply {
        /// The stream.
        stream: u32,
        /// Whether the peer sends nothing on it.
        last: bool,
    },
    /// More headers of a stream.
    Headers {
        /// The stream.
        stream: u32,
        /// Whether it is the stream's end.
        last: bool,
    },
    /// The peer gives up a stream.
    Reset(u32),
    /// To be sent back, unless it comes back itself.
    Ping(u32),
    /// The peer takes no more streams.
    GoAway,
    /// A frame without effect here: WINDOW_UPDATE, SETTINGS and those that are not known.
    Ignored,
}

/// What a decoder is in the middle of.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// The head of a frame comes next.
    #[default]
    Head,
    /// So many bytes of a stream's data come next.
    Data { stream: u32, left: usize, last: bool },
    /// So many bytes of a control frame are awaited.
    Control { kind: u16, flags: u8, length: usize },
    /// So many bytes are passed over.
    Skip(usize),
}

/// Reads frames.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    inflater: Inflater,
}

impl Decoder {
    /// The next frame of what was received; `None` when there are too few bytes for one.
    ///
    /// # Errors
    /// When the bytes are no frames, or a control frame is larger than [`limits::SPDY_CONTROL_BYTES`].
    pub fn next(&mut self, received: &mut BytesMut) -> Result<Option<Frame>, Violation> {
        loop {
            match self.state {
                State::Head => {
                    let Some(head) = received.first_chunk::<HEAD>() else {
                        return Ok(None);
                    };
                    self.state = begin(*head)?;
                    received.advance(HEAD);
                }
                State::Data { stream, left, last } => {
                    let taken = left.min(received.len());
                    if taken == 0 && left > 0 {
                        return Ok(None);
                    }
                    let left = left - taken;
                    self.state = match left {
                        0 => State::Head,
                        _ => State::Data { stream, left, last },
                    };
                    return Ok(Some(Frame::Data {
                        stream,
                        bytes: received.split_to(taken).freeze(),
                        last: last && left == 0,
                    }));
                }
                State::Control { kind, flags, length } => {
                    if received.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Head;
                    let payload = received.split_to(length);
                    return self.control(kind, flags, &payload).map(Some);
                }
                State::Skip(left) => {
                    let taken = left.min(received.len());
                    received.advance(taken);
                    if taken < left {
                        self.state = State::Skip(left - taken);
                        return Ok(None);
                    }
                    self.state = State::Head;
                    return Ok(Some(Frame::Ignored));
                }
            }
        }
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: &[u8]) -> Result<Frame, Violation> {
        let mut number = || {
            payload
                .try_get_u32()
                .map_err(|_| Violation("a control frame is cut short"))
        };
        let last = flags & FIN != 0;
        let frame = match kind {
            SYN_STREAM => {
                let stream = number()? & STREAM;
                // The stream that it belongs to, its priority and slot have no meaning here.
                number()?;
                payload
                    .try_get_u16()
                    .map_err(|_| Violation("a control frame is cut short"))?;
                let headers = self.inflater.headers(payload)?;
                Frame::Open {
                    stream,
                    headers,
                    last,
                }
            }
            SYN_REPLY | HEADERS => {
                let stream = number()? & STREAM;
                // All blocks are one compressed stream, so each has to be read.
                self.inflater.headers(payload)?;
                match kind {
                    SYN_REPLY => Frame::Reply { stream, last },
                    _ => Frame::Headers { stream, last },
                }
            }
            RST_STREAM => Frame::Reset(number()? & STREAM),
            PING => Frame::Ping(number()?),
            GOAWAY => Frame::GoAway,
            _ => Frame::Ignored,
        };
        match frame {
            Frame::Open { stream: 0, .. }
            | Frame::Reply { stream: 0, .. }
            | Frame::Headers { stream: 0, .. } => Err(Violation("a frame is of stream 0")),
            frame => Ok(frame),
        }
    }
}

/// What a frame's head announces.
fn begin(head: [u8; HEAD]) -> Result<State, Violation> {
    let [a, b, c, d, flags, length @ ..] = head;
    let [high, middle, low] = length.map(usize::from);
    let length = high << 16 | middle << 8 | low;
    if a & CONTROL_BIT == 0 {
        let stream = u32::from_be_bytes([a, b, c, d]);
        if stream == 0 {
            return Err(Violation("a frame is of stream 0"));
        }
        let last = flags & FIN != 0;
        return Ok(State::Data {
            stream,
            left: length,
            last,
        });
    }
    if u16::from_be_bytes([a, b]) != CONTROL {
        return Err(Violation("the version is not 3"));
    }
    let kind = u16::from_be_bytes([c, d]);
    if !matches!(
        kind,
        SYN_STREAM | SYN_REPLY | RST_STREAM | PING | GOAWAY | HEADERS
    ) {
        return Ok(State::Skip(length));
    }
    if length > limits::SPDY_CONTROL_BYTES {
        return Err(Violation("a control frame is too long"));
    }
    Ok(State::Control { kind, flags, length })
}

/// A data frame's head. `length` is at most [`limits::STREAM_PIECE_BYTES`].
pub(super) fn data_head(stream: u32, length: usize, last: bool, out: &mut Vec<u8>) {
    out.put_u32(stream & STREAM);
    put_length(u8::from(last), length, out);
}

fn put_length(flags: u8, length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).unwrap_or_default() & 0x00ff_ffff;
    out.put_u32(u32::from(flags) << 24 | length);
}

fn put_control(kind: u16, flags: u8, payload: &[&[u8]], out: &mut Vec<u8>) {
    out.put_u16(CONTROL);
    out.put_u16(kind);
    put_length(flags, payload.iter().map(|part| part.len()).sum(), out);
    payload.iter().for_each(|part| out.put_slice(part));
}

/// Opens a stream, with the block of its headers.
pub(super) fn open(stream: u32, block: &[u8], out: &mut Vec<u8>) {
    put_control(SYN_STREAM, 0, &[&stream.to_be_bytes(), &[0; 6], block], out);
}

/// Accepts a stream, with the block of its headers.
pub(super) fn reply(stream: u32, block: &[u8], out: &mut Vec<u8>) {
    put_control(SYN_REPLY, 0, &[&stream.to_be_bytes(), block], out);
}

/// Refuses or gives up a stream.
pub(super) fn reset(stream: u32, status: u32, out: &mut Vec<u8>) {
    put_control(
        RST_STREAM,
        0,
        &[&stream.to_be_bytes(), &status.to_be_bytes()],
        out,
    );
}

/// Asks for an answer, or is one.
pub(super) fn ping(id: u32, out: &mut Vec<u8>) {
    put_control(PING, 0, &[&id.to_be_bytes()], out);
}

#[cfg(test)]
mod tests {
    use super::super::block::Deflater;
    use super::*;

    /// Every frame of some bytes, which arrive in pieces of `step`.
    fn decode(bytes: &[u8], step: usize) -> Result<Vec<Frame>, Violation> {
        let (mut decoder, mut received) = (Decoder::default(), BytesMut::new());
        let mut frames = Vec::new();
        for piece in bytes.chunks(step) {
            received.extend_from_slice(piece);
            while let Some(frame) = decoder.next(&mut received)? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    /// The same with the data of one stream joined.
    fn joined(frames: Vec<Frame>) -> Vec<Frame> {
        let mut out: Vec<Frame> = Vec::new();
        for frame in frames {
            let (
                Some(Frame::Data {
                    stream,
                    bytes,
                    last: false,
                }),
                Frame::Data {
                    stream: of,
                    bytes: more,
                    last,
                },
            ) = (out.last_mut(), &frame)
            else {
                out.push(frame);
                continue;
            };
            assert_eq!(*stream, *of);
            let all = [bytes.as_ref(), more].concat();
            let (stream, last) = (*of, *last);
            out.pop();
            out.push(Frame::Data {
                stream,
                bytes: all.into(),
                last,
            });
        }
        out
    }

    fn conversation() -> (Vec<u8>, Vec<Frame>) {
        let mut deflater = Deflater::default();
        let mut out = Vec::new();
        open(
            1,
            &deflater.block(&[("streamtype", "error")]).expect("a block"),
            &mut out,
        );
        reply(1, &deflater.block(&[]).expect("a block"), &mut out);
        data_head(1, 5, true, &mut out);
        out.extend(b"hello");
        data_head(3, 0, true, &mut out);
        reset(5, 3, &mut out);
        ping(2, &mut out);
        put_control(GOAWAY, 0, &[&[0; 8]], &mut out);
        put_control(9, 0, &[&[0; 8]], &mut out);
        put_control(
            HEADERS,
            FIN,
            &[
                &7_u32.to_be_bytes(),
                &deflater.block(&[("a", "b")]).expect("a block"),
            ],
            &mut out,
        );
        let frames = vec![
            Frame::Open {
                stream: 1,
                headers: vec![("streamtype".into(), "error".into())],
                last: false,
            },
            Frame::Reply {
                stream: 1,
                last: false,
            },
            Frame::Data {
                stream: 1,
                bytes: Bytes::from_static(b"hello"),
                last: true,
            },
            Frame::Data {
                stream: 3,
                bytes: Bytes::new(),
                last: true,
            },
            Frame::Reset(5),
            Frame::Ping(2),
            Frame::GoAway,
            Frame::Ignored,
            Frame::Headers {
                stream: 7,
                last: true,
            },
        ];
        (out, frames)
    }

    #[test]
    fn frames_are_read_in_any_pieces() {
        let (bytes, expected) = conversation();
        for step in 1..bytes.len() + 1 {
            let frames = decode(&bytes, step).expect("frames");
            assert_eq!(joined(frames), expected, "{step}");
        }
    }

    #[test]
    fn hostile_frames_end_the_connection() {
        let check = |bytes: &[u8], expected: &str| {
            let got = decode(bytes, bytes.len());
            assert_eq!(
                got,
                Err(Violation(match expected {
                    "version" => "the version is not 3",
                    "zero" => "a frame is of stream 0",
                    "long" => "a control frame is too long",
                    _ => "a control frame is cut short",
                })),
                "{bytes:?}"
            );
        };
        check(b"\x80\x02\0\x06\0\0\0\x04\0\0\0\x01", "version");
        check(b"\xff\xff\xff\xff\xff\xff\xff\xff", "version");
        check(b"\0\0\0\0\0\0\0\0", "zero");
        check(b"\x80\x03\0\x06\0\0\0\x02\0\0", "short");
        check(b"\x80\x03\0\x03\0\0\0\0", "short");
        check(b"\x80\x03\0\x01\0\x01\0\x01", "long");
    }

    #[test]
    fn control_frames_are_bounded() {
        let check = |length: usize, good: bool| {
            let mut bytes = Vec::new();
            put_control(GOAWAY, 0, &[&vec![0; length]], &mut bytes);
            assert_eq!(decode(&bytes, bytes.len()).is_ok(), good, "{length}");
        };
        check(limits::SPDY_CONTROL_BYTES, true);
        check(limits::SPDY_CONTROL_BYTES + 1, false);
    }

    #[test]
    fn any_bytes_end_in_frames_or_a_violation() {
        let (good, _) = conversation();
        let mut seed = 7_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed >> 33).unwrap_or_default()
        };
        for _ in 0..3_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = u8::try_from(random() % 256).unwrap_or_default();
            }
            bytes.truncate(1 + random() % bytes.len());
            let _ = decode(&bytes, 1 + random() % 64);
        }
    }
}
