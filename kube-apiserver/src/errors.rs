//! Collects field errors in upstream's words. The plain rules (required, enumerations, ranges, immutability, names) are one
//! call each; errors of a single kind are built from [`FieldError`] directly.

use std::collections::HashMap;

use machinery::selector::label::{SelectorChecks, validate_label_selector};
use machinery::{FieldError, FieldPath, limits};
use serde_json::Value;

use crate::json::{Json, same};

/// The text for a value that may not be negative.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";
/// The text for a field that may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// A rule that came when there were objects that break it, or that some servers do not know: an update may leave what the stored object
/// breaks already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ratchet {
    /// Huge pages are whole pages.
    HugePages,
    /// Values in the selectors of an object are label values.
    SelectorValues,
    /// The same in the affinity between pods.
    AffinityValues,
    /// The same in the nodes that are required.
    NodeValues,
    /// The selectors of topology spread constraints.
    SpreadSelectors,
    /// The path of a projected token stays in its volume.
    TokenPath,
    /// Sysctls of a namespace that is the host's.
    HostSysctls,
    /// Devices in a user namespace.
    UserNamespaceDevices,
    /// Restarts on resize of containers that run once.
    InitResize,
    /// The deletion cost of a pod is a number.
    DeletionCost,
    /// The secrets of an Ingress are names.
    SecretName,
    /// Rules for wildcard hosts of an Ingress.
    WildcardRule,
    /// The version of what the metrics of an autoscaler describe.
    MetricVersion,
}

/// A set of [`Ratchet`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ratchets(u16);

impl Ratchets {
    fn has(self, rule: Ratchet) -> bool {
        self.0 & (1 << rule as u16) != 0
    }

    fn add(&mut self, rule: Ratchet) {
        self.0 |= 1 << rule as u16;
    }
}

/// The errors found so far, up to [`limits::FIELD_ERRORS`] and [`limits::FIELD_ERROR_BYTES`]; those that follow are dropped and cost nothing.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    found: Vec<FieldError>,
    /// Bytes of their texts.
    bytes: usize,
    /// Expressions that do not compile, by the path of their field.
    expressions: HashMap<String, FieldError>,
    /// What the stored object breaks, so that its update may.
    tolerated: Ratchets,
    /// What the object breaks.
    broken: Ratchets,
}

impl Errors {
    /// Runs a validation and returns its errors.
    pub(crate) fn collect(check: impl FnOnce(&mut Errors)) -> Vec<FieldError> {
        Self::collect_with(&[], check)
    }

    /// The same, of an object whose expressions have these faults.
    pub(crate) fn collect_with(
        expressions: &[FieldError],
        check: impl FnOnce(&mut Errors),
    ) -> Vec<FieldError> {
        let mut errors = Errors::of_expressions(expressions);
        check(&mut errors);
        errors.found
    }

    /// Runs the validation of an update. What the stored object breaks of the rules of [`Ratchet`], as `check_stored` finds, is no fault.
    pub(crate) fn collect_update(
        expressions: &[FieldError],
        check: impl Fn(&mut Errors),
        check_stored: impl FnOnce(&mut Errors),
    ) -> Vec<FieldError> {
        let mut errors = Errors::of_expressions(expressions);
        check(&mut errors);
        if errors.broken == Ratchets::default() {
            return errors.found;
        }
        let mut stored = Errors::default();
        check_stored(&mut stored);
        let tolerated = Ratchets(errors.broken.0 & stored.broken.0);
        if tolerated == Ratchets::default() {
            return errors.found;
        }
        let mut errors = Errors {
            tolerated,
            ..Errors::of_expressions(expressions)
        };
        check(&mut errors);
        errors.found
    }

    fn of_expressions(faults: &[FieldError]) -> Self {
        let by_path = |fault: &FieldError| (fault.field.clone(), fault.clone());
        Errors {
            expressions: faults.iter().map(by_path).collect(),
            ..Errors::default()
        }
    }

    /// Checks a rule that the update of an object may break if the stored object does.
    pub(crate) fn ratcheted(&mut self, rule: Ratchet, check: impl FnOnce(&mut Errors)) {
        if self.tolerated.has(rule) {
            return;
        }
        let before = self.found.len();
        check(self);
        if self.found.len() > before {
            self.broken.add(rule);
        }
    }

    /// Checks a label selector; without a rule its values have to be label values.
    pub(crate) fn selector(&mut self, path: &FieldPath<'_>, selector: &Value, rule: Option<Ratchet>) {
        let check = |allow_invalid_values| {
            let checks = SelectorChecks {
                allow_invalid_values,
                ..SelectorChecks::default()
            };
            validate_label_selector(selector, checks, path)
        };
        let tolerated = rule.is_some_and(|rule| self.tolerated.has(rule));
        let found = check(tolerated);
        if let Some(rule) = rule
            && !tolerated
            && !found.is_empty()
            && found.len() > check(true).len()
        {
            self.broken.add(rule);
        }
        for error in found {
            self.push(error);
        }
    }

    /// Reports the fault of the expression at a path, if it has one.
    pub(crate) fn expression(&mut self, path: &FieldPath<'_>) {
        if self.expressions.is_empty() {
            return;
        }
        if let Some(fault) = self.expressions.remove(&path.to_string()) {
            self.push(fault);
        }
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        self.add(|| error);
    }

