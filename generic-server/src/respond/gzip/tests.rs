use std::io::Read;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// What the whole member says, read by a decoder that knows nothing of parts.
fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(packed);
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).expect("gzip");
    assert!(
        decoder.into_inner().is_empty(),
        "one member and nothing behind it"
    );
    out
}

/// A member of these parts, each of which may refer to the one before.
fn pack(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut member = Member::begin(&mut out);
    member.store(&mut out, b"{[");
    let mut before: &[u8] = b"";
    for part in parts {
        out.extend_from_slice(&deflate(before, part));
        member.part(Checksum::of(part));
        before = part;
    }
    member.end(&mut out, b"]}\n");
    out
}

fn whole(parts: &[Vec<u8>]) -> Vec<u8> {
    [&b"{["[..], &parts.concat(), b"]}\n"].concat()
}

#[test]
fn parts_are_one_member() {
    let words = |n: usize| {
        b"metadata name pod "
            .iter()
            .copied()
            .cycle()
            .take(n)
            .collect::<Vec<u8>>()
    };
    let noise = |n: usize| {
        (0..n)
            .map(|i| (i.wrapping_mul(i).wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect::<Vec<u8>>()
    };
    for parts in [
        vec![],
        vec![vec![]],
        vec![words(1)],
        vec![words(100_000), words(100_000)],
        vec![noise(200_000), noise(70_000), words(3), noise(65_536)],
        vec![words(31 * 1024), noise(1), words(33 * 1024)],
    ] {
        assert_eq!(unpack(&pack(&parts)), whole(&parts));
    }
}

#[test]
fn what_comes_before_spares_bytes() {
    let part: Vec<u8> = (0..500u32)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes())
        .collect();
    let (alone, behind) = (deflate(b"", &part), deflate(&part, &part));
    assert!(behind.len() < alone.len() / 10);
}

#[test]
fn large_bytes_are_stored_in_pieces() {
    for len in [STORED_MOST, STORED_MOST + 1, 3 * STORED_MOST] {
        let bytes = vec![b'x'; len];
        let mut out = Vec::new();
        let mut member = Member::begin(&mut out);
        member.store(&mut out, &bytes);
        member.end(&mut out, b"");
        assert_eq!(unpack(&out), bytes);
    }
}

#[test]
fn checksums_join() {
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..500 {
        let (a, b) = (random.random_range(0..5_000), random.random_range(0..5_000));
        let bytes: Vec<u8> = (0..a + b).map(|_| random.random()).collect();
        let (before, after) = bytes.split_at(a);
        assert_eq!(
            Checksum::of(before).then(Checksum::of(after)),
            Checksum::of(&bytes),
            "{a} and {b}"
        );
    }
    let (none, some) = (Checksum::of(b""), Checksum::of(b"some"));
    assert_eq!((none.then(some), some.then(none)), (some, some));
}

#[test]
fn lengths_beyond_32_bits_join() {
    // x^(8 * 2^32) as the product of its halves.
    let half = power_of_x(1 << 31);
    assert_eq!(multiply(half, half), power_of_x(1 << 32));
    assert_eq!(
        multiply(power_of_x(3 << 40), power_of_x(5)),
        power_of_x((3 << 40) + 5)
    );
}

#[test]
fn any_parts_are_one_member() {
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..100 {
        let mut part = || {
            let (len, letters) = (random.random_range(0..20_000), random.random_range(1..=26u8));
            (0..len)
                .map(|_| b'a' + random.random_range(0..letters))
                .collect::<Vec<u8>>()
        };
        let parts: Vec<Vec<u8>> = (0..6).map(|_| part()).collect();
        assert_eq!(unpack(&pack(&parts)), whole(&parts));
    }
}

/// Text that compresses badly fills whatever room is guessed for it, as values in base64 do.
#[test]
fn parts_of_any_entropy_are_one_member() {
    let mut random = StdRng::seed_from_u64(13);
    for letters in [2u8, 16, 64, 255] {
        for len in [1, 2_000, 15_000, 32 * 1024, 60_000, 300_000] {
            let mut part = |len: usize| (0..len).map(|_| b' ' ^ random.random_range(0..letters)).collect();
            let parts: Vec<Vec<u8>> = vec![part(len), part(len / 2), part(40_000)];
            assert_eq!(
                unpack(&pack(&parts)),
                whole(&parts),
                "{len} bytes of {letters} letters"
            );
        }
    }
}
