//! Semantic versions.

use go_text::Quoted;
use std::{borrow::Cow, cmp::Ordering};

/// A version; build metadata takes no part in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Semver {
    pub(crate) core: [u64; 3],
    pre: Vec<Pre>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pre {
    Number(u64),
    Text(String),
}

impl Semver {
    /// Parses `MAJOR.MINOR.PATCH`, with a pre-release and build metadata where they are given.
    ///
    /// # Errors
    /// The first fault, in the words of upstream's library.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse(text)
    }

    /// The order of precedence.
    pub fn order(&self, other: &Semver) -> Ordering {
        self.core
            .cmp(&other.core)
            .then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                _ => self.pre.cmp(&other.pre),
            })
    }
}

pub(crate) fn number(text: &str, what: &str) -> Result<u64, String> {
    let lower = what.to_lowercase();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "Invalid character(s) found in {lower} number {text}",
            text = Quoted(text)
        ));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{what} number must not contain leading zeroes {text}",
            text = Quoted(text)
        ));
    }
    text.parse().map_err(|_| {
        format!(
            "strconv.ParseUint: parsing {text}: value out of range",
            text = Quoted(text)
        )
    })
}

/// Parses a version. The error is upstream's.
pub(crate) fn parse(text: &str) -> Result<Semver, String> {
    if text.is_empty() {
        return Err("Version string empty".to_string());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".to_string());
    };
    let (major, minor) = (number(major, "Major")?, number(minor, "Minor")?);
    let (rest, build) = rest
        .split_once('+')
        .map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest
        .split_once('-')
        .map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let core = [major, minor, number(patch, "Patch")?];
    let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(prerelease).collect())?;
    for word in build.into_iter().flat_map(|build| build.split('.')) {
        if word.is_empty() {
            return Err("Build meta data is empty".to_string());
        }
        if !word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(format!(
                "Invalid character(s) found in build meta data {word}",
                word = Quoted(word)
            ));
        }
    }
    Ok(Semver { core, pre })
}

fn prerelease(word: &str) -> Result<Pre, String> {
    if word.is_empty() {
        return Err("Prerelease is empty".to_string());
    }
    if word.bytes().all(|b| b.is_ascii_digit()) {
        if word.len() > 1 && word.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {word}",
                word = Quoted(word)
            ));
        }
        return word.parse().map(Pre::Number).map_err(|_| {
            format!(
                "strconv.ParseUint: parsing {word}: value out of range",
                word = Quoted(word)
            )
        });
    }
    if word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Ok(Pre::Text(word.to_string()));
    }
    Err(format!(
        "Invalid character(s) found in prerelease {word}",
        word = Quoted(word)
    ))
}

/// Drops a `v`, leading zeroes, and fills up missing parts.
pub(crate) fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<Cow<'_, str>> = text.splitn(3, '.').map(Cow::Borrowed).collect();
    for part in &mut parts {
        if part.len() > 1 {
            let trimmed = part.trim_start_matches('0');
            *part = match trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                true => trimmed.to_string().into(),
                false => format!("0{trimmed}").into(),
            };
        }
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_string());
        }
        parts.resize(3, Cow::Borrowed("0"));
    }
    Ok(parts.join("."))
}
