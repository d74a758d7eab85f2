//! Small files that one damaged byte does not take: a line, twice, each copy in a sector of its own and with a checksum of its own.
//!
//! A file of one line without padding is read, too: earlier versions wrote it.

/// The length of a copy: a sector.
pub(super) const COPY: usize = 512;

/// A line with its checksum behind it, and padded to the length of a copy.
pub(super) fn copy(line: &str) -> String {
    let sum = crc32fast::hash(line.as_bytes());
    let mut copy = format!("{line} sum {sum:08x}");
    // Once for each commit: a format's padding takes each character alone.
    copy.push_str(&" ".repeat((COPY - 1).saturating_sub(copy.len())));
    copy.push('\n');
    copy
}

/// The lines of the copies that are whole.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    bytes.chunks(COPY).filter_map(|copy| {
        let text = std::str::from_utf8(copy).ok()?.strip_suffix('\n')?;
        let (line, sum) = text.trim_end_matches(' ').rsplit_once(" sum ")?;
        (sum == format!("{:08x}", crc32fast::hash(line.as_bytes()))).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damaged_bit_leaves_one_copy() {
        let whole = copy("revision 12").repeat(2).into_bytes();
        assert_eq!(lines(&whole).collect::<Vec<_>>(), ["revision 12"; 2]);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut left = lines(&damaged);
            assert_eq!(left.next(), Some("revision 12"), "bit {bit}");
        }
    }

    #[test]
    fn a_line_alone_is_read() {
        let sum = crc32fast::hash(b"revision 7");
        let line = format!("revision 7 sum {sum:08x}\n");
        assert_eq!(lines(line.as_bytes()).collect::<Vec<_>>(), ["revision 7"]);
        for at in 0..line.len() {
            let mut damaged = line.clone().into_bytes();
            damaged[at] ^= 1;
            assert_eq!(lines(&damaged).count(), 0, "{damaged:?}");
        }
        for none in [&b""[..], b"nonsense", b"\n"] {
            assert_eq!(lines(none).count(), 0);
        }
    }
}
