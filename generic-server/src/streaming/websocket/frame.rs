//! Frames: read from bytes as they come. A message of any length is passed on in pieces and never gathered.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A peer that does not keep to the protocol; its connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("websocket: {0}")]
pub struct Violation(pub &'static str);

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Whose frames are masked.
    Client,
    /// Whose frames are not.
    Server,
}

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Bytes of a control frame. The protocol's figure. Past it: the connection ends.
const CONTROL_BYTES: u64 = 125;

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of a message.
    Data {
        /// The piece; empty where a message has no bytes, or none are left for its end.
        bytes: Bytes,
        /// Whether the message is of bytes, rather than of text.
        binary: bool,
        /// Whether a message begins with it.
        first: bool,
        /// Whether the message ends with it.
        last: bool,
    },
    /// To be answered by a pong.
    Ping(Bytes),
    /// The answer to a ping.
    Pong,
    /// The peer sends nothing more; the reason, if it gives one.
    Close(Option<u16>),
}

#[derive(Debug, Clone, Copy)]
struct Payload {
    opcode: u8,
    fin: bool,
    left: u64,
    mask: [u8; 4],
    /// The byte of the mask that is next.
    at: usize,
    /// Whether a message begins with this piece.
    first: bool,
}

/// Reads frames of the other end.
#[derive(Debug)]
pub struct Decoder {
    peer: End,
    payload: Option<Payload>,
    /// The opcode of the message that is not at its end.
    message: Option<u8>,
}

impl Decoder {
    /// Of what `peer` sends.
    pub fn new(peer: End) -> Self {
        Decoder {
            peer,
            payload: None,
            message: None,
        }
    }

    /// The next event of what was received; `None` when there are too few bytes for one.
    ///
    /// # Errors
    /// When the bytes are no frames.
    pub fn next(&mut self, received: &mut BytesMut) -> Result<Option<Event>, Violation> {
        let payload = match self.payload {
            Some(payload) => payload,
            None => match self.head(received)? {
                Some(payload) => payload,
                None => return Ok(None),
            },
        };
        let here = usize::try_from(payload.left)
            .unwrap_or(usize::MAX)
            .min(received.len());
        let whole = here as u64 == payload.left;
        if !whole && (here == 0 || payload.opcode & CLOSE != 0) {
            // Control frames are short, and come whole.
            self.payload = Some(payload);
            return Ok(None);
        }
        let mut bytes = received.split_to(here);
        if self.peer == End::Client {
            unmask(&mut bytes, payload.mask, payload.at);
        }
        self.payload = (!whole).then_some(Payload {
            left: payload.left - here as u64,
            at: (payload.at + here) % 4,
            first: false,
            ..payload
        });
        self.event(payload, bytes.freeze(), whole).map(Some)
    }

    /// The head of a frame, taken off; `None` when it is not there yet.
    fn head(&mut self, received: &mut BytesMut) -> Result<Option<Payload>, Violation> {
        let mut bytes: &[u8] = received;
        let Ok(start) = bytes.try_get_u16() else {
            return Ok(None);
        };
        let [start, length] = start.to_be_bytes();
        if start & RESERVED != 0 {
            return Err(Violation("a frame has reserved bits"));
        }
        let (opcode, fin) = (start & OPCODE, start & FIN != 0);
        if (length & MASKED != 0) != (self.peer == End::Client) {
            return Err(Violation(
                "a frame is masked where it must not be, or not where it must",
            ));
        }
        let length = match length & !MASKED {
            126 => bytes.try_get_u16().map(u64::from),
            127 => bytes.try_get_u64(),
            short => Ok(u64::from(short)),
        };
        let Ok(left) = length else {
            return Ok(None);
        };
        let mut mask = [0; 4];
        if self.peer == End::Client && bytes.try_copy_to_slice(&mut mask).is_err() {
            return Ok(None);
        }
        let first = match (opcode, self.message) {
            (CONTINUATION, None) => return Err(Violation("a frame continues no message")),
            (TEXT | BINARY, Some(_)) => return Err(Violation("a message begins inside another")),
            (CLOSE | PING | PONG, _) if !fin || left > CONTROL_BYTES => {
                return Err(Violation("a control frame is too long, or in parts"));
            }
            (TEXT | BINARY, None) => {
                self.message = Some(opcode);
                true
            }
            (CONTINUATION | CLOSE | PING | PONG, _) => false,
            _ => return Err(Violation("a frame is of no known kind")),
        };
        if left >> 63 != 0 {
            return Err(Violation("a frame is too long"));
        }
        let taken = received.len() - bytes.len();
        received.advance(taken);
        Ok(Some(Payload {
            opcode,
            fin,
            left,
            mask,
            at: 0,
            first,
        }))
    }

    fn event(&mut self, payload: Payload, mut bytes: Bytes, whole: bool) -> Result<Event, Violation> {
        Ok(match payload.opcode {
            PING => Event::Ping(bytes),
            PONG => Event::Pong,
            CLOSE if bytes.len() == 1 => return Err(Violation("a close frame is cut short")),
            CLOSE => Event::Close(bytes.try_get_u16().ok()),
            _ => {
                let last = whole && payload.fin;
                let binary = self.message == Some(BINARY);
                if last {
                    self.message = None;
                }
                Event::Data {
                    bytes,
                    binary,
                    first: payload.first,
                    last,
                }
            }
        })
    }
}

