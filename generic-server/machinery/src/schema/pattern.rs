//! Regular expressions of schemas: written for Go's `regexp` (RE2), run by the `regex` crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use regex::Regex;

use crate::steps;

/// A pattern of a schema, compiled when the first value is held against it. Schemas that have the same pattern share it while
/// one of them lives: a compiled pattern is a hundred times its text.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: Arc<str>,
    /// There until it is dropped.
    compiled: Option<Arc<Compiled>>,
}

/// Empty until it is used; `None` when the pattern is none.
type Compiled = OnceLock<Option<Regex>>;

/// Patterns that some schema holds, by their text.
static SHARED: Mutex<BTreeMap<Arc<str>, Weak<Compiled>>> = Mutex::new(BTreeMap::new());

impl Pattern {
    /// A pattern as written; one that does not compile matches nothing, and reports that.
    pub fn new(text: &str) -> Self {
        let mut shared = SHARED.lock();
        if let Some((text, known)) = shared.get_key_value(text)
            && let Some(compiled) = known.upgrade()
        {
            return Pattern {
                text: text.clone(),
                compiled: Some(compiled),
            };
        }
        let (text, compiled): (Arc<str>, Arc<Compiled>) = (text.into(), Arc::default());
        shared.insert(text.clone(), Arc::downgrade(&compiled));
        Pattern {
            text,
            compiled: Some(compiled),
        }
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches anywhere in `value`; `None` when the pattern is none.
    pub fn matches(&self, value: &str) -> Option<bool> {
        let compiled = self.compiled.as_ref()?;
        let regex = compiled.get_or_init(|| compile(&self.text).ok());
        regex.as_ref().map(|regex| regex.is_match(value))
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        // Under the lock, so that of two last holders one finds that it is the last.
        let mut shared = SHARED.lock();
        self.compiled = None;
        if shared
            .get(&self.text)
            .is_some_and(|weak| weak.strong_count() == 0)
        {
            shared.remove(&self.text);
        }
    }
}

/// Patterns that are known to compile: the same few are in thousands of schemas, and to compile one costs as much as to read
/// twenty kilobytes of JSON. Forgotten all at once when there are too many.
static SOUND: Mutex<BTreeSet<Box<str>>> = Mutex::new(BTreeSet::new());
const MOST_SOUND: usize = 1024;
/// Longer patterns are not remembered.
const LONGEST_SOUND: usize = 512;

/// Whether a pattern written for Go compiles.
///
/// # Errors
/// When the pattern is malformed or too large.
pub fn check(pattern: &str) -> Result<(), regex::Error> {
    if SOUND.lock().contains(pattern) {
        return Ok(());
    }
    compile(pattern)?;
    if pattern.len() <= LONGEST_SOUND {
        let mut sound = SOUND.lock();
        if sound.len() >= MOST_SOUND {
            sound.clear();
        }
        sound.insert(pattern.into());
    }
    Ok(())
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translate(pattern))
}

/// Where RE2 and the `regex` crate read the same text differently, writes what RE2 means.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    // Just behind `[` or `[^`, where `]` is a plain character.
    let mut class_start = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => {
                let Some(escaped) = after.chars().next() else {
                    out.push('\\');
                    break;
                };
                rest = &after[escaped.len_utf8()..];
                if escaped == 'Q' && !in_class {
                    let (literal, behind) = rest.split_once("\\E").unwrap_or((rest, ""));
                    out.push_str(&regex::escape(literal));
                    rest = behind;
                    continue;
                }
                escape(&mut out, escaped, in_class);
                continue;
            }
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if let Some(behind) = after.strip_prefix('^') {
                    out.push('^');
                    rest = behind;
                    continue;
                }
            }
            ']' if in_class && !at_start => {
                in_class = false;
                out.push(']');
            }
            ']' if in_class => out.push_str("\\]"),
            '[' if let Some(class) = named_class(after) => {
                out.push('[');
                out.push_str(class);
                rest = &after[class.len()..];
                continue;
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && out.ends_with('-') && !out.ends_with("\\-") => out.push_str("\\-"),
            '{' if !in_class && !is_repetition(after) => out.push_str("\\{"),
            other => out.push(other),
        }
        rest = after;
    }
    out
}

