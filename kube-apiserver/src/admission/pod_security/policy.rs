//! The policy in the labels of a namespace: a level and a version of the Pod Security Standards for each of enforce, audit and warn.

use std::fmt;

use machinery::{FieldError, FieldPath, meta};
use serde_json::Value;

/// The prefix of labels and audit annotations.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// How strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// As of which minor version; `None` is the latest.
pub(super) type Version = Option<u32>;

/// A level as of a version. Prints as `restricted:v1.30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    /// Whether both ask for the same: versions do not matter where nothing is asked for.
    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.name();
        match self.version {
            Some(minor) => write!(f, "{level}:v1.{minor}"),
            None => write!(f, "{level}:latest"),
        }
    }
}

/// The policy of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

pub(super) fn level(text: &str) -> Result<Level, String> {
    match text {
        "privileged" => Ok(Level::Privileged),
        "baseline" => Ok(Level::Baseline),
        "restricted" => Ok(Level::Restricted),
        _ => Err("must be one of privileged, baseline, restricted".into()),
    }
}

pub(super) fn version(text: &str) -> Result<Version, String> {
    if text == "latest" {
        return Ok(None);
    }
    let minor = text.strip_prefix("v1.").filter(|minor| {
        !minor.is_empty()
            && minor.bytes().all(|b| b.is_ascii_digit())
            && (minor.len() == 1 || !minor.starts_with('0'))
    });
    let minor = minor.and_then(|minor| minor.parse().ok());
    minor.map(Some).ok_or("must be \"latest\" or \"v1.x\"".into())
}

/// The labels of one object, with what is wrong with them.
struct Labels<F> {
    value: F,
    errors: Vec<FieldError>,
}

impl<'a, F: Fn(&str) -> Option<&'a str>> Labels<F> {
    fn get(&self, name: &str) -> Option<&'a str> {
        (self.value)(&format!("{PREFIX}{name}"))
    }

    /// The meaning of a label, if it is there; an invalid one is recorded as an error, and `or` used instead.
    fn read<T>(&mut self, name: &str, meaning: fn(&str) -> Result<T, String>, or: T) -> Option<(T, bool)> {
        let text = self.get(name)?;
        Some(match meaning(text) {
            Ok(meaning) => (meaning, true),
            Err(why) => {
                let (metadata, key) = (FieldPath::new("metadata"), format!("{PREFIX}{name}"));
                let labels = metadata.child("labels");
                let error = FieldError::invalid(&labels.key(&key), &text.into(), why);
                self.errors.push(error);
                (or, false)
            }
        })
    }
}

impl Policy {
    /// Nothing is asked for.
    pub(super) const NONE: Policy = {
        let privileged = LevelVersion {
            level: Level::Privileged,
            version: None,
        };
        Policy {
            enforce: privileged,
            audit: privileged,
            warn: privileged,
        }
    };

    /// The policy of a namespace, and the errors of its labels: an invalid level is enforced as the strictest and neither audited
    /// nor warned of.
    pub(super) fn of(namespace: &Value, defaults: Policy) -> (Policy, Vec<FieldError>) {
        let labels = meta::labels(namespace);
        Policy::of_labels(|key| labels?.get(key)?.as_str(), defaults)
    }

    /// The same of the labels by their keys.
    pub(super) fn of_labels<'a>(
        label: impl Fn(&str) -> Option<&'a str>,
        defaults: Policy,
    ) -> (Policy, Vec<FieldError>) {
        let mut policy = defaults;
        let mut labels = Labels {
            value: label,
            errors: Vec::new(),
        };
        let enforce = labels.read("enforce", level, Level::Restricted);
        let enforced = enforce.is_some_and(|(_, valid)| valid);
        if let Some((level, _)) = enforce {
            policy.enforce.level = level;
        }
        if let Some((version, _)) = labels.read("enforce-version", version, None) {
            policy.enforce.version = version;
        }
        if let Some((level, _)) = labels.read("audit", level, Level::Privileged) {
            policy.audit.level = level;
        }
        if let Some((version, _)) = labels.read("audit-version", version, None) {
            policy.audit.version = version;
        }
        let warn = labels.read("warn", level, Level::Privileged);
        if let Some((level, _)) = warn {
            policy.warn.level = level;
        }
        let read = labels.read("warn-version", version, None);
        if let Some((version, _)) = read {
            policy.warn.version = version;
        }
        // The enforced level is also the level of warnings, unless a label sets another.
        if warn.is_none() && enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if read.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, labels.errors)
    }

    /// Whether both ask for the same.
    pub(super) fn is_equivalent(&self, other: &Policy) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// Nothing is asked for.
    pub(super) fn is_privileged(&self) -> bool {
        let all = [self.enforce, self.audit, self.warn];
        all.iter().all(|one| one.level == Level::Privileged)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(labels: Value, expected: [&str; 3], count: usize) {
        let labels: serde_json::Map<String, Value> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (format!("{PREFIX}{key}"), value.clone()))
            .collect();
        let (policy, errors) = Policy::of(&json!({"metadata": {"labels": labels}}), Policy::NONE);
        let actual = [policy.enforce, policy.audit, policy.warn].map(|one| one.to_string());
        assert_eq!(actual, expected);
        assert_eq!(errors.len(), count);
    }

    #[test]
    fn labels_are_read() {
        let none = "privileged:latest";
        check(json!({}), [none, none, none], 0);
        check(
            json!({"enforce": "restricted", "enforce-version": "v1.22"}),
            ["restricted:v1.22", none, "restricted:v1.22"],
            0,
        );
        check(
            json!({"enforce": "baseline", "warn": "privileged"}),
            ["baseline:latest", none, none],
            0,
        );
        check(
            json!({"enforce": "x", "audit": "x", "warn-version": "v1.01"}),
            ["restricted:latest", none, none],
            3,
        );
        check(
            json!({"enforce": "baseline", "warn-version": "v1.9", "audit-version": "v2.0"}),
            ["baseline:latest", none, "baseline:v1.9"],
            1,
        );
    }
}
