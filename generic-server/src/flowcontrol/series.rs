//! The metrics of one FlowSchema at one level.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::mixture::{Mixture, Phase};
use super::queue_set::Refused;
use crate::metrics::Histogram;
use crate::request::RequestInfo;

const DURATIONS: &[f64] = &[
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];
const SEATS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];
const LENGTHS: &[f64] = &[0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const WATCHES: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];

/// Counted for each request; a request pays with a few atomic additions.
#[derive(Debug)]
pub(crate) struct FlowSeries {
    pub(crate) level: Arc<str>,
    pub(crate) schema: Arc<str>,
    /// Of all levels.
    mixture: Arc<Mixture>,
    pub(crate) dispatched: AtomicU64,
    /// How often its request was next and found too few seats.
    pub(crate) no_accommodation: AtomicU64,
    /// By [`Refused`].
    pub(crate) rejected: [AtomicU64; 3],
    pub(crate) executing: AtomicI64,
    pub(crate) executing_seats: AtomicI64,
    pub(crate) waiting: AtomicI64,
    pub(crate) waiting_seats: AtomicI64,
    /// Of requests that were served then, and of those that were not.
    pub(crate) waits: [Histogram; 2],
    /// Of watches, and of all others.
    pub(crate) durations: [Histogram; 2],
    /// Not durations: one second stands for one seat, one request or one watch.
    pub(crate) estimated_seats: Histogram,
    pub(crate) lengths: Histogram,
    pub(crate) watches: Histogram,
}

impl FlowSeries {
    pub(crate) fn new(level: &Arc<str>, schema: &str, mixture: &Arc<Mixture>) -> Arc<Self> {
        Arc::new(FlowSeries {
            level: level.clone(),
            schema: schema.into(),
            mixture: mixture.clone(),
            dispatched: AtomicU64::new(0),
            no_accommodation: AtomicU64::new(0),
            rejected: Default::default(),
            executing: AtomicI64::new(0),
            executing_seats: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            waiting_seats: AtomicI64::new(0),
            waits: [Histogram::new(DURATIONS), Histogram::new(DURATIONS)],
            durations: [Histogram::new(DURATIONS), Histogram::new(DURATIONS)],
            estimated_seats: Histogram::new(SEATS),
            lengths: Histogram::new(LENGTHS),
            watches: Histogram::new(WATCHES),
        })
    }

    /// So wide a request came.
    pub(crate) fn estimated(&self, seats: u32) {
        self.estimated_seats.observe(Duration::from_secs(seats.into()));
    }

    /// A write came whose event so many watches are interested in.
    pub(crate) fn watched(&self, watches: u64) {
        self.watches.observe(Duration::from_secs(watches));
    }

    pub(crate) fn dispatched(&self, info: &RequestInfo, seats: u32, now: Instant) {
        self.mixture.enters(Phase::Executing, info, now);
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        self.executing.fetch_add(1, Ordering::Relaxed);
        self.executing_seats.fetch_add(seats.into(), Ordering::Relaxed);
    }

    pub(crate) fn finished(&self, info: &RequestInfo, seats: u32, started: Instant, now: Instant) {
        self.mixture.leaves(Phase::Executing, info, now);
        let took = now.saturating_duration_since(started);
        let watches = info.verb == "watch";
        self.executing.fetch_sub(1, Ordering::Relaxed);
        self.executing_seats.fetch_sub(seats.into(), Ordering::Relaxed);
        self.durations[usize::from(!watches)].observe(took);
    }

    pub(crate) fn queued(&self, info: &RequestInfo, length: usize, seats: u32, now: Instant) {
        self.mixture.enters(Phase::Waiting, info, now);
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        self.lengths.observe(Duration::from_secs(length));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting_seats.fetch_add(seats.into(), Ordering::Relaxed);
    }

    /// A request that has waited for so many seats has some.
    pub(crate) fn served(
        &self,
        info: &RequestInfo,
        (asked, seats): (u32, u32),
        arrived: Instant,
        now: Instant,
    ) {
        self.no_longer_waits(info, asked, now);
        self.waits[0].observe(now.saturating_duration_since(arrived));
        self.dispatched(info, seats, now);
    }

    /// A request has waited in vain.
    pub(crate) fn left(&self, info: &RequestInfo, seats: u32, arrived: Instant, now: Instant) {
        self.no_longer_waits(info, seats, now);
        self.waits[1].observe(now.saturating_duration_since(arrived));
    }

    pub(crate) fn refused(&self, why: Refused) {
        self.rejected[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Its request is next, and there are too few seats.
    pub(crate) fn not_accommodated(&self) {
        self.no_accommodation.fetch_add(1, Ordering::Relaxed);
    }

    fn no_longer_waits(&self, info: &RequestInfo, seats: u32, now: Instant) {
        self.mixture.leaves(Phase::Waiting, info, now);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_seats.fetch_sub(seats.into(), Ordering::Relaxed);
    }
}

impl Refused {
    /// Its label.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Refused::ConcurrencyLimit => "concurrency-limit",
            Refused::QueueFull => "queue-full",
            Refused::TimeOut => "time-out",
        }
    }
}
