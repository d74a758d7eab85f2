//! `/metrics` in the Prometheus text format, with upstream's names where they mean the same.
//!
//! Request series are found by hash without allocating and updated by atomics: a request pays for one look-up. Other modules
//! add theirs through [`Collect`]. Not here: measurements of storage, which reports through a collector too.

pub mod catalogue;
mod connections;
mod exposition;
mod families;
mod histogram;
mod histograms;
mod peak;
mod process;
mod quantiles;
mod reloads;
mod sizes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

// Hashes that a client brings together lengthen a look-up by `MAX_SERIES` at most, so that the cheaper hash will do.
use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};

pub(crate) use connections::Closed;
pub use connections::ConnectionMetrics;
pub use exposition::Exposition;
pub(crate) use families::Families;
pub use histogram::{DEFAULT_BUCKETS, Histogram};
pub use histograms::Histograms;
pub(crate) use process::start as process_start;
pub(crate) use quantiles::Quantiles;
pub use reloads::{Reloads, content_hash, server_hash};
pub use sizes::{Sizes, Tally};

pub(crate) use peak::Peak;

/// Upstream's buckets of `apiserver_request_duration_seconds`.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];
/// Upstream's buckets of `apiserver_request_sli_duration_seconds`: the same from the third on.
const SLI_BUCKETS: &[f64] = {
    const ALL: &[f64] = &BUCKETS;
    ALL.split_at(2).1
};
/// Upstream's buckets of `apiserver_response_sizes`.
const SIZES: [u64; 7] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];
/// Names in paths are the client's: beyond this many series everything new is counted as `other`.
pub(crate) const MAX_SERIES: usize = 4096;

/// Writes metrics of its own.
pub trait Collect: Send + Sync + std::fmt::Debug {
    /// Appends families, by [`family`] and [`sample`].
    fn collect(&self, out: &mut String);
}

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    requests: RwLock<AllSeries>,
    hasher: RandomState,
    started: std::time::SystemTime,
    collectors: RwLock<Vec<Arc<dyn Collect>>>,
    /// The metrics of connections.
    pub connections: Arc<ConnectionMetrics>,
    /// Requests whose handler panicked.
    pub panics: AtomicU64,
    /// Requests ended by their deadline.
    pub timeouts: AtomicU64,
    /// Requests refused for too many in flight.
    pub rejected: AtomicU64,
    in_flight: [Peak; 2],
    authentications: [Histogram; 3],
    authorizations: [Histogram; 4],
    /// Authenticated requests by [`USERS`].
    users: [AtomicU64; USERS.len()],
    /// Deprecated APIs that were asked for, by their labels. There are as many as the server serves.
    deprecated: Mutex<BTreeSet<[Box<str>; 5]>>,
    exposition: Exposition,
}

/// Upstream's buckets of `authentication_duration_seconds` and `authorization_duration_seconds`.
const DECISION_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// User names as `authenticated_user_requests` has them: of few, so that the others are in no metric.
const USERS: [&str; 7] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
    "email_id",
    "other",
];

fn user_index(name: &str) -> usize {
    let known = USERS[..5].iter().position(|user| *user == name);
    known.unwrap_or(if name.contains('@') { 5 } else { 6 })
}

/// How authentication ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AuthenticationResult {
    Success,
    Failure,
    Error,
}

/// How authorization ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AuthorizationResult {
    Allowed,
    Denied,
    NoOpinion,
    Error,
}

/// The series by the hash of their labels.
type AllSeries = HashMap<u64, Vec<Arc<Series>>, RandomState>;

/// The names of a series' labels, in their order.
const NAMES: [&str; 8] = [
    "verb",
    "dry_run",
    "group",
    "version",
    "resource",
    "subresource",
    "scope",
    "system_client",
];
const DRY_RUN: usize = 1;
const CLIENT: usize = 7;

/// The labels of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Labels<'a> {
    pub(crate) verb: &'static str,
    pub(crate) dry_run: &'static str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) client: &'a str,
}

