//! The costs of the objects of a CRD so far, and the times of the rules of all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use generic_server::metrics::{Collect, DEFAULT_BUCKETS, Histogram, family};

/// How long rules took: those of a schema to compile, and those of an object to evaluate.
#[derive(Debug)]
pub struct RuleTimes {
    compilation: Histogram,
    evaluation: Histogram,
}

impl Default for RuleTimes {
    fn default() -> Self {
        RuleTimes {
            compilation: Histogram::new(DEFAULT_BUCKETS),
            evaluation: Histogram::new(DEFAULT_BUCKETS),
        }
    }
}

impl RuleTimes {
    /// Counts the compilation of a schema's rules.
    pub(crate) fn compiled(&self, time: Duration) {
        self.compilation.observe(time);
    }

    /// Counts the evaluation of an object's rules.
    pub(crate) fn evaluated(&self, time: Duration) {
        self.evaluation.observe(time);
    }
}

impl Collect for RuleTimes {
    fn collect(&self, out: &mut String) {
        for (name, help, times) in [
            (
                "apiserver_cel_compilation_duration_seconds",
                "How long the rules of a schema took to compile, in seconds.",
                &self.compilation,
            ),
            (
                "apiserver_cel_evaluation_duration_seconds",
                "How long the rules of an object took to evaluate, in seconds.",
                &self.evaluation,
            ),
        ] {
            family(out, name, "histogram", help);
            times.write(out, name, &[]);
        }
    }
}

/// Counters of one CRD; they live as long as it does.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    rules: AtomicU64,
    conversion: AtomicU64,
    conversions: AtomicU64,
    failures: AtomicU64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(nanos: &AtomicU64) -> f64 {
    Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64()
}

impl Usage {
    /// Records the evaluation of an object's rules.
    pub(crate) fn evaluated(&self, time: Duration) {
        self.rules.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Records a call of the conversion webhook.
    pub(crate) fn converted(&self, time: Duration, answered: bool) {
        self.conversion.fetch_add(nanos(time), Ordering::Relaxed);
        self.conversions.fetch_add(1, Ordering::Relaxed);
        if !answered {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Seconds spent on rules.
    pub(crate) fn rule_seconds(&self) -> f64 {
        seconds(&self.rules)
    }

    /// Seconds spent waiting for the conversion webhook.
    pub(crate) fn conversion_seconds(&self) -> f64 {
        seconds(&self.conversion)
    }

    /// Calls of the conversion webhook, and how many of them failed.
    pub(crate) fn conversions(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.conversions), load(&self.failures))
    }
}
