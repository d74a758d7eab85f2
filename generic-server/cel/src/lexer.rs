//! Source text to tokens. Longest match wins, as in cel-go's grammar; text that fits no token is reported and skipped.

use std::ops::Range;

/// A token and where it starts, in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) bytes: Range<usize>,
    pub(crate) offset: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Ident,
    /// `` `with-dashes` ``
    Escaped,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    True,
    False,
    Null,
    /// An operator or bracket, compared by its text.
    Punct(&'static str),
    End,
}

const PUNCT: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];

/// The tokens, ended by one of kind `End`, and the places and texts that are none.
pub(crate) fn tokens(source: &str) -> (Vec<Token>, Vec<(u32, String)>) {
    let mut out = Vec::new();
    let mut faults = Vec::new();
    let (mut at, mut offset) = (0, 0);
    let advance = |from: usize, to: usize| source[from..to].chars().count() as u32;
    while at < source.len() {
        let rest = &source[at..];
        let step = match next(rest) {
            Step::Skip(len) => len,
            Step::Token(kind, len) => {
                out.push(Token {
                    kind,
                    bytes: at..at + len,
                    offset,
                });
                len
            }
            Step::Fault(len) => {
                faults.push((offset, rest[..len].to_string()));
                len
            }
        };
        offset += advance(at, at + step);
        at += step;
    }
    out.push(Token {
        kind: TokenKind::End,
        bytes: at..at,
        offset,
    });
    (out, faults)
}

enum Step {
    Skip(usize),
    Token(TokenKind, usize),
    Fault(usize),
}

fn next(rest: &str) -> Step {
    let bytes = rest.as_bytes();
    let first = bytes[0];
    if first.is_ascii_whitespace() {
        return Step::Skip(run(bytes, |b| b.is_ascii_whitespace()));
    }
    if rest.starts_with("//") {
        return Step::Skip(rest.find('\n').unwrap_or(rest.len()));
    }
    match first {
        b'0'..=b'9' => return number(rest),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => return number(rest),
        b'"' | b'\'' => return quoted(rest, 0, false, TokenKind::String),
        b'`' => return escaped_ident(rest),
        _ => {}
    }
    if let Some((skip, raw, kind)) = prefix(bytes) {
        return quoted(rest, skip, raw, kind);
    }
    if first.is_ascii_alphabetic() || first == b'_' {
        let len = run(bytes, |b| b.is_ascii_alphanumeric() || b == b'_');
        let kind = match &rest[..len] {
            "true" => TokenKind::True,
            "false" => TokenKind::False,
            "null" => TokenKind::Null,
            "in" => TokenKind::Punct("in"),
            _ => TokenKind::Ident,
        };
        return Step::Token(kind, len);
    }
    match PUNCT.iter().find(|punct| rest.starts_with(**punct)) {
        Some(punct) => Step::Token(TokenKind::Punct(punct), punct.len()),
        // `=`, `&` and `|` fail on what follows them, the others on themselves.
        None if matches!(first, b'=' | b'&' | b'|') => {
            Step::Fault(1 + rest[1..].chars().next().map_or(0, char::len_utf8))
        }
        None => Step::Fault(rest.chars().next().map_or(1, char::len_utf8)),
    }
}

fn run(bytes: &[u8], mut fits: impl FnMut(u8) -> bool) -> usize {
    bytes.iter().position(|b| !fits(*b)).unwrap_or(bytes.len())
}

fn number(rest: &str) -> Step {
    let bytes = rest.as_bytes();
    if rest.starts_with("0x") {
        let hex = run(&bytes[2..], |b| b.is_ascii_hexdigit());
        if hex > 0 {
            let len = 2 + hex;
            return match bytes.get(len) {
                Some(b'u' | b'U') => Step::Token(TokenKind::Uint, len + 1),
                _ => Step::Token(TokenKind::Int, len),
            };
        }
    }
    let mut len = run(bytes, |b| b.is_ascii_digit());
    let mut kind = TokenKind::Int;
    if bytes.get(len) == Some(&b'.') && bytes.get(len + 1).is_some_and(u8::is_ascii_digit) {
        kind = TokenKind::Float;
        len += 1 + run(&bytes[len + 1..], |b| b.is_ascii_digit());
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let digits = bytes
            .get(len + 1 + sign..)
            .map_or(0, |tail| run(tail, |b| b.is_ascii_digit()));
        if digits > 0 {
            return Step::Token(TokenKind::Float, len + 1 + sign + digits);
        }
    }
    if kind == TokenKind::Int && matches!(bytes.get(len), Some(b'u' | b'U')) {
        return Step::Token(TokenKind::Uint, len + 1);
    }
    Step::Token(kind, len)
}

