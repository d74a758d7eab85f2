//! Costs of custom resources by CRD, in `/metrics`.
//!
//! Nothing is read for it: only CRDs in memory are reported. The number of series is bounded: the CRDs that hold most are
//! reported by name, the others together as `other`.

use std::mem::size_of;
use std::sync::Arc;

use generic_server::metrics::{Collect, family, sample};
use generic_server::registry::Entry;

use crate::definition::Definition;
use crate::server::ApiExtensions;

/// CRDs that have series of their own, at most.
const MAX_SERIES: usize = 200;
/// The approximate overhead of an object in the cache, in bytes.
const PER_OBJECT: usize = size_of::<Entry>() + 64;

/// The costs of one CRD.
#[derive(Debug, Default, Clone)]
struct Cost {
    objects: u64,
    stored: u64,
    cache: u64,
    schema: u64,
    definition: u64,
    watchers: u64,
    rules: f64,
    conversion: f64,
    conversions: u64,
    failures: u64,
}

impl Cost {
    /// Of a CRD that is in use; `None` for those without any use yet.
    fn of(definition: &Definition) -> Option<Cost> {
        let usage = &definition.usage;
        let (conversions, failures) = usage.conversions();
        let mut cost = Cost {
            definition: count(definition.entry.json.len()),
            rules: usage.rule_seconds(),
            conversion: usage.conversion_seconds(),
            conversions,
            failures,
            ..Cost::default()
        };
        let mut used = conversions > 0 || cost.rules > 0.0;
        for resource in definition.serving.slots.iter().filter_map(|slot| slot.peek()) {
            used = true;
            cost.schema += count(resource.schema().map_or(0, |s| s.root().arena().weight()));
        }
        if let Some(cache) = definition
            .serving
            .store
            .get()
            .and_then(|s| s.as_system().started_cache())
        {
            let snapshot = cache.snapshot();
            used |= !snapshot.objects.is_empty();
            cost.objects = count(snapshot.objects.len());
            cost.stored = snapshot
                .objects
                .values()
                .map(|e| count(e.json.len() + e.key.len()))
                .sum();
            cost.cache = cost.stored + cost.objects * count(PER_OBJECT);
            cost.watchers = count(cache.watchers());
        }
        used.then_some(cost)
    }

    fn add(&mut self, other: &Cost) {
        self.objects += other.objects;
        self.stored += other.stored;
        self.cache += other.cache;
        self.schema += other.schema;
        self.definition += other.definition;
        self.watchers += other.watchers;
        self.rules += other.rules;
        self.conversion += other.conversion;
        self.conversions += other.conversions;
        self.failures += other.failures;
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Name, type, help and value of every family.
type Family = (&'static str, &'static str, &'static str, fn(&Cost) -> f64);

#[expect(clippy::cast_precision_loss, reason = "gauges are floating point")]
const FAMILIES: &[Family] = &[
    (
        "apiserver_customresource_objects",
        "gauge",
        "Objects of a CRD that is in use.",
        |c| c.objects as f64,
    ),
    (
        "apiserver_customresource_stored_bytes",
        "gauge",
        "Bytes of those objects as they are stored, keys included, before encryption.",
        |c| c.stored as f64,
    ),
    (
        "apiserver_customresource_cache_bytes",
        "gauge",
        "Approximate memory of those objects.",
        |c| c.cache as f64,
    ),
    (
        "apiserver_customresource_schema_bytes",
        "gauge",
        "Approximate memory of the compiled schemas of a CRD; dropped when idle.",
        |c| c.schema as f64,
    ),
    (
        "apiserver_customresource_definition_bytes",
        "gauge",
        "Bytes of the CRD itself.",
        |c| c.definition as f64,
    ),
    (
        "apiserver_customresource_watchers",
        "gauge",
        "Watches of a CRD's objects, the server's own included.",
        |c| c.watchers as f64,
    ),
    (
        "apiserver_customresource_rule_evaluation_seconds_total",
        "counter",
        "Time spent evaluating x-kubernetes-validations.",
        |c| c.rules,
    ),
    (
        "apiserver_customresource_conversion_seconds_total",
        "counter",
        "Time spent waiting for the conversion webhook.",
        |c| c.conversion,
    ),
    (
        "apiserver_customresource_conversion_calls_total",
        "counter",
        "Calls of the conversion webhook.",
        |c| c.conversions as f64,
    ),
    (
        "apiserver_customresource_conversion_failures_total",
        "counter",
        "Calls of the conversion webhook that had no answer to go by.",
        |c| c.failures as f64,
    ),
];

/// Reports what custom resources cost.
#[derive(Debug)]
pub struct CostMetrics(pub Arc<ApiExtensions>);

impl Collect for CostMetrics {
    fn collect(&self, out: &mut String) {
        let index = self.0.index();
        let costs = index.all().filter_map(|d| Some((d.name.clone(), Cost::of(d)?)));
        let mut costs: Vec<(Arc<str>, Cost)> = costs.collect();
        costs.sort_by(|(a, x), (b, y)| (y.cache, a).cmp(&(x.cache, b)));
        if costs.len() > MAX_SERIES {
            let mut other = Cost::default();
            for (_, cost) in costs.drain(MAX_SERIES..) {
                other.add(&cost);
            }
            costs.push(("other".into(), other));
        }
        for (name, kind, help, value) in FAMILIES {
            family(out, name, kind, help);
            for (crd, cost) in &costs {
                sample(out, name, &[("crd", crd)], value(cost));
            }
        }
        let name = "apiserver_customresourcedefinitions";
        family(out, name, "gauge", "CRDs, used or not.");
        sample(out, name, &[], index.all().count());
        self.0.deps.rule_times.collect(out);
    }
}