impl Labels<'_> {
    fn other(self) -> Self {
        Labels {
            group: "",
            version: "",
            resource: "other",
            subresource: "",
            ..self
        }
    }
}

#[derive(Debug)]
struct Series {
    labels: [Box<str>; 8],
    codes: Codes,
    buckets: [AtomicU64; BUCKETS.len() + 1],
    sum_micros: AtomicU64,
    /// Without what webhooks and the wait for a seat took; not for dry runs.
    sli: OnceLock<Histogram>,
    /// Of the answers to reads.
    sizes: OnceLock<Sizes<{ SIZES.len() }>>,
    running: AtomicI64,
    /// Answers that end requests in the server's defence.
    terminations: Codes,
    /// Answers that were cut.
    aborts: AtomicU64,
}

/// Counters by the answer's code.
#[derive(Debug, Default)]
struct Codes(RwLock<Vec<(u16, AtomicU64)>>);

impl Codes {
    fn count(&self, code: u16) {
        {
            let codes = self.0.read();
            if let Some((_, count)) = codes.iter().find(|(known, _)| *known == code) {
                count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let mut codes = self.0.write();
        match codes.iter().find(|(known, _)| *known == code) {
            Some((_, count)) => {
                count.fetch_add(1, Ordering::Relaxed);
            }
            None => codes.push((code, AtomicU64::new(1))),
        }
    }

    fn all(&self) -> Vec<(u16, u64)> {
        let codes = self.0.read();
        let counts = codes
            .iter()
            .map(|(code, count)| (*code, count.load(Ordering::Relaxed)));
        counts.collect()
    }
}

/// How a request went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) code: u16,
    /// From its arrival to the head of its answer.
    pub(crate) took: Duration,
    /// What of that it waited for a seat and for webhooks.
    pub(crate) waited: Duration,
    /// The length of the answer to a read, where it is known.
    pub(crate) size: Option<u64>,
}

/// One request's series. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Counted(Arc<Series>);

/// Counts a long-running request until dropped.
#[derive(Debug)]
pub(crate) struct LongRunning(Arc<Series>);

impl Drop for LongRunning {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counted {
    /// Counts the answer.
    pub(crate) fn done(&self, outcome: Outcome) {
        let series = &*self.0;
        let took = outcome.took;
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS
            .iter()
            .position(|b| seconds <= *b)
            .unwrap_or(BUCKETS.len());
        series.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        series.sum_micros.fetch_add(micros, Ordering::Relaxed);
        // Dry runs are in no such objective.
        if series.labels[DRY_RUN].is_empty() {
            let sli = series.sli.get_or_init(|| Histogram::new(SLI_BUCKETS));
            sli.observe(took.saturating_sub(outcome.waited));
        }
        if let Some(size) = outcome.size {
            self.sent(size);
        }
        series.codes.count(outcome.code);
    }

    /// Counts the length of an answer to a read, once it is known.
    pub(crate) fn sent(&self, size: u64) {
        let sizes = self.0.sizes.get_or_init(|| Sizes::new(&SIZES));
        sizes.observe(size);
    }

