//! Header blocks: names and values, compressed in one stream for each direction of a connection.

use bytes::{Buf, BufMut};
use flate2::{Compress, Compression, Decompress, FlushDecompress, Status};
use machinery::limits;

use super::{Violation, dictionary};
use crate::respond::gzip::flushed;

/// Names (in lower case) and values. Several values of one name are joined by NUL on the wire.
pub type Headers = Vec<(String, String)>;

/// Bytes that are decompressed at once.
const STEP: usize = 4 * 1024;
/// The method and window of the stream's first two bytes: deflate, and the bit of a dictionary.
const METHOD: u8 = 0x0f;
const HAS_DICTIONARY: u8 = 0x20;

/// Compresses the blocks that are sent. Without the dictionary, which a reader need not see used.
#[derive(Debug)]
pub struct Deflater(Compress);

impl Default for Deflater {
    fn default() -> Self {
        Deflater(Compress::new(Compression::fast(), true))
    }
}

impl Deflater {
    /// The block of some headers.
    ///
    /// # Errors
    /// When they cannot be compressed.
    pub fn block(&mut self, headers: &[(&str, &str)]) -> Result<Vec<u8>, Violation> {
        let count = |length: usize| u32::try_from(length).map_err(|_| Violation("headers are too long"));
        let mut plain = Vec::new();
        plain.put_u32(count(headers.len())?);
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(count(text.len())?);
            plain.put_slice(text.as_bytes());
        }
        flushed(&mut self.0, &plain).ok_or(Violation("headers cannot be compressed"))
    }
}

/// Decompresses the blocks that are received.
#[derive(Debug)]
pub struct Inflater {
    state: Decompress,
    begun: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        Inflater {
            state: Decompress::new(false),
            begun: false,
        }
    }
}

impl Inflater {
    /// The headers of a block.
    ///
    /// # Errors
    /// When it is no block, or larger than [`limits::SPDY_HEADER_BYTES`].
    pub fn headers(&mut self, mut block: &[u8]) -> Result<Headers, Violation> {
        if !self.begun {
            self.begin(&mut block)?;
        }
        let mut plain = Vec::new();
        while !block.is_empty() {
            let taken = self.step(block, &mut plain)?;
            block = block.get(taken..).unwrap_or_default();
        }
        // What the window still holds back.
        self.step(&[], &mut plain)?;
        parse(&plain)
    }

