//! Whether a pattern compiles; errors are in the words of Go's `regexp`.

use machinery::schema::check_pattern;
use regex::Regex;

/// The fault of a pattern in Go's words; `None` when it compiles (the empty pattern does).
pub(crate) fn fault(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return None;
    }
    let error = check_pattern(pattern).err()?;
    // The error points into the pattern as it was written.
    let error = Regex::new(pattern).err().unwrap_or(error);
    let words = match &error {
        regex::Error::CompiledTooBig(_) => "expression too large".to_string(),
        other => in_go_words(&other.to_string(), pattern),
    };
    Some(format!("error parsing regexp: {words}"))
}

/// Rust's message names the fault in its last line; Go's names the offending text too.
fn in_go_words(message: &str, pattern: &str) -> String {
    let last = message.lines().last().unwrap_or_default();
    let last = last.strip_prefix("error: ").unwrap_or(last);
    let caret = message
        .lines()
        .find(|l| !l.trim().is_empty() && l.trim().bytes().all(|b| b == b'^'))
        .and_then(|l| l.find('^'))
        // Rust indents the pattern by four columns.
        .and_then(|column| column.checked_sub(4));
    let rest = caret.and_then(|at| pattern.get(at..)).unwrap_or(pattern);
    match last {
        "unclosed character class" => format!("missing closing ]: `{rest}`"),
        "unclosed group" => format!("missing closing ): `{pattern}`"),
        "unopened group" => format!("unexpected ): `{pattern}`"),
        l if l.starts_with("repetition operator missing") => {
            let operator = rest.chars().next().unwrap_or('*');
            format!("missing argument to repetition operator: `{operator}`")
        }
        l if l.starts_with("look-around") => {
            let end = rest.char_indices().nth(3).map_or(rest.len(), |(i, _)| i);
            format!("invalid or unsupported Perl syntax: `{}`", &rest[..end])
        }
        l if l.starts_with("unrecognized escape") || l.starts_with("backreferences") => {
            let end = rest.char_indices().nth(2).map_or(rest.len(), |(i, _)| i);
            format!("invalid escape sequence: `{}`", &rest[..end])
        }
        "invalid character class range, the start must be <= the end" => {
            let end = rest.find(']').unwrap_or(rest.len());
            format!("invalid character class range: `{}`", &rest[..end])
        }
        "incomplete escape sequence, reached end of pattern prematurely" => {
            "trailing backslash at end of expression: ``".to_string()
        }
        other => format!("{other}: `{pattern}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn errors_have_go_text() {
        let check = |pattern: &str, expected: Option<&str>| assert_eq!(fault(pattern).as_deref(), expected);
        check("^[a-z]+$", None);
        check("", None);
        // Go reads a brace that begins no repetition as itself.
        check("^{a}$", None);
        check(
            "((a{100}){100}){100}",
            Some("error parsing regexp: expression too large"),
        );
        check("a[b", Some("error parsing regexp: missing closing ]: `[b`"));
        check("(ab", Some("error parsing regexp: missing closing ): `(ab`"));
        check("ab)", Some("error parsing regexp: unexpected ): `ab)`"));
        check(
            "*a",
            Some("error parsing regexp: missing argument to repetition operator: `*`"),
        );
        check(
            "(?=a)",
            Some("error parsing regexp: invalid or unsupported Perl syntax: `(?=`"),
        );
    }
}
