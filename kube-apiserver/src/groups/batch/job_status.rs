//! The status of a Job. Each rule is looked at when what it is about changes, so that jobs of before can still be written.

use machinery::time::Timestamp;
use machinery::{FieldError, FieldPath};
use serde_json::Value;

use super::indexes::indexes_in;
use crate::errors::{Errors, IMMUTABLE};
use crate::json::{Json, same};
use crate::unique::Seen;

/// Whether a condition of a job has a status.
fn has(job: &Value, kind: &str, status: &str) -> bool {
    let list = job.list("status.conditions");
    list.iter()
        .any(|condition| condition.text("type") == kind && condition.text("status") == status)
}

/// Whether a job has a condition.
fn is(job: &Value, kind: &str) -> bool {
    has(job, kind, "True")
}

fn is_finished(job: &Value) -> bool {
    is(job, "Complete") || is(job, "Failed")
}

/// A job's status as it is and as it was.
struct Status<'a> {
    job: &'a Value,
    old: &'a Value,
    new: &'a Value,
    before: &'a Value,
}

impl Status<'_> {
    /// Whether the job has one of these conditions and had not, or the reverse.
    fn turned(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| is(self.job, kind) != is(self.old, kind))
    }

    /// Whether one of these fields changed.
    fn changed(&self, keys: &[&str]) -> bool {
        keys.iter()
            .any(|key| !same(self.new.dig(key), self.before.dig(key)))
    }

    fn count(&self, key: &str) -> i64 {
        self.new.int(key).unwrap_or_default()
    }
}

/// Checks a changed status.
pub(super) fn validate(errors: &mut Errors, job: &Value, old: &Value) {
    let status = Status {
        job,
        old,
        new: job.dig("status"),
        before: old.dig("status"),
    };
    let path = FieldPath::new("status");
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&path.child(key), status.new.int(key));
    }
    uncounted(errors, &path.child("uncountedTerminatedPods"), status.new);
    conditions(errors, &path.child("conditions"), &status);
    times(errors, &path, &status);
    finished(errors, &path, &status);
    indexes(errors, &path, &status);
    let active = status.count("active");
    if status.changed(&["ready", "active"]) && status.count("ready") > active {
        let text = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), status.count("ready"), text);
    }
    let elastic = job.text("spec.completionMode") == "Indexed"
        && job.dig("spec.completions") == job.dig("spec.parallelism");
    for (key, free) in [("failed", false), ("succeeded", elastic)] {
        if !free && status.count(key) < status.before.int(key).unwrap_or_default() {
            let text = format!("cannot decrease the {key} counter");
            errors.invalid(&path.child(key), status.count(key), text);
        }
    }
}

/// Pods that are counted soon are named once.
fn uncounted(errors: &mut Errors, path: &FieldPath<'_>, status: &Value) {
    let mut seen = Seen::default();
    for key in ["succeeded", "failed"] {
        let at = path.child(key);
        for (index, uid) in status.dig("uncountedTerminatedPods").strings(key).enumerate() {
            if uid.is_empty() {
                errors.invalid(&at.index(index), uid, "must not be empty");
            } else if seen.again(uid) {
                errors.duplicate(&at.index(index), uid);
            }
        }
    }
}

