//! Excerpts of bodies and objects in errors, within bounds.

/// The first bytes, for an error: text when it looks like JSON, else hexadecimal.
pub(super) fn summary(bytes: &[u8]) -> String {
    const MAX: usize = 30;
    if bytes.is_empty() {
        return "<empty>".into();
    }
    let (head, more) = if bytes.len() > MAX {
        (&bytes[..MAX], " ...")
    } else {
        (bytes, "")
    };
    if bytes[0] == b'{' {
        return format!("{}{more}", String::from_utf8_lossy(head));
    }
    let hex: String = head.iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_body_is_shown() {
        #[track_caller]
        fn check(bytes: &[u8], expected: &str) {
            assert_eq!(summary(bytes), expected);
        }
        check(b"", "<empty>");
        check(b"{\"a\":1}", "{\"a\":1}");
        check(b"\x01\xff", "01ff");
        check(&[b'{'; 30], &"{".repeat(30));
        check(&[b'{'; 31], &format!("{} ...", "{".repeat(30)));
    }
}
