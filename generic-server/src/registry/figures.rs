//! What is counted of one resource's store, its cache and its watches, under upstream's names.
//!
//! A store has one of these for as long as it is there; its caches come and go. `directory::figures` writes those of all stores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use machinery::GroupResource;
use parking_lot::RwLock;

use crate::metrics::{Families, Histogram, Sizes, Tally, sample};

/// Upstream's buckets of `etcd_request_duration_seconds`.
const REQUEST_BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of `apiserver_watch_cache_read_wait_seconds`.
const WAIT_BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0,
];
/// Upstream's buckets of `apiserver_watch_list_duration_seconds`.
const WATCH_LIST_BUCKETS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of `apiserver_watch_events_sizes`.
const EVENT_SIZES: [u64; 8] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// Upstream's buckets of `apiserver_request_body_size_bytes`.
const BODY_SIZES: [u64; 31] = {
    let mut bounds = [0; 31];
    let (mut at, mut bound) = (0, 50_000);
    while at < bounds.len() {
        bounds[at] = bound;
        bound += 100_000;
        at += 1;
    }
    bounds
};

/// What an engine is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Delete,
    Get,
    List,
    Update,
}

/// The operations by upstream's names.
const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Create, "create"),
    (Operation::Delete, "delete"),
    (Operation::Get, "get"),
    (Operation::List, "list"),
    (Operation::Update, "update"),
];

/// Verbs of requests with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyVerb {
    Create,
    Delete,
    DeleteCollection,
    Patch,
    Update,
}

impl BodyVerb {
    /// By the verb of a request; none for those without a body.
    pub(crate) fn of(verb: &str) -> Option<Self> {
        match verb {
            "create" => Some(BodyVerb::Create),
            "delete" => Some(BodyVerb::Delete),
            "deletecollection" => Some(BodyVerb::DeleteCollection),
            "patch" => Some(BodyVerb::Patch),
            "update" => Some(BodyVerb::Update),
            _ => None,
        }
    }
}

/// These verbs by upstream's names.
const BODY_VERBS: [(BodyVerb, &str); 5] = [
    (BodyVerb::Create, "create"),
    (BodyVerb::Delete, "delete"),
    (BodyVerb::DeleteCollection, "delete_collection"),
    (BodyVerb::Patch, "patch"),
    (BodyVerb::Update, "update"),
];

/// Requests to the engine.
#[derive(Debug)]
struct Requests {
    times: Histogram,
    errors: AtomicU64,
}

/// The counters of one resource.
#[derive(Debug, Default)]
pub struct StoreFigures {
    requests: [OnceLock<Requests>; OPERATIONS.len()],
    /// Events of the engine.
    received: AtomicU64,
    /// Events that were handed to watches.
    dispatched: AtomicU64,
    /// Revisions that came without an event.
    progress: AtomicU64,
    /// Times that a cache was filled, and the objects that it was filled with.
    initializations: AtomicU64,
    initial: AtomicU64,
    /// Watches that were too slow.
    terminated: AtomicU64,
    /// Lists out of the cache: of everything, and by the indexed field.
    lists: [AtomicU64; 2],
    /// Lists that ask for the newest state, and those that failed to get it.
    consistent: [AtomicU64; 2],
    /// Stored values that could not be read.
    undecodable: AtomicU64,
    waits: OnceLock<Histogram>,
    bodies: [OnceLock<Sizes<{ BODY_SIZES.len() }>>; BODY_VERBS.len()],
    /// By served version: a resource has few.
    watches: RwLock<Vec<(Box<str>, Arc<WatchFigures>)>>,
}

/// The counters of the watches of one version of a resource.
#[derive(Debug)]
pub(crate) struct WatchFigures {
    sizes: Sizes<{ EVENT_SIZES.len() }>,
    /// How long initial events took, by [`SCOPES`].
    lists: [OnceLock<Histogram>; SCOPES.len()],
}

/// The sizes of the events of one piece of a watch.
pub(crate) type EventTally = Tally<{ EVENT_SIZES.len() }>;

/// What a list or a watch is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Cluster,
    Namespace,
    Resource,
}

impl Scope {
    /// By the name and the namespace of the request.
    pub(crate) fn of(name: &str, namespace: &str) -> Self {
        match (name, namespace) {
            ("", "") => Scope::Cluster,
            ("", _) => Scope::Namespace,
            _ => Scope::Resource,
        }
    }
}

/// The scopes by upstream's names.
const SCOPES: [(Scope, &str); 3] = [
    (Scope::Cluster, "cluster"),
    (Scope::Namespace, "namespace"),
    (Scope::Resource, "resource"),
];

impl WatchFigures {
    /// An empty tally of events.
    pub(crate) fn tally(&self) -> EventTally {
        self.sizes.tally()
    }

