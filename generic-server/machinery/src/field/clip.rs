//! Texts of bounded length: the part of a client's value that errors show does not grow with the value.

use std::fmt::{self, Display, Write};

/// Marks the omitted part of a shortened text.
const MORE: &str = "...";

/// Gathers text up to a limit, then stops the writer.
struct Clip {
    out: String,
    limit: usize,
}

impl Write for Clip {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.limit.saturating_sub(self.out.len());
        if text.len() <= room {
            self.out.push_str(text);
            return Ok(());
        }
        self.out.push_str(&text[..text.floor_char_boundary(room)]);
        self.out.push_str(MORE);
        Err(fmt::Error)
    }
}

/// The text of a value, cut when it is longer than `limit` bytes. No more than that is rendered.
pub fn clip(limit: usize, value: &(impl Display + ?Sized)) -> String {
    let mut clip = Clip {
        out: String::new(),
        limit,
    };
    // The error says that the limit was met.
    let _ = write!(clip, "{value}");
    clip.out
}

/// A text that is there already, cut when it is longer than `limit` bytes.
pub fn clip_text(limit: usize, mut text: String) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str(MORE);
        text.shrink_to_fit();
    }
    text
}

/// The longest form of one byte in a JSON string.
const LONGEST_ESCAPE: usize = 6;

/// The bytes of a byte of a JSON string.
fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => LONGEST_ESCAPE,
        _ => 1,
    }
}

/// The same of a text that is sent as JSON: the limit is of its escaped bytes.
pub fn clip_escaped(limit: usize, mut text: String) -> String {
    if text.len() <= limit / LONGEST_ESCAPE {
        return text;
    }
    let mut room = limit;
    let over = text
        .bytes()
        .position(|byte| match room.checked_sub(escaped(byte)) {
            Some(left) => {
                room = left;
                false
            }
            None => true,
        });
    if let Some(over) = over {
        text.truncate(text.floor_char_boundary(over));
        text.push_str(MORE);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_past_the_limit_alone() {
        for (limit, expected) in [(5, "a\u{e9}bc"), (4, "a\u{e9}b..."), (2, "a..."), (0, "...")] {
            assert_eq!(clip(limit, "a\u{e9}bc"), expected);
            assert_eq!(clip_text(limit, "a\u{e9}bc".into()), expected);
        }
        assert_eq!(clip(0, ""), "");
    }

    #[test]
    fn escapes_count() {
        #[track_caller]
        fn check(limit: usize, text: &str, expected: &str) {
            assert_eq!(clip_escaped(limit, text.into()), expected);
        }
        check(5, "a\u{e9}bc", "a\u{e9}bc");
        check(4, "a\u{e9}bc", "a\u{e9}b...");
        check(2, "a\u{e9}bc", "a...");
        check(4, "a\"b", "a\"b");
        check(3, "a\"b", "a\"...");
        check(2, "a\"b", "a...");
        check(6, "\u{1}", "\u{1}");
        check(5, "\u{1}", "...");
        check(0, "", "");
        for byte in 0..0x80_u8 {
            let text = char::from(byte).to_string();
            let quoted = serde_json::to_string(&text).unwrap();
            assert_eq!(escaped(byte), quoted.len() - 2, "{quoted}");
        }
    }

    #[test]
    fn hidden_text_is_not_rendered() {
        let value: serde_json::Value = (0..1_000_000).collect();
        let text = clip(10, &value);
        assert_eq!(text, "[0,1,2,3,4...");
        assert!(text.capacity() < 1_000);
    }
}
