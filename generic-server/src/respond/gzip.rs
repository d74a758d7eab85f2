//! One gzip member made of parts that were compressed apart.
//!
//! A part is raw deflate that ends on a byte (behind an empty stored block) and is not the last. Parts in a row are one stream: they need
//! a header before, a last block behind, and the checksum and length of the whole. The checksum of two parts follows from theirs and the
//! length of the second: CRC-32 is a remainder of polynomials over two elements, and what stands before `n` more bits is multiplied by
//! `x^n`.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};

/// Deflate, no flags, no time, fastest, unknown system: as the encoder of whole bodies writes it.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// How much of what comes before it a compressor can refer to.
const WINDOW: usize = 32 * 1024;
/// What a stored block has besides its bytes, and how many these can be.
const STORED_HEAD: usize = 5;
const STORED_MOST: usize = u16::MAX as usize;

/// The CRC-32 and length of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) crc: u32,
    pub(crate) len: u64,
}

impl Checksum {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut crc = Crc::new();
        crc.update(bytes);
        Checksum {
            crc: crc.sum(),
            len: bytes.len() as u64,
        }
    }

    /// Of these bytes and others behind them. Costs as many steps as the number of the others has bits.
    pub(crate) fn then(self, next: Checksum) -> Self {
        Checksum {
            crc: multiply(self.crc, power_of_x(next.len)) ^ next.crc,
            len: self.len.wrapping_add(next.len),
        }
    }
}

/// The polynomial of CRC-32 without its highest term; the highest bit is the constant one.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The polynomial 1.
const ONE: u32 = 1 << 31;

/// The product of two remainders.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        // By x: a term that leaves on the right comes back as the polynomial.
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// The remainder of x to the power of eight times `bytes`.
fn power_of_x(mut bytes: u64) -> u32 {
    /// Of x^8, x^16, x^32 and so on.
    const SQUARES: [u32; 64] = {
        let mut squares = [ONE >> 8; 64];
        let mut at = 1;
        while at < 64 {
            squares[at] = multiply(squares[at - 1], squares[at - 1]);
            at += 1;
        }
        squares
    };
    let mut power = ONE;
    for square in SQUARES {
        if bytes & 1 == 1 {
            power = multiply(power, square);
        }
        bytes >>= 1;
        if bytes == 0 {
            break;
        }
    }
    power
}

/// What the output of a flush ends with: a stored block without content.
const FLUSHED: [u8; 4] = [0, 0, 0xff, 0xff];

/// Compresses `text` as a part. It may refer to what ends `before`, which has to stand before it then, wherever it is sent.
pub(crate) fn deflate(before: &[u8], text: &[u8]) -> Bytes {
    let before = &before[before.len().saturating_sub(WINDOW)..];
    let mut compress = Compress::new(Compression::fast(), false);
    let known = before.is_empty() || flushed(&mut compress, before).is_some();
    let part = known.then(|| flushed(&mut compress, text)).flatten();
    let part = part.unwrap_or_else(|| {
        let mut out = Vec::new();
        text.chunks(STORED_MOST)
            .for_each(|piece| stored(&mut out, piece, false));
        out
    });
    debug_assert!(
        is_part(before, &part, text),
        "what is inflated is what was compressed"
    );
    part.into_boxed_slice().into()
}

/// Compresses to the last byte and flushes, so that the output ends on a byte. All in one call with room for whatever may come of it: a
/// compressor that has filled its output keeps the rest, and a later call says only that there is room again. `None` when that is not all.
pub(crate) fn flushed(compress: &mut Compress, text: &[u8]) -> Option<Vec<u8>> {
    let begin = compress.total_in();
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 1024);
    compress.compress_vec(text, &mut out, FlushCompress::Sync).ok()?;
    let taken = usize::try_from(compress.total_in() - begin).ok()?;
    let is_all = taken == text.len() && out.len() < out.capacity() && out.ends_with(&FLUSHED);
    is_all.then_some(out)
}

/// Whether a part is what it should be, behind what it may refer to.
fn is_part(before: &[u8], part: &[u8], text: &[u8]) -> bool {
    let mut whole = Vec::new();
    before
        .chunks(STORED_MOST)
        .for_each(|piece| stored(&mut whole, piece, false));
    whole.extend_from_slice(part);
    stored(&mut whole, &[], true);
    let mut plain = Vec::with_capacity(before.len() + text.len() + 1);
    let inflated = Decompress::new(false).decompress_vec(&whole, &mut plain, FlushDecompress::Finish);
    matches!(inflated, Ok(Status::StreamEnd)) && plain.strip_prefix(before) == Some(text)
}

/// A member that is being written.
#[derive(Debug)]
pub(crate) struct Member {
    checksum: Checksum,
}

impl Member {
    /// Begins with the header.
    pub(crate) fn begin(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&HEADER);
        Member {
            checksum: Checksum::of(b""),
        }
    }

    /// Counts a part, which the caller writes.
    pub(crate) fn part(&mut self, of: Checksum) {
        self.checksum = self.checksum.then(of);
    }

    /// Writes bytes as they are.
    pub(crate) fn store(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        for piece in bytes.chunks(STORED_MOST) {
            stored(out, piece, false);
        }
        self.part(Checksum::of(bytes));
    }

    /// Writes the last bytes as they are, and the end.
    pub(crate) fn end(mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        self.store(out, bytes);
        stored(out, &[], true);
        out.extend_from_slice(&self.checksum.crc.to_le_bytes());
        // Modulo 2^32, as the format has it.
        let [a, b, c, d, ..] = self.checksum.len.to_le_bytes();
        out.extend_from_slice(&[a, b, c, d]);
    }
}

/// A stored block, at the beginning of a byte.
fn stored(out: &mut Vec<u8>, bytes: &[u8], last: bool) {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.reserve(bytes.len() + STORED_HEAD);
    out.push(u8::from(last));
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&(!len).to_le_bytes());
    out.extend_from_slice(bytes);
}