/// The length of a string prefix (`r`, `b`, `br`), whether it is raw, and what it makes.
fn prefix(bytes: &[u8]) -> Option<(usize, bool, TokenKind)> {
    let quote = |at: usize| matches!(bytes.get(at), Some(b'"' | b'\''));
    match (bytes[0], bytes.get(1)) {
        (b'r' | b'R', _) if quote(1) => Some((1, true, TokenKind::String)),
        (b'b' | b'B', _) if quote(1) => Some((1, false, TokenKind::Bytes)),
        (b'b' | b'B', Some(b'r' | b'R')) if quote(2) => Some((2, true, TokenKind::Bytes)),
        _ => None,
    }
}

fn quoted(rest: &str, skip: usize, raw: bool, kind: TokenKind) -> Step {
    let bytes = rest.as_bytes();
    let quote = bytes[skip];
    let triple = [quote; 3];
    if bytes[skip..].starts_with(&triple) {
        let mut at = skip + 3;
        while at < bytes.len() {
            if bytes[at..].starts_with(&triple) {
                return Step::Token(kind, at + 3);
            }
            if !raw && bytes[at] == b'\\' {
                match escape(&bytes[at..]) {
                    Some(len) => at += len,
                    None => return Step::Fault(boundary(rest, at + 2)),
                }
            } else {
                at += 1;
            }
        }
        // Without its end it is an empty string followed by the start of another one.
        return Step::Token(kind, skip + 2);
    }
    let mut at = skip + 1;
    while at < bytes.len() {
        match bytes[at] {
            b if b == quote => return Step::Token(kind, at + 1),
            b'\n' | b'\r' => return Step::Fault(at + 1),
            b'\\' if !raw => match escape(&bytes[at..]) {
                Some(len) => at += len,
                None => return Step::Fault(boundary(rest, at + 2)),
            },
            _ => at += 1,
        }
    }
    Step::Fault(rest.len())
}

/// The next character boundary at or after `at`.
fn boundary(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

/// The length of an escape sequence.
fn escape(bytes: &[u8]) -> Option<usize> {
    let hex = |count: usize| {
        let digits = bytes.get(2..2 + count)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(2 + count)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => bytes
            .get(2..4)?
            .iter()
            .all(|b| matches!(b, b'0'..=b'7'))
            .then_some(4),
        _ => None,
    }
}

fn escaped_ident(rest: &str) -> Step {
    let bytes = rest.as_bytes();
    let len = run(&bytes[1..], |b| {
        b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b' ')
    });
    if len > 0 && bytes.get(len + 1) == Some(&b'`') {
        return Step::Token(TokenKind::Escaped, len + 2);
    }
    Step::Fault(boundary(rest, (len + 2).min(rest.len())))
}

/// The text or bytes a string or bytes token stands for.
pub(crate) fn unquote(token: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut body = if bytes { &token[1..] } else { token };
    let raw = body.starts_with(['r', 'R']);
    if raw {
        body = &body[1..];
    }
    let marks = if body.len() >= 6 && (body.starts_with("\"\"\"") || body.starts_with("'''")) {
        3
    } else {
        1
    };
    let body = body[marks..body.len() - marks]
        .replace("\r\n", "\n")
        .replace('\r', "\n");
    if raw {
        return Ok(body.into_bytes());
    }
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body.as_bytes();
    while let Some(&first) = rest.first() {
        if first != b'\\' {
            out.push(first);
            rest = &rest[1..];
            continue;
        }
        let len = escape(rest).ok_or("unable to unescape string")?;
        push_escape(&rest[..len], bytes, &mut out)?;
        rest = &rest[len..];
    }
    Ok(out)
}

fn push_escape(sequence: &[u8], bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let plain = match sequence[1] {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'x' | b'X' | b'u' | b'U' => return push_code(&sequence[2..], 16, bytes, sequence[1], out),
        b'0'..=b'3' => return push_code(&sequence[1..], 8, bytes, b'0', out),
        other => other,
    };
    out.push(plain);
    Ok(())
}

fn push_code(digits: &[u8], base: u32, bytes: bool, form: u8, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let text = std::str::from_utf8(digits).map_err(|_| "unable to unescape string")?;
    let code = u32::from_str_radix(text, base).map_err(|_| "unable to unescape string")?;
    if bytes {
        if matches!(form, b'u' | b'U') {
            return Err("unable to unescape string");
        }
        out.push(u8::try_from(code).map_err(|_| "unable to unescape string")?);
        return Ok(());
    }
    let c = char::from_u32(code).ok_or("invalid unicode code point")?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}
