//! What admission costs: of each phase and each plugin, and of webhooks and policies by name. Upstream's names and labels.
//!
//! Phases and plugins are few and fixed, so that a write finds its series by index. Names of webhooks and policies are the users': past a
//! bound, new ones are counted together.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use machinery::limits;
use parking_lot::Mutex;
use serde_json::Value;

use super::Operation;
use super::costs::{Asked, Costs};
use crate::metrics::{Collect, Histogram, Quantiles, family, sample};

const OPERATIONS: [Operation; 4] = [
    Operation::Create,
    Operation::Update,
    Operation::Delete,
    Operation::Connect,
];
const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const WEBHOOK_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const CONDITION_BUCKETS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const POLICY_BUCKETS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];
/// The name of everything past the bound.
const OTHER: &str = "other";

/// One of the two phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Admit,
    Validate,
}

const STEPS: [(Step, &str); 2] = [(Step::Admit, "admit"), (Step::Validate, "validate")];

/// What is counted by phase, operation and outcome. A series is there from its first duration on.
#[derive(Debug)]
struct ByOutcome<T>([OnceLock<T>; 16]);

impl<T> Default for ByOutcome<T> {
    fn default() -> Self {
        ByOutcome(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl<T> ByOutcome<T> {
    fn cell(&self, step: Step, operation: Operation, rejected: bool) -> Option<&OnceLock<T>> {
        let index = (step as usize * OPERATIONS.len() + operation as usize) * 2 + usize::from(rejected);
        self.0.get(index)
    }

    fn each(&self, mut write: impl FnMut(&T, [(&str, &str); 3])) {
        let mut cells = self.0.iter();
        for (_, step) in STEPS {
            for operation in OPERATIONS {
                for rejected in ["false", "true"] {
                    if let Some(series) = cells.next().and_then(OnceLock::get) {
                        let labels = [
                            ("operation", operation.as_str()),
                            ("rejected", rejected),
                            ("type", step),
                        ];
                        write(series, labels);
                    }
                }
            }
        }
    }
}

impl ByOutcome<Histogram> {
    fn observe(&self, step: Step, operation: Operation, rejected: bool, took: Duration) {
        if let Some(cell) = self.cell(step, operation, rejected) {
            cell.get_or_init(|| Histogram::new(BUCKETS)).observe(took);
        }
    }
}

/// The durations of a phase: as a histogram, and as upstream's summary.
#[derive(Debug)]
struct StepDurations {
    histogram: Histogram,
    quantiles: Quantiles,
}

/// The durations of a chain.
#[derive(Debug, Default)]
pub(super) struct ChainMetrics {
    steps: ByOutcome<StepDurations>,
    plugins: Vec<(&'static str, ByOutcome<Histogram>)>,
}

impl ChainMetrics {
    pub(super) fn new(plugins: impl Iterator<Item = &'static str>) -> Self {
        ChainMetrics {
            steps: ByOutcome::default(),
            plugins: plugins.map(|name| (name, ByOutcome::default())).collect(),
        }
    }

    pub(super) fn step(&self, step: Step, operation: Operation, rejected: bool, took: Duration) {
        if let Some(cell) = self.steps.cell(step, operation, rejected) {
            let durations = cell.get_or_init(|| StepDurations {
                histogram: Histogram::new(BUCKETS),
                quantiles: Quantiles::default(),
            });
            durations.histogram.observe(took);
            durations.quantiles.observe(took);
        }
    }

    pub(super) fn plugin(
        &self,
        index: usize,
        step: Step,
        operation: Operation,
        rejected: bool,
        took: Duration,
    ) {
        if let Some((_, durations)) = self.plugins.get(index) {
            durations.observe(step, operation, rejected, took);
        }
    }
}

impl Collect for ChainMetrics {
    fn collect(&self, out: &mut String) {
        let metric = "apiserver_admission_step_admission_duration_seconds";
        family(out, metric, "histogram", "Durations of the phases of admission.");
        self.steps
            .each(|durations, labels| durations.histogram.write(out, metric, &labels));
        let metric = "apiserver_admission_step_admission_duration_seconds_summary";
        family(out, metric, "summary", "Durations of the phases of admission.");
        self.steps.each(|durations, labels| {
            durations.quantiles.write(out, metric, &labels);
            durations.histogram.write_totals(out, metric, &labels);
        });
        let metric = "apiserver_admission_controller_admission_duration_seconds";
        family(out, metric, "histogram", "Durations of admission plugins.");
        for (name, durations) in &self.plugins {
            durations.each(|histogram, [operation, rejected, step]| {
                histogram.write(out, metric, &[("name", name), operation, rejected, step]);
            });
        }
    }
}

/// A family whose first label is a name of the users'.
#[derive(Debug)]
struct Named<T> {
    metric: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    series: Mutex<BTreeMap<Vec<String>, T>>,
}

impl<T> Named<T> {
    fn new(metric: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Named {
            metric,
            help,
            labels,
            series: Mutex::default(),
        }
    }

    fn with(&self, values: &[&str], new: impl FnOnce() -> T, change: impl FnOnce(&mut T)) {
        let mut key: Vec<String> = values.iter().map(ToString::to_string).collect();
        let mut series = self.series.lock();
        if series.len() >= limits::ADMISSION_SERIES
            && !series.contains_key(&key)
            && let Some(name) = key.first_mut()
        {
            *name = OTHER.to_string();
        }
        change(series.entry(key).or_insert_with(new));
    }

    fn each(&self, out: &mut String, kind: &str, write: impl Fn(&mut String, &T, &[(&str, &str)])) {
        let series = self.series.lock();
        if series.is_empty() {
            return;
        }
        family(out, self.metric, kind, self.help);
        for (values, one) in &*series {
            let names = self.labels.iter().copied();
            let labels: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
            write(out, one, &labels);
        }
    }
}

impl Named<u64> {
    fn count(&self, values: &[&str]) {
        self.with(values, || 0, |count| *count += 1);
    }

    fn collect(&self, out: &mut String) {
        self.each(out, "counter", |out, count, labels| {
            sample(out, self.metric, labels, count);
        });
    }
}

impl Named<Histogram> {
    fn observe(&self, values: &[&str], buckets: &'static [f64], took: Duration) {
        self.with(values, || Histogram::new(buckets), |series| series.observe(took));
    }

    fn collect(&self, out: &mut String) {
        self.each(out, "histogram", |out, series, labels| {
            series.write(out, self.metric, labels);
        });
    }
}

/// How a call of a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookOutcome<'a> {
    Allowed,
    /// The webhook refused, with this code.
    Refused(u16),
    /// There was no answer, and the write is refused or goes on.
    Failed {
        code: u16,
        rejected: bool,
        why: &'a str,
    },
}

/// What webhooks and policies cost, shared by the plugins that ask them.
#[derive(Debug)]
pub struct DynamicMetrics {
    webhooks: Named<Histogram>,
    requests: Named<u64>,
    rejections: Named<u64>,
    failed_open: Named<u64>,
    broke_glass: Named<u64>,
    costs: Costs,
    conditions: Named<Histogram>,
    condition_errors: Named<u64>,
    exclusions: Named<u64>,
    validating: Named<Histogram>,
    mutating: Named<Histogram>,
}

impl Default for DynamicMetrics {
    fn default() -> Self {
        DynamicMetrics {
            webhooks: Named::new(
                "apiserver_admission_webhook_admission_duration_seconds",
                &["name", "operation", "rejected", "type"],
                "Durations of calls of admission webhooks.",
            ),
            requests: Named::new(
                "apiserver_admission_webhook_request_total",
                &["name", "code", "operation", "rejected", "type"],
                "Calls of admission webhooks.",
            ),
            rejections: Named::new(
                "apiserver_admission_webhook_rejection_count",
                &["name", "error_type", "operation", "rejection_code", "type"],
                "Writes that admission webhooks refused.",
            ),
            failed_open: Named::new(
                "apiserver_admission_webhook_fail_open_count",
                &["name", "type"],
                "Writes that went on although an admission webhook failed.",
            ),
            broke_glass: Named::new(
                "apiserver_admission_webhook_break_glass_count",
                &["name", "type"],
                "Writes that went on although an admission webhook could not be reached, because they may bring it back.",
            ),
            costs: Costs::default(),
            conditions: Named::new(
                "apiserver_admission_match_condition_evaluation_seconds",
                &["name", "kind", "operation", "type"],
                "Durations of the evaluation of match conditions.",
            ),
            condition_errors: Named::new(
                "apiserver_admission_match_condition_evaluation_errors_total",
                &["name", "kind", "operation", "type"],
                "Evaluations of match conditions that failed.",
            ),
            exclusions: Named::new(
                "apiserver_admission_match_condition_exclusions_total",
                &["name", "kind", "operation", "type"],
                "Writes that match conditions excluded.",
            ),
            validating: Named::new(
                "apiserver_validating_admission_policy_check_duration_seconds",
                &["policy", "policy_binding", "error_type", "enforcement_action"],
                "Durations of the validations of policies.",
            ),
            mutating: Named::new(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                &["policy", "policy_binding", "error_type"],
                "Durations of the mutations of policies.",
            ),
        }
    }
}

/// The kind of what has match conditions, and the phase, as labels say them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConditionLabels {
    pub(crate) kind: &'static str,
    pub(crate) phase: &'static str,
}

impl DynamicMetrics {
    /// Counts a call of a webhook.
    pub(crate) fn webhook(
        &self,
        name: &str,
        phase: &str,
        operation: Operation,
        outcome: WebhookOutcome<'_>,
        took: Duration,
    ) {
        self.costs
            .change(Asked::Webhook, phase, name, |cost| match outcome {
                WebhookOutcome::Allowed => cost.asked(took),
                WebhookOutcome::Refused(_) => {
                    cost.asked(took);
                    cost.refusals += 1;
                }
                WebhookOutcome::Failed { why, .. } => {
                    cost.asked(took);
                    cost.failed(why);
                }
            });
        let (code, rejected, error) = match outcome {
            WebhookOutcome::Allowed => (200, false, None),
            WebhookOutcome::Refused(code) => (code, true, Some("no_error")),
            WebhookOutcome::Failed { code, rejected, .. } => {
                (code, rejected, rejected.then_some("calling_webhook_error"))
            }
        };
        let (code, operation) = (code.min(600).to_string(), operation.as_str());
        let shown = if rejected { "true" } else { "false" };
        self.webhooks
            .observe(&[name, operation, shown, phase], WEBHOOK_BUCKETS, took);
        self.requests.count(&[name, &code, operation, shown, phase]);
        if let Some(error) = error {
            self.rejections.count(&[name, error, operation, &code, phase]);
        }
    }

    /// Counts a write that is refused because a webhook's patch cannot be applied.
    pub(crate) fn unusable(&self, name: &str, phase: &str, operation: Operation) {
        let values = [name, "apiserver_internal_error", operation.as_str(), "0", phase];
        self.rejections.count(&values);
    }

    /// Counts a write that goes on although a webhook failed.
    pub(crate) fn failed_open(&self, name: &str, phase: &str) {
        self.failed_open.count(&[name, phase]);
        self.costs
            .change(Asked::Webhook, phase, name, |cost| cost.failed_open += 1);
    }

    /// Counts a write that goes on although a webhook cannot be reached.
    pub(crate) fn broke_glass(&self, name: &str, phase: &str) {
        self.broke_glass.count(&[name, phase]);
        self.costs
            .change(Asked::Webhook, phase, name, |cost| cost.broke_glass += 1);
    }

    /// What each webhook and policy has cost.
    pub fn report(&self) -> Value {
        self.costs.report()
    }

    /// Counts an evaluation of match conditions. `held`: `None` when it failed.
    pub(crate) fn conditions(
        &self,
        name: &str,
        labels: ConditionLabels,
        operation: Operation,
        held: Option<bool>,
        took: Duration,
    ) {
        let values = [name, labels.kind, operation.as_str(), labels.phase];
        self.conditions.observe(&values, CONDITION_BUCKETS, took);
        match held {
            None => self.condition_errors.count(&values),
            Some(false) => self.exclusions.count(&values),
            Some(true) => {}
        }
    }

    /// Counts a validation of a policy. `message`: that of a failure.
    pub(crate) fn validation(
        &self,
        policy: &str,
        binding: &str,
        message: Option<&str>,
        action: &str,
        took: Duration,
    ) {
        self.costs.change(Asked::Policy, "validating", policy, |cost| {
            cost.asked(took);
            match message {
                Some(why) if is_failure(why) => cost.failed(why),
                Some(_) if action == "deny" => cost.refusals += 1,
                _ => {}
            }
        });
        let error = error_type(message);
        self.validating
            .observe(&[policy, binding, error, action], POLICY_BUCKETS, took);
    }

    /// Counts the mutations of a policy. `message`: that of a failure.
    pub(crate) fn mutation(&self, policy: &str, binding: &str, message: Option<&str>, took: Duration) {
        self.costs.change(Asked::Policy, "mutating", policy, |cost| {
            cost.asked(took);
            if let Some(why) = message {
                cost.failed(why);
            }
        });
        let error = error_type(message);
        self.mutating
            .observe(&[policy, binding, error], POLICY_BUCKETS, took);
    }
}

/// Whether a message is of an expression that could not be evaluated, rather than of one that does not hold.
fn is_failure(message: &str) -> bool {
    [
        "compilation",
        "expression '",
        "validation failed due to running out of",
    ]
    .iter()
    .any(|begin| message.starts_with(begin))
}

/// What upstream calls a failure with this message.
fn error_type(message: Option<&str>) -> &'static str {
    match message {
        None => "no_error",
        Some(text) if text.starts_with("compilation") => "compile_error",
        Some(text) if text.starts_with("validation failed due to running out of cost budget") => {
            "out_of_budget"
        }
        Some(_) => "invalid_error",
    }
}

impl Collect for DynamicMetrics {
    fn collect(&self, out: &mut String) {
        for histograms in [&self.webhooks, &self.conditions, &self.validating, &self.mutating] {
            histograms.collect(out);
        }
        for counters in [
            &self.requests,
            &self.rejections,
            &self.failed_open,
            &self.broke_glass,
            &self.condition_errors,
            &self.exclusions,
        ] {
            counters.collect(out);
        }
        for (checks, total, help) in [
            (
                &self.validating,
                "apiserver_validating_admission_policy_check_total",
                "Validations of policies.",
            ),
            (
                &self.mutating,
                "apiserver_mutating_admission_policy_check_total",
                "Mutations of policies.",
            ),
        ] {
            let series = checks.series.lock();
            if series.is_empty() {
                continue;
            }
            family(out, total, "counter", help);
            for (values, one) in &*series {
                let names = checks.labels.iter().copied();
                let labels: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
                sample(out, total, &labels, one.count());
            }
        }
    }
}

#[cfg(test)]
mod tests;