    /// Counts an answer that was cut.
    pub(crate) fn aborted(&self) {
        self.0.aborts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was ended in the server's defence.
    pub(crate) fn terminated(&self, code: u16) {
        self.0.terminations.count(code);
    }

    /// Counts a request that was refused before anything was done for it.
    pub(crate) fn refused(&self, code: u16) {
        self.terminated(code);
        self.0.codes.count(code);
    }

    /// Whether the lengths of answers are counted.
    pub(crate) fn counts_sizes(&self) -> bool {
        matches!(&*self.0.labels[0], "GET" | "LIST")
    }

    /// Counts a long-running request for as long as the guard lives.
    pub(crate) fn long_running(&self) -> LongRunning {
        self.0.running.fetch_add(1, Ordering::Relaxed);
        LongRunning(self.0.clone())
    }
}

/// Counts a request in flight until dropped.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Peak);

/// A request in flight whose answer outlasts the chain's work on it.
pub(crate) struct Unfinished(Arc<Metrics>, InFlightKind);

/// The kinds of requests in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InFlightKind {
    ReadOnly,
    Mutating,
}

impl InFlightKind {
    pub(crate) fn of(verb: &str) -> Self {
        match verb {
            "get" | "list" | "watch" => InFlightKind::ReadOnly,
            _ => InFlightKind::Mutating,
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.in_flight[self.1 as usize].leaves();
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.leaves();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            requests: RwLock::default(),
            hasher: RandomState::default(),
            started: std::time::SystemTime::now(),
            collectors: RwLock::default(),
            connections: Arc::default(),
            panics: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            in_flight: Default::default(),
            authentications: std::array::from_fn(|_| Histogram::new(DECISION_BUCKETS)),
            authorizations: std::array::from_fn(|_| Histogram::new(DECISION_BUCKETS)),
            users: Default::default(),
            deprecated: Mutex::default(),
            exposition: Exposition::default(),
        }
    }
}

impl Metrics {
    /// Metrics of a new server, all zero.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The same, of which this is shown.
    pub fn shown_by(exposition: Exposition) -> Arc<Self> {
        Arc::new(Metrics {
            exposition,
            ..Metrics::default()
        })
    }

    /// Adds what another module measures.
    pub fn register(&self, collector: Arc<dyn Collect>) {
        self.collectors.write().push(collector);
    }

    pub(crate) fn authenticated(&self, result: AuthenticationResult, took: Duration) {
        self.authentications[result as usize].observe(took);
    }