    /// Faults that upstream finds twice, because it judges a changed object as a new one and as a changed one. Without any, nothing is
    /// judged twice.
    pub(crate) fn twice(&mut self, check: impl Fn(&mut Errors)) {
        let before = self.found.len();
        check(self);
        if self.found.len() > before {
            check(self);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether further errors are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= limits::FIELD_ERRORS || self.bytes >= limits::FIELD_ERROR_BYTES
    }

    /// Adds an error, which is not even made when there are enough.
    fn add(&mut self, make: impl FnOnce() -> FieldError) {
        if self.is_full() {
            return;
        }
        let error = make();
        let value = error.value.as_ref().map_or(0, String::len);
        self.bytes += error.field.len() + value + error.detail.len();
        self.found.push(error);
    }

    pub(crate) fn invalid(
        &mut self,
        path: &FieldPath<'_>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) {
        self.add(|| FieldError::invalid(path, &value.into(), detail));
    }

    /// `invalid` that shows a value that is at hand.
    pub(crate) fn invalid_value(&mut self, path: &FieldPath<'_>, value: &Value, detail: impl Into<String>) {
        self.add(|| FieldError::invalid(path, value, detail));
    }

    pub(crate) fn required(&mut self, path: &FieldPath<'_>, detail: &str) {
        self.add(|| FieldError::required(path, detail));
    }

    pub(crate) fn forbidden(&mut self, path: &FieldPath<'_>, detail: impl Into<String>) {
        self.add(|| FieldError::forbidden(path, detail));
    }

    pub(crate) fn duplicate(&mut self, path: &FieldPath<'_>, value: impl Into<Value>) {
        self.add(|| FieldError::duplicate(path, &value.into()));
    }

    pub(crate) fn unsupported(&mut self, path: &FieldPath<'_>, value: &str, supported: &[&str]) {
        self.add(|| FieldError::not_supported(path, &Value::from(value), supported));
    }

    pub(crate) fn too_long(&mut self, path: &FieldPath<'_>, max_bytes: usize) {
        self.add(|| FieldError::too_long(path, max_bytes));
    }

    /// A value outside an enumeration; `supported` is sorted as upstream prints it.
    pub(crate) fn one_of(&mut self, path: &FieldPath<'_>, value: &str, supported: &[&str]) -> bool {
        let good = supported.contains(&value);
        if !good {
            self.unsupported(path, value, supported);
        }
        good
    }

    /// As [`Errors::one_of`], and an empty value is a missing one.
    pub(crate) fn required_one_of(&mut self, path: &FieldPath<'_>, value: &str, supported: &[&str]) -> bool {
        if value.is_empty() {
            self.required(path, "");
            return false;
        }
        self.one_of(path, value, supported)
    }

    /// A string that must be there.
    pub(crate) fn need(&mut self, path: &FieldPath<'_>, value: &str) -> bool {
        if value.is_empty() {
            self.required(path, "");
        }
        !value.is_empty()
    }

    /// A string judged by a rule that gives texts.
    pub(crate) fn text(&mut self, path: &FieldPath<'_>, value: &str, texts: Vec<String>) {
        for text in texts {
            self.invalid(path, value, text);
        }
    }

    /// A number that may not be negative; absent is fine.
    pub(crate) fn non_negative(&mut self, path: &FieldPath<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value < 0) {
            self.invalid(path, value, NEGATIVE);
        }
    }

    /// A number that must be above zero; absent is fine.
    pub(crate) fn positive(&mut self, path: &FieldPath<'_>, value: Option<i64>) {
        if let Some(value) = value.filter(|value| *value <= 0) {
            self.invalid(path, value, "must be greater than zero");
        }
    }

    /// `field is immutable` when the field at `key` changed.
    pub(crate) fn immutable(&mut self, parent: &FieldPath<'_>, key: &str, new: &Value, old: &Value) {
        if !same(new.dig(key), old.dig(key)) {
            self.invalid_value(&parent.child(key), new.dig(key), IMMUTABLE);
        }
    }

    /// The same for a key of the whole object.
    pub(crate) fn immutable_at(&mut self, key: &'static str, new: &Value, old: &Value) {
        if !same(new.dig(key), old.dig(key)) {
            self.invalid_value(&FieldPath::new(key), new.dig(key), IMMUTABLE);
        }
    }

    /// An error whose value is shown as this text: a Go struct in its own order.
    pub(crate) fn shown(&mut self, mut error: FieldError, value: String) {
        error.value = Some(value);
        self.push(error);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An update may break what the stored object breaks, and nothing else.
    #[test]
    fn stored_faults_stay() {
        let path = FieldPath::new("s");
        let selector =
            |value: &str| json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]});
        let check = |new: &str, old: &str, faults: usize| {
            let (new, old) = (selector(new), selector(old));
            let rule = Some(Ratchet::SelectorValues);
            let check = |errors: &mut Errors| {
                errors.selector(&path, &new, rule);
                errors.ratcheted(Ratchet::SecretName, |errors| errors.required(&path, ""));
            };
            let found = Errors::collect_update(&[], check, |errors| errors.selector(&path, &old, rule));
            assert_eq!(found.len(), faults);
        };
        check("_", "a", 2);
        check("_", "-", 1);
        check("a", "-", 1);
    }

    #[test]
    fn errors_are_collected_up_to_a_bound() {
        let collect = |count: usize, value: &str| {
            let path = FieldPath::new("spec");
            Errors::collect(|errors| (0..count).for_each(|_| errors.invalid(&path, value, "bad"))).len()
        };
        assert_eq!(collect(limits::FIELD_ERRORS, "x"), limits::FIELD_ERRORS);
        assert_eq!(collect(limits::FIELD_ERRORS + 1, "x"), limits::FIELD_ERRORS);
        let long = "x".repeat(limits::SHOWN_VALUE_BYTES);
        let fitting = limits::FIELD_ERROR_BYTES / limits::SHOWN_VALUE_BYTES;
        assert!(fitting < limits::FIELD_ERRORS);
        let collected = collect(limits::FIELD_ERRORS, &long);
        // The one that passes the bound is the last.
        assert!((fitting..=fitting + 1).contains(&collected), "{collected}");
    }
}
