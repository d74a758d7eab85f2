//! PEM as Go's `encoding/pem` reads it: which block is the first one decides what is judged, so what Go passes over is passed over
//! here, and what it takes is taken.
//!
//! A block begins and ends at lines of its own, may have headers (lines with a colon behind the first), and is skipped whole when
//! its end does not match or its content is no base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'p> {
    /// The label after `BEGIN`.
    pub(crate) kind: &'p str,
    /// Whether it has headers.
    pub(crate) headers: bool,
    /// Its content.
    pub(crate) bytes: Vec<u8>,
}

/// The first block of a text, and what follows it.
pub(crate) fn first(text: &str) -> Option<(Block<'_>, &str)> {
    // From the beginning of the innermost block that is open.
    let mut open: Option<&str> = None;
    let mut rest = text;
    // The end of a block has a line break before it.
    let mut after_break = false;
    while !rest.is_empty() {
        let (line, next) = split_line(rest);
        if let (true, Some(end)) = (after_break, line.strip_prefix(END)) {
            let body = open.take().map(|open| &open[..open.len() - rest.len()]);
            if let Some(block) = body.and_then(|body| read(body, end)) {
                return Some((block, next));
            }
            // The rest of the line may begin another block.
            rest = &rest[END.len()..];
            after_break = false;
            continue;
        }
        match line.rfind(BEGIN) {
            Some(0) => open = Some(rest),
            // A beginning within a line spoils the block.
            Some(_) => open = None,
            None => {}
        }
        rest = next;
        after_break = true;
    }
    None
}

/// The first line without white space at its end, and what follows the line break.
fn split_line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let line = line.strip_suffix('\r').unwrap_or(line);
    (line.trim_end_matches([' ', '\t']), rest)
}

/// A block from its `BEGIN` up to its `END`, and the line behind that.
fn read<'p>(body: &'p str, end: &str) -> Option<Block<'p>> {
    let (line, mut body) = split_line(body);
    let kind = line.strip_prefix(BEGIN)?.strip_suffix(DASHES)?;
    if end.strip_prefix(kind)? != DASHES {
        return None;
    }
    let mut headers = false;
    while let (line, rest) = split_line(body)
        && line.contains(':')
    {
        headers = true;
        body = rest;
    }
    let content: String = body
        .chars()
        .filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n'))
        .collect();
    let bytes = STANDARD.decode(content).ok()?;
    Some(Block { kind, headers, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, bool, &[u8])>) {
        let found = first(text).map(|(block, _)| (block.kind, block.headers, block.bytes));
        let expected = expected.map(|(kind, headers, bytes)| (kind, headers, bytes.to_vec()));
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn blocks_are_found_as_go_finds_them() {
        let one = Some(("A", false, &b"abc"[..]));
        check("-----BEGIN A-----\nYWJj\n-----END A-----\n", one);
        check("-----BEGIN A-----\nYWJj\n-----END A-----", one);
        check("-----BEGIN A-----\r\nYW Jj \r\n-----END A-----\t\r\n", one);
        check("text\n-----BEGIN A-----\nYWJj\n-----END A-----\nmore", one);
        check(
            "-----BEGIN A-----\nk: v\n\nYWJj\n-----END A-----\n",
            Some(("A", true, b"abc")),
        );
        check("-----BEGIN A-----\n-----END A-----\n", Some(("A", false, b"")));
        check(
            "-----BEGIN -----\nYWJj\n-----END -----\n",
            Some(("", false, b"abc")),
        );
        check("", None);
        check("-----BEGIN A-----\nYWJj\n", None);
        check("-----BEGIN A-----\nYWJj\n-----END B-----\n", None);
        check("-----BEGIN A-----\nYWJj\n-----END A----- x\n", None);
        check("x-----BEGIN A-----\nYWJj\n-----END A-----\n", None);
        check("-----BEGIN A----\nYWJj\n-----END A-----\n", None);
        check("-----BEGIN A-----\nYWJ\n-----END A-----\n", None);
        check("-----END A-----", None);
    }

    #[test]
    fn text_outside_blocks_is_skipped() {
        let good = "-----BEGIN A-----\nYWJj\n-----END A-----\n";
        let one = Some(("A", false, &b"abc"[..]));
        check(&format!("-----BEGIN B-----\n!\n-----END B-----\n{good}"), one);
        check(&format!("-----BEGIN B-----\n{good}"), one);
        check(&format!("-----BEGIN B-----\nYWJj\n-----END C-----\n{good}"), one);
        check(&format!("\n-----END {good}"), one);
        check(&format!("\n-----END -----END {good}"), None);
        let second = first("-----BEGIN A-----\n-----END A-----\n-----BEGIN B-----\n-----END B-----\n");
        assert_eq!(
            second
                .and_then(|(_, rest)| first(rest))
                .map(|(block, _)| block.kind),
            Some("B")
        );
    }
}