    /// A request of a user who was authenticated.
    pub(crate) fn request_of(&self, user: &str) {
        self.users[user_index(user)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn authorized(&self, result: AuthorizationResult, took: Duration) {
        self.authorizations[result as usize].observe(took);
    }

    pub(crate) fn in_flight(&self, kind: InFlightKind) -> InFlight<'_> {
        let gauge = &self.in_flight[kind as usize];
        gauge.enters();
        InFlight(gauge)
    }

    /// The same until the answer is taken.
    pub(crate) fn unfinished(self: &Arc<Self>, kind: InFlightKind) -> Unfinished {
        self.in_flight[kind as usize].enters();
        Unfinished(self.clone(), kind)
    }

    /// The series of a request.
    pub(crate) fn request(&self, labels: Labels<'_>) -> Counted {
        let key = self.hash(&labels);
        if let Some(found) = find(&self.requests.read(), key, &labels) {
            return Counted(found);
        }
        let mut all = self.requests.write();
        if let Some(found) = find(&all, key, &labels) {
            return Counted(found);
        }
        let (key, labels) = if all.len() < MAX_SERIES {
            (key, labels)
        } else {
            let other = labels.other();
            let key = self.hash(&other);
            if let Some(found) = find(&all, key, &other) {
                return Counted(found);
            }
            (key, other)
        };
        let series = Arc::new(Series {
            labels: values(&labels).map(Box::from),
            codes: Codes::default(),
            buckets: Default::default(),
            sum_micros: AtomicU64::new(0),
            sli: OnceLock::new(),
            sizes: OnceLock::new(),
            running: AtomicI64::new(0),
            terminations: Codes::default(),
            aborts: AtomicU64::new(0),
        });
        all.entry(key).or_default().push(series.clone());
        Counted(series)
    }

    /// The series of a request that has not been routed. Its names may be invented: they are labels where such a request was routed before,
    /// and `other` where none was.
    pub(crate) fn unrouted(&self, labels: Labels<'_>) -> Counted {
        let found = find(&self.requests.read(), self.hash(&labels), &labels);
        found.map_or_else(|| self.request(labels.other()), Counted)
    }

    /// A deprecated API was asked for, which goes with a release (empty where that is not known).
    pub(crate) fn deprecated_api(&self, labels: Labels<'_>, release: &str) {
        let values = [
            labels.group,
            labels.version,
            labels.resource,
            labels.subresource,
            release,
        ];
        let mut known = self.deprecated.lock();
        if known.len() < MAX_SERIES {
            known.insert(values.map(Box::from));
        }
    }

    fn hash(&self, labels: &Labels<'_>) -> u64 {
        self.hasher.hash_one(labels)
    }

    /// The whole document, as it is shown.
    pub fn render(&self) -> String {
        let (mut out, unexpected) = self.exposition.present(&self.whole());
        self.exposition.count_unexpected(unexpected, &mut out);
        out
    }

    /// What is shown of a document of metrics.
    pub(crate) fn present(&self, document: &str) -> String {
        self.exposition.present(document).0
    }

    fn whole(&self) -> String {
        let mut out = String::with_capacity(64 * 1024);
        self.exposition.describe(&mut out);
        self.render_requests(&mut out);
        let count = |c: &AtomicU64| c.load(Ordering::Relaxed).to_string();
        family(
            &mut out,
            "apiserver_current_inflight_requests",
            "gauge",
            "Highest number of requests being served since it was read before, by kind.",
        );
        for (kind, value) in ["readOnly", "mutating"].into_iter().zip(&self.in_flight) {
            let labels = [("request_kind", kind)];
            sample(
                &mut out,
                "apiserver_current_inflight_requests",
                &labels,
                value.highest(),
            );
        }
        outcomes(
            &mut out,
            ("authentication_attempts", "Authentications by result."),
            (
                "authentication_duration_seconds",
                "How long authentications took, in seconds, by result.",
            ),
            ["success", "failure", "error"],
            &self.authentications,
        );
        outcomes(
            &mut out,
            ("authorization_attempts_total", "Authorizations by result."),
            (
                "authorization_duration_seconds",
                "How long authorizations took, in seconds, by result.",
            ),
            ["allowed", "denied", "no-opinion", "error"],
            &self.authorizations,
        );
        let name = "authenticated_user_requests";
        family(
            &mut out,
            name,
            "counter",
            "Authenticated requests by kind of user name.",
        );
        for (user, count) in USERS.into_iter().zip(&self.users) {
            let count = count.load(Ordering::Relaxed);
            // As upstream's: a series is there from its first request on.
            if count > 0 {
                sample(&mut out, name, &[("username", user)], count);
            }
        }
        for (name, help, value) in [
            (
                "apiserver_request_panics_total",
                "Requests whose handler panicked.",
                &self.panics,
            ),
            (
                "apiserver_request_timeouts_total",
                "Requests ended by their deadline.",
                &self.timeouts,
            ),
            (
                "apiserver_dropped_requests_total",
                "Requests refused with 429.",
                &self.rejected,
            ),
        ] {
            family(&mut out, name, "counter", help);
            sample(&mut out, name, &[], count(value));
        }
        self.connections.render(&mut out);
        process::write(&mut out, self.started);
        for collector in self.collectors.read().iter() {
            collector.collect(&mut out);
        }
        out
    }

    fn render_requests(&self, out: &mut String) {
        let mut all: Vec<Arc<Series>> = self.requests.read().values().flatten().cloned().collect();
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        let labels = |series: &Series, more: &[(&str, &str)], wanted: &[usize]| {
            let mut text = String::new();
            let own = wanted.iter().map(|i| (NAMES[*i], &*series.labels[*i]));
            let component = [("component", "apiserver")];
            for (name, value) in own.chain(component).chain(more.iter().copied()) {
                push_label(&mut text, name, value);
            }
            text
        };
        let name = "apiserver_request_total";
        family(out, name, "counter", "Requests by verb, resource and answer.");
        for series in &all {
            for (code, count) in series.codes.all() {
                let code = code.to_string();
                let labels = labels(series, &[("code", &code)], &[0, 1, 2, 3, 4, 5, 6, 7]);
                let _ = writeln!(out, "{name}{{{labels}}} {count}");
            }
        }
        let name = "apiserver_request_duration_seconds";
        family(out, name, "histogram", "How long requests took, in seconds.");
        // Clients that share everything but their name share a histogram.
        let mut rest = all.as_slice();
        while let Some(first) = rest.first() {
            let same = rest
                .iter()
                .take_while(|s| s.labels[..7] == first.labels[..7])
                .count();
            let (group, others) = rest.split_at(same);
            rest = others;
            let mut running = 0;
            for (index, bound) in BUCKETS.iter().map(Some).chain([None]).enumerate() {
                running += group
                    .iter()
                    .map(|s| s.buckets[index].load(Ordering::Relaxed))
                    .sum::<u64>();
                let bound = bound.map_or("+Inf".to_string(), f64::to_string);
                let labels = labels(first, &[("le", &bound)], &[0, 1, 2, 3, 4, 5, 6]);
                let _ = writeln!(out, "{name}_bucket{{{labels}}} {running}");
            }
            let micros: u64 = group.iter().map(|s| s.sum_micros.load(Ordering::Relaxed)).sum();
            let labels = labels(first, &[], &[0, 1, 2, 3, 4, 5, 6]);
            let sum = Duration::from_micros(micros).as_secs_f64();
            let _ = writeln!(
                out,
                "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {running}"
            );
        }
        let name = "apiserver_longrunning_requests";
        family(out, name, "gauge", "Long-running requests being served.");
        for series in &all {
            let running = series.running.load(Ordering::Relaxed);
            if running != 0 {
                let labels = labels(series, &[], &[0, 2, 3, 4, 5, 6]);
                let _ = writeln!(out, "{name}{{{labels}}} {running}");
            }
        }
        self.render_details(out, &all);
    }

    /// What is counted of requests by the labels that neither clients nor dry runs tell apart.
    fn render_details(&self, out: &mut String, all: &[Arc<Series>]) {
        // Upstream's labels of these, of which those of a series are the first, third and so on.
        const LABELS: [usize; 6] = [0, 2, 3, 4, 5, 6];
        let mut groups: BTreeMap<[&str; 6], Vec<&Series>> = BTreeMap::new();
        for series in all {
            let key = LABELS.map(|label| &*series.labels[label]);
            groups.entry(key).or_default().push(series);
        }
        let named = |key: &[&str; 6], component: bool| {
            let own = LABELS
                .iter()
                .zip(key)
                .map(|(label, value)| (NAMES[*label], (*value).to_owned()));
            let component = component.then(|| ("component", "apiserver".to_owned()));
            own.chain(component).collect::<Vec<(&str, String)>>()
        };
        fn borrowed<'l>(labels: &'l [(&'l str, String)]) -> Vec<(&'l str, &'l str)> {
            labels.iter().map(|(name, value)| (*name, &**value)).collect()
        }
        let help = "How long requests took without webhooks and the wait for a seat, in seconds.";
        for name in [
            "apiserver_request_sli_duration_seconds",
            "apiserver_request_slo_duration_seconds",
        ] {
            family(out, name, "histogram", help);
            for (key, series) in &groups {
                let mut sli = series.iter().filter_map(|series| series.sli.get());
                if let Some(first) = sli.next() {
                    let sum = first.sum_with(sli);
                    sum.write(out, name, &borrowed(&named(key, true)));
                }
            }
        }
        let name = "apiserver_response_sizes";
        family(out, name, "histogram", "Lengths of answers to reads, in bytes.");
        for (key, series) in &groups {
            let mut sizes = series.iter().filter_map(|series| series.sizes.get()).peekable();
            if let Some(first) = sizes.peek() {
                let mut tally = first.tally();
                sizes.for_each(|sizes| sizes.add_to(&mut tally));
                tally.write(out, name, &borrowed(&named(key, true)));
            }
        }
        let name = "apiserver_request_terminations_total";
        family(
            out,
            name,
            "counter",
            "Requests that were refused or ended in the server's defence.",
        );
        for (key, series) in &groups {
            let mut codes: BTreeMap<u16, u64> = BTreeMap::new();
            for (code, count) in series.iter().flat_map(|series| series.terminations.all()) {
                *codes.entry(code).or_default() += count;
            }
            for (code, count) in codes {
                let mut labels = named(key, true);
                labels.push(("code", code.to_string()));
                sample(out, name, &borrowed(&labels), count);
            }
        }
        let name = "apiserver_request_aborts_total";
        family(
            out,
            name,
            "counter",
            "Requests whose answers were cut because they were not taken in time.",
        );
        for (key, series) in &groups {
            let count: u64 = series
                .iter()
                .map(|series| series.aborts.load(Ordering::Relaxed))
                .sum();
            if count > 0 {
                sample(out, name, &borrowed(&named(key, false)), count);
            }
        }
        let name = "apiserver_selfrequest_total";
        family(out, name, "counter", "Requests of API servers.");
        let mut own: BTreeMap<[&str; 4], u64> = BTreeMap::new();
        for series in all
            .iter()
            .filter(|series| &*series.labels[CLIENT] == "kube-apiserver")
        {
            let key = [0, 2, 4, 5].map(|label| &*series.labels[label]);
            let counts = series.codes.all();
            *own.entry(key).or_default() += counts.iter().map(|(_, count)| count).sum::<u64>();
        }
        for ([verb, group, resource, subresource], count) in own {
            let labels = [
                ("verb", verb),
                ("group", group),
                ("resource", resource),
                ("subresource", subresource),
            ];
            sample(out, name, &labels, count);
        }
        let name = "apiserver_requested_deprecated_apis";
        family(
            out,
            name,
            "gauge",
            "Deprecated APIs that were asked for, and the release that they go with.",
        );
        for [group, version, resource, subresource, release] in self.deprecated.lock().iter() {
            let labels = [
                ("group", &**group),
                ("version", &**version),
                ("resource", &**resource),
                ("subresource", &**subresource),
                ("removed_release", &**release),
            ];
            sample(out, name, &labels, 1);
        }
    }
}

fn values<'a>(labels: &Labels<'a>) -> [&'a str; 8] {
    [
        labels.verb,
        labels.dry_run,
        labels.group,
        labels.version,
        labels.resource,
        labels.subresource,
        labels.scope,
        labels.client,
    ]
}

fn find(all: &AllSeries, key: u64, labels: &Labels<'_>) -> Option<Arc<Series>> {
    let wanted = values(labels);
    let same = |series: &&Arc<Series>| series.labels.iter().zip(wanted).all(|(a, b)| **a == *b);
    all.get(&key)?.iter().find(same).cloned()
}

/// A counter and a histogram by result, each by its name and help.
fn outcomes<const N: usize>(
    out: &mut String,
    (counter, counter_help): (&str, &str),
    (histogram, histogram_help): (&str, &str),
    results: [&str; N],
    outcomes: &[Histogram; N],
) {
    family(out, counter, "counter", counter_help);
    for (result, outcome) in results.into_iter().zip(outcomes) {
        sample(out, counter, &[("result", result)], outcome.count());
    }
    family(out, histogram, "histogram", histogram_help);
    for (result, outcome) in results.into_iter().zip(outcomes) {
        if outcome.count() > 0 {
            outcome.write(out, histogram, &[("result", result)]);
        }
    }
}

/// Begins a family: its help and type.
pub fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Writes one sample.
pub fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    out.push_str(name);
    if !labels.is_empty() {
        let mut text = String::new();
        for (label, value) in labels {
            push_label(&mut text, label, value);
        }
        let _ = write!(out, "{{{text}}}");
    }
    let _ = writeln!(out, " {value}");
}

fn push_label(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    let _ = write!(text, "{name}=\"");
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text.push('"');
}