    /// Counts the events of a piece.
    pub(crate) fn sent(&self, tally: &EventTally) {
        self.sizes.add(tally);
    }

    /// Counts a watch whose initial events are complete.
    pub(crate) fn initial_events_sent(&self, scope: Scope, took: Duration) {
        let lists = &self.lists[scope as usize];
        lists
            .get_or_init(|| Histogram::new(WATCH_LIST_BUCKETS))
            .observe(took);
    }
}

impl StoreFigures {
    /// Runs a request to the engine, counts it and how long it took.
    pub(crate) async fn request<T, E>(
        &self,
        operation: Operation,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let answer = request.await;
        let requests = self.requests[operation as usize].get_or_init(|| Requests {
            times: Histogram::new(REQUEST_BUCKETS),
            errors: AtomicU64::new(0),
        });
        requests.times.observe(begun.elapsed());
        if answer.is_err() {
            requests.errors.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Events of the engine, and those of them that watches are to see.
    pub(crate) fn events(&self, received: usize, dispatched: usize) {
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        self.dispatched.fetch_add(dispatched as u64, Ordering::Relaxed);
    }

    /// A revision without events.
    pub(crate) fn progressed(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// A cache begins with so many objects.
    pub(crate) fn initialized(&self, objects: usize) {
        self.initializations.fetch_add(1, Ordering::Relaxed);
        self.initial.fetch_add(objects as u64, Ordering::Relaxed);
    }

    /// A watch was too slow.
    pub(crate) fn terminated(&self) {
        self.terminated.fetch_add(1, Ordering::Relaxed);
    }

    /// A list out of the cache, by the indexed field or of everything.
    pub(crate) fn listed(&self, indexed: bool) {
        self.lists[usize::from(indexed)].fetch_add(1, Ordering::Relaxed);
    }

    /// A list that asks for the newest state.
    pub(crate) fn read_consistently(&self, succeeded: bool) {
        self.consistent[usize::from(!succeeded)].fetch_add(1, Ordering::Relaxed);
    }

    /// A stored value could not be read.
    pub(crate) fn undecodable(&self) {
        self.undecodable.fetch_add(1, Ordering::Relaxed);
    }

    /// A read waited for the cache.
    pub(crate) fn waited(&self, took: Duration) {
        self.waits
            .get_or_init(|| Histogram::new(WAIT_BUCKETS))
            .observe(took);
    }

    /// The body of a request.
    pub(crate) fn body(&self, verb: BodyVerb, size: usize) {
        let bodies = self.bodies[verb as usize].get_or_init(|| Sizes::new(&BODY_SIZES));
        bodies.observe(size as u64);
    }

    /// The counters of the watches of a version.
    pub(crate) fn watches(&self, version: &str) -> Arc<WatchFigures> {
        let find = |all: &[(Box<str>, Arc<WatchFigures>)]| {
            let found = all.iter().find(|(known, _)| **known == *version);
            found.map(|(_, figures)| figures.clone())
        };
        if let Some(found) = find(&self.watches.read()) {
            return found;
        }
        let mut all = self.watches.write();
        find(&all).unwrap_or_else(|| {
            let figures = Arc::new(WatchFigures {
                sizes: Sizes::new(&EVENT_SIZES),
                lists: Default::default(),
            });
            all.push((version.into(), figures.clone()));
            figures
        })
    }

    /// Appends the samples of a resource.
    pub(crate) fn write(&self, resource: &GroupResource, out: &mut Families) {
        let own = [("group", &*resource.group), ("resource", &*resource.resource)];
        for (operation, name) in OPERATIONS {
            let Some(requests) = self.requests[operation as usize].get() else {
                continue;
            };
            let labels = [("operation", name), own[0], own[1]];
            let metric = "etcd_request_duration_seconds";
            let help = "How long requests to the store took, in seconds, whatever the store is.";
            requests
                .times
                .write(out.of(metric, "histogram", help), metric, &labels);
            let metric = "etcd_requests_total";
            let text = out.of(metric, "counter", "Requests to the store, whatever it is.");
            sample(text, metric, &labels, requests.times.count());
            let errors = load(&requests.errors);
            if errors > 0 {
                let metric = "etcd_request_errors_total";
                sample(
                    out.of(metric, "counter", "Requests to the store that failed."),
                    metric,
                    &labels,
                    errors,
                );
            }
        }
        let mut count =
            |metric: &'static str, help: &'static str, more: &[(&str, &str)], count: &AtomicU64| {
                // As upstream's: a series is there from its first event on.
                if load(count) > 0 {
                    let kind = if metric == "etcd_bookmark_counts" {
                        "gauge"
                    } else {
                        "counter"
                    };
                    let labels: Vec<(&str, &str)> = own.iter().chain(more).copied().collect();
                    sample(out.of(metric, kind, help), metric, &labels, load(count));
                }
            };
        let help = "Events received of the store.";
        count(
            "apiserver_storage_events_received_total",
            help,
            &[],
            &self.received,
        );
        count(
            "apiserver_watch_cache_events_received_total",
            help,
            &[],
            &self.received,
        );
        let help = "Events handed to watches.";
        count(
            "apiserver_watch_cache_events_dispatched_total",
            help,
            &[],
            &self.dispatched,
        );
        let help = "Revisions of the store that came without an event.";
        count("etcd_bookmark_total", help, &[], &self.progress);
        count("etcd_bookmark_counts", help, &[], &self.progress);
        let help = "Times that a cache was filled.";
        count(
            "apiserver_watch_cache_initializations_total",
            help,
            &[],
            &self.initializations,
        );
        let help = "Objects that caches were filled with.";
        count("apiserver_init_events_total", help, &[], &self.initial);
        let help = "Watches that were ended because they were too slow.";
        count("apiserver_terminated_watchers_total", help, &[], &self.terminated);
        for (index, lists) in ["", "f:spec.nodeName"].into_iter().zip(&self.lists) {
            let help = "Lists answered from the cache, by index.";
            count("apiserver_cache_list_total", help, &[("index", index)], lists);
        }
        for (success, reads) in ["true", "false"].into_iter().zip(&self.consistent) {
            let help = "Lists of the newest state, which the cache waits for.";
            let labels = [("success", success), ("fallback", "false")];
            count(
                "apiserver_watch_cache_consistent_read_total",
                help,
                &labels,
                reads,
            );
        }
        let help = "Stored values that could not be read.";
        count(
            "apiserver_storage_decode_errors_total",
            help,
            &[],
            &self.undecodable,
        );
        if let Some(waits) = self.waits.get() {
            let metric = "apiserver_watch_cache_read_wait_seconds";
            let help =
                "How long reads waited for the cache, in seconds; those that did not wait are not counted.";
            waits.write(out.of(metric, "histogram", help), metric, &own);
        }
        for (verb, name) in BODY_VERBS {
            if let Some(bodies) = self.bodies[verb as usize].get() {
                let metric = "apiserver_request_body_size_bytes";
                let text = out.of(
                    metric,
                    "histogram",
                    "Lengths of the bodies of requests, in bytes.",
                );
                bodies.write(text, metric, &[own[0], own[1], ("verb", name)]);
            }
        }
        for (version, watches) in self.watches.read().iter() {
            let labels = [own[0], ("version", &**version), own[1]];
            if watches.sizes.count() > 0 {
                let metric = "apiserver_watch_events_sizes";
                let text = out.of(metric, "histogram", "Lengths of the events of watches, in bytes.");
                watches.sizes.write(text, metric, &labels);
                let metric = "apiserver_watch_events_total";
                let text = out.of(metric, "counter", "Events sent to watches.");
                sample(text, metric, &labels, watches.sizes.count());
            }
            for (scope, name) in SCOPES {
                if let Some(times) = watches.lists[scope as usize].get() {
                    let metric = "apiserver_watch_list_duration_seconds";
                    let help = "How long watches took to send their initial events, in seconds.";
                    let labels = [labels[0], labels[1], labels[2], ("scope", name)];
                    times.write(out.of(metric, "histogram", help), metric, &labels);
                }
            }
        }
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_upstreams() {
        assert_eq!(
            (BODY_SIZES[0], BODY_SIZES[1], BODY_SIZES[30]),
            (50_000, 150_000, 3_050_000)
        );
    }

    #[test]
    fn figures_appear_with_their_first_event() {
        let written = |figures: &StoreFigures| {
            let (mut families, mut out) = (Families::default(), String::new());
            figures.write(&GroupResource::new("g", "r"), &mut families);
            families.write(&mut out);
            out
        };
        let figures = StoreFigures::default();
        assert_eq!(written(&figures), "");
        let watches = figures.watches("v1");
        assert!(Arc::ptr_eq(&watches, &figures.watches("v1")));
        watches.initial_events_sent(Scope::of("", "a"), Duration::from_millis(70));
        figures.events(2, 1);
        figures.listed(true);
        let out = written(&figures);
        for line in [
            "apiserver_storage_events_received_total{group=\"g\",resource=\"r\"} 2",
            "apiserver_watch_cache_events_dispatched_total{group=\"g\",resource=\"r\"} 1",
            "apiserver_cache_list_total{group=\"g\",resource=\"r\",index=\"f:spec.nodeName\"} 1",
            "apiserver_watch_list_duration_seconds_bucket{group=\"g\",version=\"v1\",resource=\"r\",scope=\"namespace\",le=\"0.1\"} 1",
        ] {
            assert!(out.lines().any(|known| known == line), "{line}\n{out}");
        }
        assert!(!out.contains("apiserver_watch_events_total"), "{out}");
    }
}
