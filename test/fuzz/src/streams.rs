//! What clients and nodes send over streams that leave HTTP.

use bytes::BytesMut;
use generic_server::streaming::{spdy, websocket};
use machinery::limits;

use crate::halves;

/// The frames of a node or of a client, as they come: whole, and cut in two where the first NUL is.
pub fn spdy(data: &[u8]) {
    let (_, rest) = halves(data);
    let whole = spdy_frames(&[data]);
    let parts = spdy_frames(&[&data[..data.len() - rest.len()], rest]);
    assert_eq!(whole, parts, "frames do not depend on how they come");
}

/// What frames say, with the data of a stream joined, and whether they end in a violation.
fn spdy_frames(parts: &[&[u8]]) -> (Vec<spdy::Frame>, bool) {
    let (mut decoder, mut received) = (spdy::Decoder::default(), BytesMut::new());
    let mut frames: Vec<spdy::Frame> = Vec::new();
    let mut bytes = 0;
    for part in parts {
        received.extend_from_slice(part);
        bytes += part.len();
        loop {
            match decoder.next(&mut received) {
                Ok(Some(frame)) => add(&mut frames, frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    let mut taken = 0;
    for frame in &frames {
        match frame {
            spdy::Frame::Data { bytes, .. } => taken += bytes.len(),
            spdy::Frame::Open { headers, .. } => {
                let size: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                assert!(size <= limits::SPDY_HEADER_BYTES, "headers are bounded: {size}");
            }
            _ => {}
        }
    }
    assert!(taken <= bytes, "no more data than was received");
    (frames, false)
}

/// Appends a frame, or joins it with the one before where both are pieces of the same data.
fn add(frames: &mut Vec<spdy::Frame>, frame: spdy::Frame) {
    use spdy::Frame::Data;
    if let (
        Some(Data {
            stream,
            bytes,
            last: false,
        }),
        Data {
            stream: next,
            bytes: more,
            last,
        },
    ) = (frames.last(), &frame)
        && stream == next
    {
        let joined = Data {
            stream: *stream,
            bytes: [bytes.as_ref(), more.as_ref()].concat().into(),
            last: *last,
        };
        frames.pop();
        frames.push(joined);
        return;
    }
    frames.push(frame);
}

/// The frames of a client (a first byte that is even) or of a server.
pub fn websocket(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let peer = match kind % 2 {
        0 => websocket::End::Client,
        _ => websocket::End::Server,
    };
    let (mut decoder, mut received) = (websocket::Decoder::new(peer), BytesMut::from(data));
    let (mut taken, mut open) = (0, false);
    // A violation ends a connection.
    while let Ok(Some(event)) = decoder.next(&mut received) {
        match event {
            websocket::Event::Data {
                bytes, first, last, ..
            } => {
                assert_ne!(first, open, "a message begins when the one before it has ended");
                open = !last;
                taken += bytes.len();
            }
            websocket::Event::Ping(bytes) => taken += bytes.len(),
            websocket::Event::Pong | websocket::Event::Close(_) => {}
        }
    }
    assert!(taken <= data.len(), "no more bytes than were received");
}
