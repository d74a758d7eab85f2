//! Base64 of `format: byte`.

/// Decodes standard base64 with padding; line breaks are skipped, as Go's decoder does.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !digits.len().is_multiple_of(4) {
        return None;
    }
    let padding = digits.iter().rev().take_while(|b| **b == b'=').count();
    if padding > 2 {
        return None;
    }
    let body = &digits[..digits.len() - padding];
    let mut out = Vec::with_capacity(body.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for digit in body {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

/// Encodes standard base64 with padding.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, b| word << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            match place <= chunk.len() {
                true => out.push(char::from(DIGITS[(word >> (18 - 6 * place)) as usize & 63])),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_needs_padding_and_skips_line_breaks() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(
                super::base64(text),
                want.map(|want| want.as_bytes().to_vec()),
                "{text}"
            );
        };
        check("aGVsbG8=", Some("hello"));
        check("aGVs\nbG8=", Some("hello"));
        check("", Some(""));
        check("aGVsbG8", None);
        check("a===", None);
        for text in ["", "h", "he", "hel", "hello"] {
            assert_eq!(
                super::base64(&super::to_base64(text.as_bytes())).unwrap(),
                text.as_bytes()
            );
        }
        check("aG-s", None);
    }
}
