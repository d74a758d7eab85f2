//! The tokens of a source file: names and punctuation, without comments and the contents of literals.

use std::iter::Peekable;
use std::str::CharIndices;

/// A token, as far as names are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// An identifier or a keyword.
    Name(&'a str),
    /// `::`.
    Path,
    /// Any other sign.
    Sign(char),
    /// A string, a character, a number or a lifetime.
    Literal,
}

/// Reads a file's tokens.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let rest = &text[at..];
        match c {
            _ if c.is_whitespace() => {}
            '/' if rest.starts_with("//") => skip(&mut chars, at + rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => skip(&mut chars, at + comment(rest)),
            '"' => {
                skip(&mut chars, at + quoted(rest));
                found.push(Token::Literal);
            }
            '\'' => {
                skip(&mut chars, at + apostrophe(rest));
                found.push(Token::Literal);
            }
            _ if c.is_ascii_digit() => {
                skip(&mut chars, at + word(rest));
                found.push(Token::Literal);
            }
            _ if c.is_alphabetic() || c == '_' => {
                let name = &rest[..word(rest)];
                let after = &rest[name.len()..];
                if let Some(length) = prefixed(name, after) {
                    skip(&mut chars, at + name.len() + length);
                    found.push(Token::Literal);
                } else if name == "r" && after.starts_with('#') {
                    // A raw identifier: the name itself comes next.
                    chars.next();
                } else {
                    skip(&mut chars, at + name.len());
                    found.push(Token::Name(name));
                }
            }
            ':' if rest.starts_with("::") => {
                chars.next();
                found.push(Token::Path);
            }
            _ => found.push(Token::Sign(c)),
        }
    }
    found
}

/// Goes on to a byte of the text.
fn skip(chars: &mut Peekable<CharIndices<'_>>, to: usize) {
    while chars.next_if(|(at, _)| *at < to).is_some() {}
}

/// The length of the letters and digits at the start.
fn word(text: &str) -> usize {
    text.find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(text.len())
}

/// The length of a comment in `/*` and `*/`, which nest.
fn comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        let pair = bytes.get(at..at + 2);
        depth = match pair {
            Some(b"/*") => depth + 1,
            Some(b"*/") => depth - 1,
            _ => {
                at += 1;
                continue;
            }
        };
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// The length of a string that begins with its quotation mark.
fn quoted(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character, or of a lifetime.
fn apostrophe(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escaped, _))) => {
            let after = escaped + 1;
            text.get(after..)
                .and_then(|rest| rest.find('\''))
                .map_or(text.len(), |end| after + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1 + word(&text[1..]),
    }
}

/// The length of a string after the letters that it begins with (`b`, `c`, `r`, `br`, `cr`), if this is one.
fn prefixed(letters: &str, after: &str) -> Option<usize> {
    let hashes = after.len() - after.trim_start_matches('#').len();
    match (letters, after[hashes..].starts_with('"')) {
        ("b" | "c", true) if hashes == 0 => Some(quoted(after)),
        ("b", _) if after.starts_with('\'') => Some(apostrophe(after)),
        ("r" | "br" | "cr", true) => {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = hashes + 1;
            let length = after[begin..]
                .find(&end)
                .map_or(after.len(), |at| begin + at + end.len());
            Some(length)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found: Vec<String> = tokens(text)
            .iter()
            .map(|token| match token {
                Token::Name(name) => (*name).to_string(),
                Token::Path => "::".to_string(),
                Token::Sign(c) => c.to_string(),
                Token::Literal => "''".to_string(),
            })
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn names_and_signs() {
        check("use crate::a;", "use crate :: a ;");
        check("r#type::X", "type :: X");
        check("a : b", "a : b");
        check("", "");
    }

    #[test]
    fn comments_are_left_out() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check("a /* b", "a");
        check("//", "");
    }

    #[test]
    fn literals_have_no_contents() {
        check(r#"f("a::b // \" c", d)"#, "f ( '' , d )");
        check("r#\"a\"b\"# c", "'' c");
        check("br\"a\\\" c", "'' c");
        check(r"b'\'' 'a' '\'' '\u{1}' 'ß' x", "'' '' '' '' '' x");
        check("&'a str", "& '' str");
        check("1..2", "'' . . ''");
        check("0xfe_u8 a", "'' a");
        check("\"open", "''");
    }
}