    /// Reads the stream's head. The dictionary becomes the beginning of what was decompressed: a block that is stored as it is.
    fn begin(&mut self, block: &mut &[u8]) -> Result<(), Violation> {
        const WRONG: Violation = Violation("headers are not compressed as they should be");
        let (method, flags) = (
            block.try_get_u8().map_err(|_| WRONG)?,
            block.try_get_u8().map_err(|_| WRONG)?,
        );
        if method & METHOD != 8 || (u16::from(method) << 8 | u16::from(flags)) % 31 != 0 {
            return Err(WRONG);
        }
        self.begun = true;
        if flags & HAS_DICTIONARY == 0 {
            return Ok(());
        }
        if block.try_get_u32().map_err(|_| WRONG)? != dictionary::ID {
            return Err(WRONG);
        }
        let text = dictionary::text();
        let length = u16::try_from(text.len()).map_err(|_| WRONG)?;
        let mut stored = vec![0];
        stored.extend(length.to_le_bytes());
        stored.extend((!length).to_le_bytes());
        stored.extend(&text);
        let mut known = Vec::new();
        let mut rest: &[u8] = &stored;
        while !rest.is_empty() {
            let taken = self.step(rest, &mut known)?;
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.step(&[], &mut known)?;
        (known == text).then_some(()).ok_or(WRONG)
    }

    /// Decompresses some; gives the bytes taken.
    fn step(&mut self, input: &[u8], plain: &mut Vec<u8>) -> Result<usize, Violation> {
        let mut taken_in_all = 0;
        let mut room = [0; STEP];
        loop {
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let rest = input.get(taken_in_all..).unwrap_or_default();
            let status = self
                .state
                .decompress(rest, &mut room, FlushDecompress::Sync)
                .map_err(|_| Violation("headers cannot be decompressed"))?;
            let taken = usize::try_from(self.state.total_in() - read).unwrap_or_default();
            let made = usize::try_from(self.state.total_out() - written).unwrap_or_default();
            taken_in_all += taken;
            if plain.len() + made > limits::SPDY_HEADER_BYTES {
                return Err(Violation("headers are too long"));
            }
            plain.extend_from_slice(room.get(..made).unwrap_or_default());
            if status == Status::StreamEnd && taken_in_all < input.len() {
                return Err(Violation("compressed headers have ended"));
            }
            // A full buffer may hide more.
            if made < STEP && (taken_in_all == input.len() || (taken == 0 && made == 0)) {
                break;
            }
        }
        match taken_in_all == input.len() {
            true => Ok(taken_in_all),
            false => Err(Violation("headers cannot be decompressed")),
        }
    }
}

/// Reads names and values.
fn parse(mut plain: &[u8]) -> Result<Headers, Violation> {
    const SHORT: Violation = Violation("headers are cut short");
    let text = |plain: &mut &[u8]| -> Result<String, Violation> {
        let length = usize::try_from(plain.try_get_u32().map_err(|_| SHORT)?).map_err(|_| SHORT)?;
        let (bytes, rest) = plain.split_at_checked(length).ok_or(SHORT)?;
        *plain = rest;
        String::from_utf8(bytes.to_vec()).map_err(|_| Violation("headers are no text"))
    };
    let count = plain.try_get_u32().map_err(|_| SHORT)?;
    let mut headers = Headers::new();
    // A count that is a lie ends with the block's bytes: each pair takes eight at least.
    for _ in 0..count {
        headers.push((text(&mut plain)?, text(&mut plain)?));
    }
    match plain.is_empty() {
        true => Ok(headers),
        false => Err(Violation("headers have trailing bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(headers: &[(&str, &str)]) -> Headers {
        headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn blocks_are_read_as_written() {
        let (mut out, mut back) = (Deflater::default(), Inflater::default());
        for headers in [
            &[("streamtype", "error")][..],
            &[],
            &[("streamtype", "stdin"), ("port", "8080"), ("requestid", "0")],
            &[("streamtype", "stdin"), ("port", "8080"), ("requestid", "0")],
        ] {
            let block = out.block(headers).expect("a block");
            assert_eq!(back.headers(&block).expect("headers"), owned(headers));
        }
    }

    #[test]
    fn blocks_of_gos_library_are_read() {
        // What golang.org's zlib writes of `streamtype: error` and then of `streamtype: stdin`, with the dictionary.
        let mut inflater = Inflater::default();
        for (block, kind) in GO_BLOCKS {
            let headers = inflater.headers(block).expect("headers");
            assert_eq!(headers, owned(&[("streamtype", kind)]));
        }
    }

    /// Checks what a block of this plain text gives.
    #[track_caller]
    fn check(plain: &[u8], expected: Result<Headers, &str>) {
        assert_eq!(parse(plain).map_err(|violation| violation.0), expected);
    }

    #[test]
    fn blocks_are_checked() {
        check(&[0, 0, 0, 0], Ok(Headers::new()));
        check(&[0, 0, 0], Err("headers are cut short"));
        check(&[0xff; 4], Err("headers are cut short"));
        check(&[0xff; 64], Err("headers are cut short"));
        check(&[0, 0, 0, 0, 1], Err("headers have trailing bytes"));
        check(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01b", Ok(owned(&[("a", "b")])));
        check(b"\0\0\0\x01\0\0\0\x01a\0\0\0\x02b", Err("headers are cut short"));
        check(b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\0", Err("headers are no text"));
    }

    #[test]
    fn blocks_are_bounded() {
        // Four bytes of the count and of each length.
        let check = |length: usize, good: bool| {
            let value = "a".repeat(length);
            let block = Deflater::default().block(&[("n", &value)]).expect("a block");
            assert_eq!(Inflater::default().headers(&block).is_ok(), good, "{length}");
        };
        check(limits::SPDY_HEADER_BYTES - 13, true);
        check(limits::SPDY_HEADER_BYTES - 12, false);
        check(limits::SPDY_HEADER_BYTES * 100, false);
    }

    #[test]
    fn hostile_blocks_are_refused() {
        let check = |block: &[u8]| assert!(Inflater::default().headers(block).is_err(), "{block:?}");
        check(b"");
        check(b"\x78");
        check(b"\x78\x01");
        check(b"\x78\xbb\0\0\0\0");
        check(b"\x78\xbb\xe3\xc6\xa7\xc2\xff\xff\xff\xff");
        check(b"GET / HTTP/1.1\r\n\r\n");
        let good = Deflater::default()
            .block(&[("streamtype", "error")])
            .expect("a block");
        for at in 0..good.len() {
            let _ = Inflater::default().headers(&good[..at]);
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // It may be read as something else, in bounds; what counts is that it ends.
                let _ = Inflater::default().headers(&bad);
            }
        }
    }

    const GO_BLOCKS: [(&[u8], &str); 2] = [
        (
            &[
                0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x62, 0x60, 0x60, 0x60, 0x04, 0xa7, 0xb3, 0x92, 0xa2,
                0xd4, 0xc4, 0x5c, 0x68, 0x51, 0xc2, 0x9a, 0x0a, 0x0a, 0x68, 0x00, 0x00, 0x00, 0x00, 0xff,
                0xff,
            ],
            "error",
        ),
        (
            &[
                0xc2, 0x2e, 0x55, 0x5c, 0x92, 0x92, 0x99, 0x07, 0x00, 0x00, 0x00, 0xff, 0xff,
            ],
            "stdin",
        ),
    ];
}
