//! Whether a pattern compiles; errors are in the words of Go's `regexp`.

use std::collections::HashSet;

use machinery::schema::{check_pattern, excessive_repetition, patterns_weight};
use machinery::{FieldError, FieldPath, limits};
use regex::RegexBuilder;
use serde_json::Value;

/// Compiles the patterns of a definition in slices, unless they are too large together. Nothing is reported: the validation that follows
/// comes by each of them and knows its path, and their outcomes are remembered for it.
pub(super) async fn compile(crd: &Value) {
    let mut found = Vec::new();
    collect(crd.get("spec").unwrap_or(&Value::Null), &mut found);
    if patterns_weight(found.iter().copied()) > limits::PATTERN_WEIGHT {
        return;
    }
    let mut seen = HashSet::new();
    found.retain(|pattern| seen.insert(*pattern));
    generic_server::cpu::each(found, |pattern| {
        let _ = fault(pattern);
    })
    .await;
}

/// Refuses a definition whose patterns are too large together, unless it was so before: nothing else may compile them then.
pub(super) fn too_large(crd: &Value, old: Option<&Value>) -> Option<FieldError> {
    let excessive = |crd: &Value| {
        let mut found = Vec::new();
        collect(crd.get("spec").unwrap_or(&Value::Null), &mut found);
        patterns_weight(found) > limits::PATTERN_WEIGHT
    };
    (excessive(crd) && !old.is_some_and(excessive)).then(|| {
        let why = "the regular expressions of the schemas are too large together";
        FieldError::forbidden(&FieldPath::new("spec").child("versions"), why)
    })
}

fn collect<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "pattern" => found.push(text),
                    other => collect(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// The fault of a pattern in Go's words; `None` when it compiles (the empty pattern does).
pub(crate) fn fault(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return None;
    }
    if let Some(repetition) = excessive_repetition(pattern) {
        return Some(format!(
            "error parsing regexp: invalid repeat count: `{repetition}`"
        ));
    }
    let mut error = check_pattern(pattern).err()?;
    // The error points into the pattern as it was written, which is read and not compiled.
    if matches!(error, regex::Error::Syntax(_))
        && let Err(written @ regex::Error::Syntax(_)) = RegexBuilder::new(pattern).size_limit(0).build()
    {
        error = written;
    }
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
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_are_bounded_together() {
        // 10,000 states each.
        let crd = |count: usize| {
            let properties: serde_json::Map<String, Value> = (0..count)
                .map(|n| {
                    (
                        format!("p{n}"),
                        json!({"type": "string", "pattern": format!("^\\pL{{10}}{n}")}),
                    )
                })
                .collect();
            json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": properties}}}]}})
        };
        let most = limits::PATTERN_WEIGHT / 10_010;
        assert!(too_large(&crd(most), None).is_none());
        let error = too_large(&crd(most + 1), None).expect("an error");
        assert_eq!(
            error.to_string(),
            "spec.versions: Forbidden: the regular expressions of the schemas are too large together"
        );
        assert!(
            too_large(&crd(most + 1), Some(&crd(most + 2))).is_none(),
            "it was so before"
        );
    }

    #[test]
    fn errors_have_go_text() {
        let check = |pattern: &str, expected: Option<&str>| assert_eq!(fault(pattern).as_deref(), expected);
        check("^[a-z]+$", None);
        check("", None);
        // Go reads a brace that begins no repetition as itself.
        check("^{a}$", None);
        check(
            "((a{100}){100}){100}",
            Some("error parsing regexp: invalid repeat count: `{100}`"),
        );
        check(
            r"(\pL{10}){100}",
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
