//! Small records that must not be lost to a damaged byte: each is written twice, each copy with its own checksum.
//!
//! A log header says which object a change belongs to, and a setting says how to read the whole store: when one of them cannot be
//! read, its neighbours cannot help. A value has one checksum only ([`record`](super::record)), since its loss is that of one object.
//!
//! Layout: `body, CRC-32 of it (4), body, CRC-32 of it (4)`. A program that knows only `body` finds it in front.

use bytes::Bytes;

const SUM: usize = 4;

/// Both copies of a body.
pub(super) fn encode(body: &[u8]) -> Bytes {
    let sum = crc32fast::hash(body).to_le_bytes();
    let mut out = Vec::with_capacity(2 * (body.len() + SUM));
    for _ in 0..2 {
        out.extend_from_slice(body);
        out.extend_from_slice(&sum);
    }
    out.into()
}

/// The body of the first copy that holds. `None` when neither does.
pub(super) fn decode(stored: &[u8]) -> Option<&[u8]> {
    let (first, second) = stored.split_at_checked(stored.len() / 2)?;
    copy(first).or_else(|| copy(second))
}

/// Whether a record can be read and yet one of its copies cannot.
pub(super) fn is_half(stored: &[u8]) -> bool {
    let (first, second) = stored.split_at(stored.len() / 2);
    copy(first).is_some() != copy(second).is_some()
}

/// Both bodies, whether they hold or not.
pub(super) fn copies(stored: &[u8]) -> Option<[&[u8]; 2]> {
    let (first, second) = stored.split_at_checked(stored.len() / 2)?;
    Some([
        first.split_last_chunk::<SUM>()?.0,
        second.split_last_chunk::<SUM>()?.0,
    ])
}

fn copy(bytes: &[u8]) -> Option<&[u8]> {
    let (body, sum) = bytes.split_last_chunk::<SUM>()?;
    (crc32fast::hash(body) == u32::from_le_bytes(*sum)).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damaged_byte_leaves_one_copy() {
        for body in [&b""[..], b"x", b"/registry/configmaps/default/a"] {
            let whole = encode(body);
            assert_eq!(decode(&whole), Some(body));
            assert!(!is_half(&whole));
            for at in 0..whole.len() {
                for flip in [1u8, 0x80, 0xff] {
                    let mut damaged = whole.to_vec();
                    damaged[at] ^= flip;
                    assert_eq!(decode(&damaged), Some(body), "byte {at}");
                    assert!(is_half(&damaged), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn records_damaged_in_both_copies_are_not_read() {
        let mut damaged = encode(b"body").to_vec();
        damaged[0] ^= 1;
        damaged[9] ^= 1;
        assert_eq!(decode(&damaged), None);
        for short in [&b""[..], b"1", b"1234567"] {
            assert_eq!(decode(short), None);
        }
    }
}
