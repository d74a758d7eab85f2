//! Bodies whose bytes promise or nest more than they hold.

use super::attack;
use crate::{Arena, Attack, Bound, Error, Outcome, Place, Shot};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const REFUSED: Bound = Bound::codes(&[400, 413, 415, 422]);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "Protobuf: a length of 2 GiB in 20 bytes",
            "held",
            Place::Quick,
            REFUSED,
            |arena| {
                Box::pin(pods(
                    arena,
                    PROTOBUF,
                    envelope(&[0x12, 0xff, 0xff, 0xff, 0xff, 0x07]),
                ))
            },
        ),
        attack(
            "Protobuf: 700,000 empty containers in 1.4 MB",
            "5",
            Place::Large,
            REFUSED.memory(1_024.0),
            |arena| {
                Box::pin(pods(
                    arena,
                    PROTOBUF,
                    envelope(&field(2, &[0x12, 0x00].repeat(700_000))),
                ))
            },
        ),
        attack(
            "Protobuf: 1 MB of unknown fields",
            "held",
            Place::Quick,
            REFUSED,
            |arena| {
                Box::pin(pods(
                    arena,
                    PROTOBUF,
                    envelope(&[0xf8, 0x7f, 0x00].repeat(330_000)),
                ))
            },
        ),
        attack(
            "CBOR: a list of 2^62 items in 9 bytes",
            "held",
            Place::Quick,
            REFUSED,
            |arena| {
                let body = vec![0x9b, 0x40, 0, 0, 0, 0, 0, 0, 0];
                Box::pin(pods(arena, "application/cbor", body))
            },
        ),
        attack(
            "JSON: 1,000,000 lists deep",
            "held",
            Place::Quick,
            REFUSED,
            |arena| {
                let body = format!(r#"{{"x":{}"#, "[".repeat(1_000_000));
                Box::pin(pods(arena, "application/json", body.into_bytes()))
            },
        ),
        attack("JSON: 1 MB of a number", "held", Place::Quick, REFUSED, |arena| {
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"Pod","spec":{{"priority":1{}}}}}"#,
                "0".repeat(1_000_000)
            );
            Box::pin(pods(arena, "application/json", body.into_bytes()))
        }),
        attack(
            "JSON: one byte more than 3 MiB",
            "held",
            Place::Quick,
            Bound::codes(&[413]),
            |arena| Box::pin(pods(arena, "application/json", vec![b' '; (3 << 20) + 1])),
        ),
        attack(
            "JSON: 150,000 unknown fields",
            "held",
            Place::Large,
            REFUSED.memory(256.0),
            |arena| {
                let fields: String = (0..150_000).map(|i| format!(",\"u{i}\":1")).collect();
                let body = format!(r#"{{"apiVersion":"v1","kind":"Pod"{fields}}}"#);
                Box::pin(pods(arena, "application/json", body.into_bytes()))
            },
        ),
    ]
}

async fn pods(arena: &Arena, media: &str, body: Vec<u8>) -> Result<Outcome, Error> {
    let path = arena.path("pods?fieldValidation=Strict");
    arena
        .shoot(Shot::of("POST", path).body(media, body).by(&arena.tenant))
        .await
}

/// A field with a length in front.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    loop {
        let low = u8::try_from(length & 0x7f).unwrap_or_default();
        length >>= 7;
        out.push(if length > 0 { low | 0x80 } else { low });
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(bytes);
    out
}

/// A Pod's bytes in the envelope that Kubernetes puts around protobuf.
fn envelope(raw: &[u8]) -> Vec<u8> {
    let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, raw)].concat()
}
