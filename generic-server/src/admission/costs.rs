//! What each webhook and policy has cost since the start, for the report at `/debug/admission`: bounded, without anything of the objects.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use machinery::limits;
use machinery::time::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The least duration that is told apart, in nanoseconds; each of the others begins at twice the one before.
const LEAST: u64 = 1_000;
/// Durations that are told apart: from a microsecond to half a minute.
const STEPS: usize = 26;
/// The longest error that is kept, in characters.
const ERROR: usize = 300;
/// The name of everything past the bound.
const OTHER: &str = "other";

/// What is asked about writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Policy,
    Webhook,
}

/// The cost of one of them.
#[derive(Debug, Default)]
pub(super) struct Cost {
    calls: u64,
    pub(super) refusals: u64,
    failures: u64,
    pub(super) failed_open: u64,
    pub(super) broke_glass: u64,
    total: Duration,
    steps: [u64; STEPS],
    /// When, in seconds since 1970, and what.
    last_error: Option<(i64, String)>,
}

impl Cost {
    pub(super) fn asked(&mut self, took: Duration) {
        self.calls += 1;
        self.total += took;
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let step = (nanos / LEAST).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.steps[step.min(STEPS - 1)] += 1;
    }

    pub(super) fn failed(&mut self, why: &str) {
        self.failures += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or_default();
        self.last_error = Some((now, without_queries(why)));
    }

    /// A duration, in milliseconds, that this part of the calls did not exceed; within a factor of two.
    fn quantile(&self, part: f64) -> f64 {
        let calls = self.steps.iter().sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "a rank need not be exact")]
        let wanted = part * calls as f64;
        let mut before = 0_u64;
        let step = self.steps.iter().position(|count| {
            before += count;
            #[expect(clippy::cast_precision_loss, reason = "a rank need not be exact")]
            let reached = before as f64 >= wanted;
            reached
        });
        let nanos = LEAST << step.unwrap_or(STEPS - 1);
        Duration::from_nanos(nanos).as_secs_f64() * 1e3
    }

    fn show(&self) -> Value {
        let mut shown = json!({
            "calls": self.calls, "refusals": self.refusals, "failures": self.failures, "failedOpen": self.failed_open,
            "brokeGlass": self.broke_glass, "totalSeconds": self.total.as_secs_f64(),
        });
        if self.calls > 0 {
            shown["milliseconds"] =
                json!({"p50": self.quantile(0.5), "p90": self.quantile(0.9), "p99": self.quantile(0.99)});
        }
        if let Some((at, why)) = &self.last_error {
            let at = Timestamp::from_unix(*at).to_rfc3339();
            shown["lastError"] = json!({"time": at, "message": why});
        }
        shown
    }
}

/// The cost of all of them, by what they are, phase and name.
#[derive(Debug, Default)]
pub(super) struct Costs(Mutex<BTreeMap<(Asked, String, String), Cost>>);

impl Costs {
    /// Changes the cost of one. Past the bound new names are counted together.
    pub(super) fn change(&self, asked: Asked, phase: &str, name: &str, change: impl FnOnce(&mut Cost)) {
        let mut costs = self.0.lock();
        let mut key = (asked, phase.to_string(), name.to_string());
        if costs.len() >= limits::ADMISSION_SERIES && !costs.contains_key(&key) {
            key.2 = OTHER.to_string();
        }
        change(costs.entry(key).or_default());
    }

    /// All of them.
    pub(super) fn report(&self) -> Value {
        let costs = self.0.lock();
        let of = |wanted: Asked| -> Vec<Value> {
            let costs = costs.iter().filter(|((asked, ..), _)| *asked == wanted);
            let shown = costs.map(|((_, phase, name), cost)| {
                let mut shown = cost.show();
                shown["name"] = name.as_str().into();
                shown["phase"] = if phase == "admit" { "mutating" } else { phase }.into();
                shown
            });
            shown.collect()
        };
        json!({"webhooks": of(Asked::Webhook), "policies": of(Asked::Policy)})
    }
}

/// The beginning of an error without the queries of URLs, which may hold secrets.
fn without_queries(why: &str) -> String {
    let mut out = String::new();
    let mut query = false;
    for c in why.chars().take(ERROR) {
        match c {
            '?' => query = true,
            '"' | ' ' => query = false,
            _ => {}
        }
        if !query {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_what_each_has_cost() {
        let costs = Costs::default();
        for millis in [1, 1, 1, 1, 1, 1, 1, 1, 1, 900] {
            let took = Duration::from_millis(millis);
            costs.change(Asked::Webhook, "admit", "a", |cost| cost.asked(took));
        }
        let why = "failed to call webhook: Post \"https://u/path?token=secret&timeout=10s\": refused";
        costs.change(Asked::Webhook, "admit", "a", |cost| {
            cost.refusals += 1;
            cost.failed(why);
        });
        costs.change(Asked::Policy, "validating", "p", |cost| {
            cost.asked(Duration::ZERO)
        });
        let report = costs.report();
        let hook = &report["webhooks"][0];
        assert_eq!(
            (&hook["name"], &hook["phase"], &hook["calls"]),
            (&json!("a"), &json!("mutating"), &json!(10))
        );
        assert_eq!(
            hook["lastError"]["message"],
            "failed to call webhook: Post \"https://u/path\": refused"
        );
        let (p50, p99) = (&hook["milliseconds"]["p50"], &hook["milliseconds"]["p99"]);
        let (p50, p99) = (p50.as_f64().expect("a number"), p99.as_f64().expect("a number"));
        assert!(
            (1.0..2.1).contains(&p50) && (900.0..1900.0).contains(&p99),
            "{hook}"
        );
        assert_eq!(report["policies"][0]["milliseconds"]["p99"], 0.001);
    }

    #[test]
    fn names_past_the_bound_are_together() {
        let costs = Costs::default();
        for index in 0..limits::ADMISSION_SERIES + 10 {
            costs.change(Asked::Webhook, "admit", &index.to_string(), |cost| {
                cost.asked(Duration::ZERO)
            });
        }
        let report = costs.report();
        let hooks = report["webhooks"].as_array().expect("a list");
        assert_eq!(hooks.len(), limits::ADMISSION_SERIES + 1);
        let other = hooks
            .iter()
            .find(|hook| hook["name"] == OTHER)
            .expect("the others");
        assert_eq!(other["calls"], 10);
    }
}