fn conditions(errors: &mut Errors, path: &FieldPath<'_>, status: &Status<'_>) {
    let (job, old) = (status.job, status.old);
    let (complete, failed, target) = (is(job, "Complete"), is(job, "Failed"), is(job, "FailureTarget"));
    let met = is(job, "SuccessCriteriaMet");
    let mut check = |wrong: bool, text: &str| {
        if wrong {
            let mut error = FieldError::invalid(path, &Value::Null, text);
            error.value = None;
            errors.push(error);
        }
    };
    check(
        complete && failed && status.turned(&["Complete", "Failed"]),
        "cannot set Complete=True and Failed=true conditions",
    );
    check(
        complete && target && status.turned(&["Complete", "FailureTarget"]),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    check(
        failed && !target && (status.turned(&["Failed"]) || status.changed(&["failedIndexes"])),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    check(
        complete && !met && status.turned(&["Complete", "SuccessCriteriaMet"]),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    check(
        met && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    check(
        met && target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    check(
        job.has("spec.successPolicy") && !met && complete,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
    for kind in ["Failed", "Complete", "FailureTarget"] {
        let text = format!("cannot disable the terminal {kind}=True condition");
        check(is(old, kind) && !is(job, kind), &text);
    }
    let was_met = is(old, "SuccessCriteriaMet");
    check(
        was_met && !met,
        "cannot disable the SuccessCriteriaMet=True condition",
    );
    check(
        is(old, "Complete") && !was_met && met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
    );
}

fn times(errors: &mut Errors, path: &FieldPath<'_>, status: &Status<'_>) {
    let (start, end) = (status.new.dig("startTime"), status.new.dig("completionTime"));
    let at = path.child("completionTime");
    let complete = is(status.job, "Complete");
    if status.turned(&["Complete"]) || status.changed(&["completionTime"]) {
        if !end.is_null() && !complete {
            let text = "cannot set completionTime when there is no Complete=True condition";
            errors.invalid_value(&at, end, text);
        }
        if end.is_null() && complete {
            errors.required(&at, "completionTime is required for Complete jobs");
        }
    }
    let time = |value: &Value| value.as_str().and_then(Timestamp::parse_rfc3339);
    if status.changed(&["startTime", "completionTime"])
        && let (Some(first), Some(last)) = (time(start), time(end))
        && last < first
    {
        errors.invalid_value(&at, end, "must be equal to or after `startTime`");
    }
    let before = status.before.dig("completionTime");
    if !end.is_null() && !before.is_null() && end != before {
        errors.invalid_value(&at, end, IMMUTABLE);
    }
    let resuming = is(status.old, "Suspended") && has(status.job, "Suspended", "False");
    if status.before.has("startTime")
        && status.changed(&["startTime"])
        && !resuming
        && !status.job.flag("spec.suspend")
    {
        let text = "field is immutable for unsuspended job once set";
        errors.invalid_value(&path.child("startTime"), start, text);
    }
}

/// A finished job has no pods left, and began at some time.
fn finished(errors: &mut Errors, path: &FieldPath<'_>, status: &Status<'_>) {
    if !is_finished(status.job) {
        return;
    }
    let now = !is_finished(status.old);
    for key in ["active", "terminating"] {
        let count = status.count(key);
        if (now || status.changed(&[key])) && count > 0 {
            let text = format!("{key}>0 is invalid for finished job");
            errors.invalid(&path.child(key), count, text);
        }
    }
    let never_ran = status.job.flag("spec.suspend") && status.job.int("spec.completions") == Some(0);
    if (now || status.changed(&["startTime"])) && !never_ran && !status.new.has("startTime") {
        errors.required(&path.child("startTime"), "startTime is required for finished job");
    }
    let pods = status.new.dig("uncountedTerminatedPods");
    let some = !pods.list("failed").is_empty() || !pods.list("succeeded").is_empty();
    if (now || status.changed(&["uncountedTerminatedPods"])) && some {
        let at = path.child("uncountedTerminatedPods");
        errors.invalid_value(&at, pods, "must be empty for finished job");
    }
}

fn indexes(errors: &mut Errors, path: &FieldPath<'_>, status: &Status<'_>) {
    let spec = status.job.dig("spec");
    let completions = spec.int("completions");
    let (completed, failed) = (
        status.new.text("completedIndexes"),
        status.new.dig("failedIndexes"),
    );
    let mut format = |key: &str, text: &str, counted: bool| {
        let total = completions.filter(|_| counted && status.changed(&[key]));
        if let Some(Err(why)) = total.map(|total| indexes_in(text, total)) {
            errors.invalid(&path.child(key), text, format!("error parsing {key}: {why}"));
        }
    };
    let per_index = spec.has("backoffLimitPerIndex");
    format("completedIndexes", completed, true);
    format("failedIndexes", failed.as_str().unwrap_or_default(), per_index);
    if status.changed(&["completedIndexes"])
        && !completed.is_empty()
        && spec.text("completionMode") != "Indexed"
    {
        let text = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&path.child("completedIndexes"), completed, text);
    }
    let Some(failed) = failed.as_str() else { return };
    let at = path.child("failedIndexes");
    if status.new.dig("failedIndexes") != status.before.dig("failedIndexes") && !per_index {
        let text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&at, failed, text);
    }
    if status.changed(&["failedIndexes", "completedIndexes"])
        && let Some(total) = completions
        && let Some(index) = overlap(completed, failed, total)
    {
        let text = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&at, failed, text);
    }
}

/// The first index that two lists of intervals have in common. Intervals that cannot be read are passed over.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        let readable = text
            .split(',')
            .filter(|interval| indexes_in(interval, completions).is_ok());
        let limits = readable.filter_map(|interval| {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        limits.collect()
    };
    let (left, right) = (intervals(completed), intervals(failed));
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(one), Some(other)) = (left.peek(), right.peek()) {
        if one.0 <= other.1 && other.0 <= one.1 {
            return Some(one.0.max(other.0));
        }
        match one.0 <= other.0 {
            true => left.next(),
            false => right.next(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::groups::check::check_errors;

    #[track_caller]
    fn check(spec: Value, status: Value, expected: &[&str]) {
        let (job, old) = (json!({"spec": spec, "status": status}), json!({"spec": spec}));
        check_errors(|errors| validate(errors, &job, &old), expected);
    }

    #[test]
    fn indexes_are_of_the_job() {
        let spec = json!({"completions": 5, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
        check(
            spec.clone(),
            json!({"completedIndexes": "0-1", "failedIndexes": "3"}),
            &[],
        );
        check(
            spec.clone(),
            json!({"completedIndexes": "x", "failedIndexes": "7"}),
            &[
                r#"status.completedIndexes: Invalid value: "x": error parsing completedIndexes: cannot convert string to integer for index: "x""#,
                r#"status.failedIndexes: Invalid value: "7": error parsing failedIndexes: too large index: "7""#,
            ],
        );
        check(
            spec,
            json!({"completedIndexes": "0-3", "failedIndexes": "2"}),
            &[
                r#"status.failedIndexes: Invalid value: "2": failedIndexes and completedIndexes overlap at index: 2"#,
            ],
        );
        check(
            json!({"completions": 5}),
            json!({"completedIndexes": "1", "failedIndexes": "2"}),
            &[
                r#"status.completedIndexes: Invalid value: "1": cannot set non-empty completedIndexes when non-indexed completion mode"#,
                r#"status.failedIndexes: Invalid value: "2": cannot set non-null failedIndexes when backoffLimitPerIndex is null"#,
            ],
        );
    }

    #[test]
    fn pods_are_uncounted_once() {
        check(
            json!({}),
            json!({"uncountedTerminatedPods": {"succeeded": ["", "a"], "failed": ["a"]}}),
            &[
                r#"status.uncountedTerminatedPods.succeeded[0]: Invalid value: "": must not be empty"#,
                r#"status.uncountedTerminatedPods.failed[0]: Duplicate value: "a""#,
            ],
        );
    }

    #[test]
    fn what_does_not_change_is_not_looked_at() {
        let job = json!({"status": {"completedIndexes": "x", "conditions": [{"type": "Complete", "status": "True"}]}});
        check_errors(|errors| validate(errors, &job, &job), &[]);
    }
}