/// Takes the mask off, or puts it on: `at` is its byte for the first one.
pub(super) fn unmask(bytes: &mut [u8], mask: [u8; 4], at: usize) {
    for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle().skip(at % 4)) {
        *byte ^= mask;
    }
}

/// The head of a whole frame.
pub(super) fn put_head(opcode: u8, length: usize, mask: Option<[u8; 4]>, out: &mut Vec<u8>) {
    out.put_u8(FIN | opcode);
    let masked = if mask.is_some() { MASKED } else { 0 };
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => out.put_u8(masked | short),
        (_, Ok(middle)) => {
            out.put_u8(masked | 126);
            out.put_u16(middle);
        }
        _ => {
            out.put_u8(masked | 127);
            out.put_u64(length as u64);
        }
    }
    out.extend(mask.iter().flatten());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(peer: End, bytes: &[u8], step: usize) -> Result<Vec<Event>, Violation> {
        let (mut decoder, mut received) = (Decoder::new(peer), BytesMut::new());
        let mut events = Vec::new();
        for piece in bytes.chunks(step) {
            received.extend_from_slice(piece);
            while let Some(event) = decoder.next(&mut received)? {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// A masked frame.
    fn frame(start: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [0x11, 0x22, 0x33, 0x44];
        let mut out = Vec::new();
        put_head(start & OPCODE, payload.len(), Some(mask), &mut out);
        out[0] = start;
        let mut masked = payload.to_vec();
        unmask(&mut masked, mask, 0);
        out.extend(masked);
        out
    }

    /// The messages of some bytes, and what came between.
    fn messages(bytes: &[u8], step: usize) -> Result<(Vec<Vec<u8>>, Vec<Event>), Violation> {
        let (mut whole, mut open, mut others) = (Vec::new(), None, Vec::new());
        for event in decode(End::Client, bytes, step)? {
            let Event::Data {
                bytes, first, last, ..
            } = event
            else {
                others.push(event);
                continue;
            };
            assert_eq!(first, open.is_none());
            open.get_or_insert_with(Vec::new).extend_from_slice(&bytes);
            if last {
                whole.extend(open.take());
            }
        }
        Ok((whole, others))
    }

    #[test]
    fn messages_are_read_in_any_pieces() {
        let long = vec![7; 70_000];
        let bytes = [
            frame(FIN | BINARY, b"one"),
            frame(TEXT, b"tw"),
            frame(FIN | PING, b"?"),
            frame(CONTINUATION, b""),
            frame(FIN, b"o"),
            frame(FIN | BINARY, b""),
            frame(FIN | BINARY, &vec![1; 300]),
            frame(FIN | BINARY, &long),
            frame(FIN | PONG, b""),
            frame(FIN | CLOSE, &[3, 0xe8]),
        ]
        .concat();
        let expected = vec![b"one".to_vec(), b"two".to_vec(), vec![], vec![1; 300], long];
        let between = vec![
            Event::Ping(Bytes::from_static(b"?")),
            Event::Pong,
            Event::Close(Some(1000)),
        ];
        for step in [1, 2, 3, 7, 1000, bytes.len()] {
            let got = messages(&bytes, step).expect("messages");
            assert_eq!(got, (expected.clone(), between.clone()), "{step}");
        }
    }

    #[test]
    fn frames_of_a_server_are_not_masked() {
        let mut bytes = Vec::new();
        put_head(BINARY, 2, None, &mut bytes);
        bytes.extend(b"hi");
        let hi = Event::Data {
            bytes: Bytes::from_static(b"hi"),
            binary: true,
            first: true,
            last: true,
        };
        assert_eq!(decode(End::Server, &bytes, 9), Ok(vec![hi]));
        assert!(decode(End::Client, &bytes, 9).is_err());
        assert!(decode(End::Server, &frame(FIN | BINARY, b"hi"), 99).is_err());
    }

    #[test]
    fn hostile_frames_end_the_connection() {
        let check = |bytes: &[u8]| assert!(decode(End::Client, bytes, bytes.len()).is_err(), "{bytes:?}");
        check(&frame(FIN | 0x40 | BINARY, b""));
        check(&frame(FIN | 3, b""));
        check(&frame(FIN | 11, b""));
        check(&frame(FIN, b"continues nothing"));
        check(&[frame(BINARY, b"a"), frame(FIN | BINARY, b"b")].concat());
        check(&frame(PING, b"in parts"));
        check(&frame(FIN | PING, &[0; 126]));
        check(&frame(FIN | CLOSE, b"1"));
        check(b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0");
        assert!(decode(End::Client, &frame(FIN | PING, &[0; 125]), 999).is_ok());
    }

    #[test]
    fn an_endless_frame_is_passed_on_in_pieces() {
        let head = b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0";
        let events = decode(End::Client, &[&head[..], &[1; 10]].concat(), 7).expect("events");
        assert_eq!(events.len(), 2, "{events:?}");
    }

    #[test]
    fn any_bytes_end_in_events_or_a_violation() {
        let good = [
            frame(BINARY, b"one"),
            frame(FIN | PING, b"?"),
            frame(FIN, b"o"),
            frame(FIN | BINARY, &vec![1; 300]),
            frame(FIN | CLOSE, &[3, 0xe8]),
        ]
        .concat();
        let mut seed = 11_u64;
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
            let _ = decode(End::Client, &bytes, 1 + random() % 64);
        }
    }
}
