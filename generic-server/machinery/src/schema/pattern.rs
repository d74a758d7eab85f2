//! Regular expressions of schemas: written for Go's `regexp` (RE2), run by the `regex` crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use regex::Regex;

use crate::{limits, steps};

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

/// What is known of patterns: whether they compile. The same few are in thousands of schemas, and to compile one costs as much as to read
/// twenty kilobytes of JSON. Forgotten all at once when there are too many, which are more than one definition may have: its patterns are
/// compiled one by one before its validation, which finds the outcomes here.
static KNOWN: Mutex<Known> = Mutex::new(Known {
    outcomes: BTreeMap::new(),
    bytes: 0,
});

#[derive(Debug)]
struct Known {
    outcomes: BTreeMap<Box<str>, Result<(), regex::Error>>,
    /// Those of the patterns, and a few for each.
    bytes: usize,
}

/// The weight of a pattern in [`Known::bytes`] beside its text.
const KNOWN_BYTES_EACH: usize = 64;
/// A definition has fewer: [`limits::PATTERN_WEIGHT`] bounds their number, and a body their text.
const MOST_KNOWN_BYTES: usize =
    limits::BODY_BYTES + limits::PATTERN_WEIGHT / LEAST_WEIGHT * KNOWN_BYTES_EACH + (1 << 20);

/// Whether a pattern written for Go compiles.
///
/// # Errors
/// When the pattern is malformed or too large.
pub fn check(pattern: &str) -> Result<(), regex::Error> {
    if let Some(outcome) = KNOWN.lock().outcomes.get(pattern) {
        return outcome.clone();
    }
    let outcome = compile(pattern).map(drop);
    KNOWN.lock().insert(pattern, outcome.clone());
    outcome
}

impl Known {
    fn insert(&mut self, pattern: &str, outcome: Result<(), regex::Error>) {
        let bytes = pattern.len() + KNOWN_BYTES_EACH;
        if self.bytes + bytes > MOST_KNOWN_BYTES {
            self.outcomes.clear();
            self.bytes = 0;
        }
        if self.outcomes.insert(pattern.into(), outcome).is_none() {
            self.bytes += bytes;
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    steps::count(1);
    Regex::new(&translate(pattern))
}

/// The weight of the shortest pattern.
const LEAST_WEIGHT: usize = 50;
/// The weight of a class of Unicode's: about so many states.
const UNICODE_CLASS: usize = 1_000;
/// The product of nested repetitions that Go allows.
const MOST_REPETITIONS: usize = 1_000;

/// The size of a set of patterns once they are compiled, in states and roughly: each counts once.
pub fn patterns_weight<'p>(patterns: impl IntoIterator<Item = &'p str>) -> usize {
    let mut seen = BTreeSet::new();
    let counted = patterns.into_iter().filter(|pattern| seen.insert(*pattern));
    counted.fold(0, |sum, pattern| {
        sum.saturating_add(weigh(pattern).unwrap_or(0).max(LEAST_WEIGHT))
    })
}

/// The repetition of a pattern that Go refuses, because it or its product with those around it is above 1,000.
pub fn excessive_repetition(pattern: &str) -> Option<&str> {
    weigh(pattern).err()
}

/// A part of a pattern that a repetition may follow.
#[derive(Debug, Clone, Copy, Default)]
struct Atom {
    weight: usize,
    /// The largest product of nested repetitions in it.
    repeated: usize,
}

impl Atom {
    fn add(&mut self, other: Atom) {
        self.weight = self.weight.saturating_add(other.weight);
        self.repeated = self.repeated.max(other.repeated);
    }
}

/// The weight of a pattern: the states of its automaton, roughly. Fails with a repetition that Go refuses.
fn weigh(pattern: &str) -> Result<usize, &str> {
    let plain = |weight| Atom { weight, repeated: 1 };
    let mut groups = vec![Atom::default()];
    let mut last: Option<Atom> = None;
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let (at, after) = (rest, &rest[c.len_utf8()..]);
        rest = after;
        if c == '{' && is_repetition(after) {
            let end = after.find('}').unwrap_or(after.len());
            rest = after.get(end + 1..).unwrap_or_default();
            let (low, high) = after[..end]
                .split_once(',')
                .unwrap_or((&after[..end], &after[..end]));
            let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
            let low = number(low);
            let most = if high.is_empty() { low } else { number(high) };
            if let Some(atom) = &mut last {
                let refused = || Err(&at[..at.len() - rest.len()]);
                if low.max(most) > MOST_REPETITIONS {
                    return refused();
                }
                if most == 0 && !high.is_empty() {
                    // None of it: Go does not look at what is within.
                    *atom = plain(1);
                    continue;
                }
                atom.repeated = atom.repeated.max(1).saturating_mul(most.max(1));
                atom.weight = atom.weight.saturating_mul(most.max(1));
                if most >= 2 && atom.repeated > MOST_REPETITIONS {
                    return refused();
                }
            }
            continue;
        }
        if matches!(c, '*' | '+' | '?') {
            if let Some(atom) = &mut last {
                atom.weight = atom.weight.saturating_add(1);
            }
            continue;
        }
        if let (Some(group), Some(atom)) = (groups.last_mut(), last.take()) {
            group.add(atom);
        }
        match c {
            '(' => groups.push(plain(1)),
            ')' => last = if groups.len() > 1 { groups.pop() } else { None },
            '|' => {}
            '.' => last = Some(plain(10)),
            '[' => {
                let (weight, behind) = weigh_class(after);
                (last, rest) = (Some(plain(weight)), behind);
            }
            '\\' => {
                let (weight, behind) = weigh_escape(after);
                (last, rest) = (Some(plain(weight)), behind);
            }
            other => last = Some(plain(other.len_utf8())),
        }
    }
    groups.extend(last);
    Ok(groups
        .iter()
        .fold(0, |sum: usize, group| sum.saturating_add(group.weight)))
}