/// Perl classes are ASCII in RE2.
fn escape(out: &mut String, escaped: char, in_class: bool) {
    let (set, negated) = match escaped {
        'd' | 'D' => ("0-9", escaped == 'D'),
        'w' | 'W' => ("0-9A-Za-z_", escaped == 'W'),
        's' | 'S' => ("\\t\\n\\f\\r ", escaped == 'S'),
        'b' if !in_class => {
            out.push_str("(?-u:\\b)");
            return;
        }
        other => {
            out.push('\\');
            out.push(other);
            return;
        }
    };
    let _ = match (in_class, negated) {
        (true, false) => write!(out, "{set}"),
        (_, true) => write!(out, "[^{set}]"),
        (false, false) => write!(out, "[{set}]"),
    };
}

/// The rest of a named class such as `[:alpha:]`, whose name is short: a `[:` without an end must not be searched to the
/// pattern's end, again for each.
fn named_class(after: &str) -> Option<&str> {
    let inside = after.strip_prefix(':')?.strip_prefix('^').unwrap_or(&after[1..]);
    let name = inside.bytes().take_while(u8::is_ascii_alphanumeric).count();
    steps::count(name);
    let end = after.len() - inside.len() + name + 2;
    inside[name..].starts_with(":]").then(|| &after[..end])
}

/// Whether `{` is followed by `n}`, `n,}` or `n,m}`; otherwise it is a plain character.
fn is_repetition(after: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let low = digits(after);
    let mut rest = &after[low..];
    if let Some(high) = rest.strip_prefix(',') {
        rest = &high[digits(high)..];
    }
    steps::count(after.len() - rest.len());
    low > 0 && rest.starts_with('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let pattern = Pattern::new(pattern);
        for text in yes {
            assert_eq!(pattern.matches(text), Some(true), "{pattern:?} {text}");
        }
        for text in no {
            assert_eq!(pattern.matches(text), Some(false), "{pattern:?} {text}");
        }
    }

    #[test]
    fn patterns_match_as_in_go() {
        check(r"^\d+$", &["12"], &["\u{664}", "x"]);
        check(r"^[\w.]+$", &["a_1.b"], &["\u{e9}"]);
        check(r"^[^\s]+$", &["a"], &["a b"]);
        check(r"^[\D]$", &["x"], &["1"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^{a}$", &["{a}"], &["a"]);
        check(r"^a{2,3}$", &["aa"], &["a"]);
        check(r"^[[:alpha:]]$", &["a"], &["1"]);
        check(r"^[[:^alpha:]]$", &["1"], &["a"]);
        check(r"^[[:]$", &["[", ":"], &["a"]);
        check(r"^a{,3}$", &["a{,3}"], &["aa"]);
        check(r"^a{2,}$", &["aa"], &["a"]);
        check(r"^a{2$", &["a{2"], &["aa"]);
        check(r"^[a[]$", &["["], &["]"]);
        check(r"^[]a]+$", &["]a"], &["["]);
        check(r"^[a&&b]$", &["&", "a"], &["c"]);
        check(r"^[+--]$", &["+", ",", "-"], &["."]);
        check(
            r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
            &["", "a.b"],
            &["-"],
        );
    }

    #[test]
    fn the_same_pattern_is_compiled_once_and_forgotten_with_its_last_schema() {
        let text = "^only-in-this-test-[0-9]+$";
        let one = Pattern::new(text);
        let other = Pattern::new(text);
        let shares = |a: &Pattern, b: &Pattern| match (&a.compiled, &b.compiled) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        assert!(shares(&one, &other));
        drop(one);
        assert_eq!(other.matches("only-in-this-test-7"), Some(true));
        assert!(SHARED.lock().contains_key(text));
        drop(other);
        assert!(!SHARED.lock().contains_key(text));
    }

    #[test]
    fn compiled_patterns_are_cached() {
        let text = "^only-in-this-other-test$";
        for _ in 0..2 {
            assert!(super::check(text).is_ok());
        }
        assert!(SOUND.lock().contains(text));
        let long = "a".repeat(LONGEST_SOUND + 1);
        assert!(super::check(&long).is_ok());
        assert!(!SOUND.lock().contains(long.as_str()));
    }

    #[test]
    fn patterns_that_re2_refuses_are_refused() {
        for pattern in ["(", "(?=a)", "[", r"(a)\1", "\\"] {
            assert!(super::check(pattern).is_err(), "{pattern}");
            assert_eq!(Pattern::new(pattern).matches("a"), None);
        }
    }

    #[test]
    fn open_brackets_are_not_searched_to_the_end() {
        for part in ["{", "{1", "[:", "[:a"] {
            let steps = crate::steps::of(|| translate(&part.repeat(10_000)));
            assert!(steps <= 20_000, "{part}: {steps}");
        }
    }
}