/// The weight of what a backslash begins, and what is behind it.
fn weigh_escape(after: &str) -> (usize, &str) {
    let Some(c) = after.chars().next() else {
        return (1, after);
    };
    let behind = &after[c.len_utf8()..];
    match c {
        'Q' => {
            let (literal, behind) = behind.split_once("\\E").unwrap_or((behind, ""));
            (literal.len(), behind)
        }
        'p' | 'P' | 'x' => {
            let braces = behind.strip_prefix('{').and_then(|inside| {
                let name = inside.bytes().take_while(u8::is_ascii_alphanumeric).count();
                inside[name..].strip_prefix('}')
            });
            // `\pL` has a name of one letter.
            let name = behind.chars().next().map_or(0, char::len_utf8);
            (
                if c == 'x' { 4 } else { UNICODE_CLASS },
                braces.unwrap_or(&behind[name..]),
            )
        }
        _ => (10, behind),
    }
}

/// The weight of a class, whose bracket is open, and what is behind it.
fn weigh_class(after: &str) -> (usize, &str) {
    let mut rest = after.strip_prefix('^').unwrap_or(after);
    rest = rest.strip_prefix(']').unwrap_or(rest);
    let mut weight = 10;
    while let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        match c {
            ']' => return (weight, behind),
            '\\' => {
                let (more, behind) = weigh_escape(behind);
                weight += more;
                rest = behind;
            }
            '[' => {
                weight += 10;
                rest = named_class(behind).map_or(behind, |class| &behind[class.len()..]);
            }
            other => {
                weight += other.len_utf8();
                rest = behind;
            }
        }
    }
    (weight, rest)
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
    fn outcomes_are_remembered() {
        let long = "only-in-this-other-test".repeat(100);
        for text in ["^only-in-this-other-test$", "^only-in-this-other-test($", &long] {
            let sound = super::check(text).is_ok();
            let again = crate::steps::of(|| assert_eq!(super::check(text).is_ok(), sound));
            assert_eq!(again, 0, "{text}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_enough_for_one_definition() {
        let mut known = Known {
            outcomes: BTreeMap::new(),
            bytes: 0,
        };
        // As many as there may be, with all the text that a body has.
        let count = limits::PATTERN_WEIGHT / LEAST_WEIGHT;
        let text = "a".repeat(limits::BODY_BYTES / count - 6);
        for index in 0..count {
            known.insert(&format!("{text}{index:06}"), Ok(()));
            known.insert(&format!("{text}{index:06}"), Ok(()));
        }
        assert_eq!(known.outcomes.len(), count);
        let room = MOST_KNOWN_BYTES - known.bytes - KNOWN_BYTES_EACH;
        known.insert(&"b".repeat(room), Ok(()));
        assert_eq!((known.outcomes.len(), known.bytes), (count + 1, MOST_KNOWN_BYTES));
        known.insert("c", Ok(()));
        assert_eq!((known.outcomes.len(), known.bytes), (1, 1 + KNOWN_BYTES_EACH));
    }

    #[test]
    fn weights() {
        #[track_caller]
        fn check(pattern: &str, expected: Result<usize, &str>) {
            assert_eq!(weigh(pattern), expected, "{pattern}");
        }
        check("", Ok(0));
        check("abc", Ok(3));
        check("a{3}b*", Ok(5));
        check("(ab){3,10}", Ok(30));
        check("a{2,}", Ok(2));
        check("a{,3}", Ok(5));
        check("{3}(?:a)", Ok(3));
        check(r"\pL{10}", Ok(10_000));
        check(r"[^\p{Greek}a]{2}", Ok(2_022));
        check(r"[]a[:alpha:]]{2}", Ok(42));
        check(r"\Q(a{2}\E{2}", Ok(10));
        check(r"\x{10}\d\", Ok(15));
        check("((a{10}){10}){10}", Ok(1_110));
        check("((a{10}){10}){11}", Err("{11}"));
        check("((a{1,100}){1,100}){1,100}", Err("{1,100}"));
        check("a{1000}", Ok(1_000));
        check("a{1001}", Err("{1001}"));
        check("a{2,1001}", Err("{2,1001}"));
        // As Go has it: a part that is there no times has no repetitions, and one that is there once is no repetition.
        check("((a{1000}){0}){5}", Ok(10));
        check("((a{1000}){0,0}){5}", Ok(10));
        check("((a{1000}){0,}){5}", Err("{5}"));
        check("((a{1000}){1}){1}", Ok(1_002));
        check("((a{1000}){0,1}){2}", Err("{2}"));
        check("a{1001}{0}", Err("{1001}"));
        check(")))((([", Ok(13));
    }

    #[test]
    fn a_set_of_patterns_is_weighed_once_each() {
        assert_eq!(patterns_weight(["a", "a", "b"]), 2 * LEAST_WEIGHT);
        assert_eq!(patterns_weight([r"\pL{10}", r"\pL{10}"]), 10_000);
        let long = "a".repeat(1_000);
        assert_eq!(patterns_weight([long.as_str(), &long]), 1_000);
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
