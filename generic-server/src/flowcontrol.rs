//! API Priority and Fairness: which requests are served next when there are more than the server takes at once.
//!
//! A request is classified by the FlowSchemas (`snapshot`), which gives it a priority level and a flow. It waits in one of the level's queues
//! until the level has seats for it (`level`, `queue_set`). Levels lend each other seats (`config`). What is in force follows the objects
//! (`follow`); before they have been read, the mandatory ones are. Mirrors upstream's `util/flowcontrol` (KEP-1040).
//!
//! Locks: that of the configuration before that of a level, and never two levels at once. A request takes the lock of its level alone.

mod admit;
mod allocation;
mod config;
mod dealer;
mod demand;
mod dump;
mod estimate;
mod follow;
mod level;
mod matching;
mod metrics;
mod mixture;
mod objects;
mod queue_set;
mod retry_after;
mod series;
mod snapshot;
#[cfg(test)]
mod tests;
mod utilization;
mod watches;
mod work;

use std::fmt::{self, Debug};
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::directory::Directory;
use config::Config;
use level::{Level, now};
use objects::{FlowSchema, LevelObject};
use snapshot::Snapshot;
use watches::Watches;

pub use admit::Asked;
pub(crate) use admit::{Flow, Turn};
pub(crate) use level::Seat;
pub(crate) use mixture::{Mixture, reads};
pub(crate) use snapshot::FlowHeaders;
pub(crate) use watches::Watch;

/// No request waits for longer. Upstream's hard limit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Priority and fairness of a server. Nothing happens with time before [`FlowControl::run`] is polled.
pub struct FlowControl {
    snapshot: ArcSwap<Snapshot>,
    config: Mutex<Objects>,
    watches: Arc<Watches>,
    mixture: Arc<Mixture>,
    directory: Option<Arc<Directory>>,
    /// How long requests wait that have no deadline: watches.
    wait: Duration,
    /// Wakes [`FlowControl::run`]: seats linger that a request waits for, or there is a demand again.
    ticks: Arc<Notify>,
    /// Nobody chooses a name that shares its hash with another's.
    user_hashes: RandomState,
    at_rest: AtomicBool,
}

/// The levels and the objects that they are made of.
#[derive(Debug)]
struct Objects {
    config: Config,
    /// Absent until they have been read. Nothing is decided on one kind without the other: all schemas would dangle.
    schemas: Option<Vec<FlowSchema>>,
    levels: Option<Vec<LevelObject>>,
}

impl Debug for FlowControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowControl").finish_non_exhaustive()
    }
}

impl FlowControl {
    /// With so many seats for all levels, and the time that a request may take. Lists are as wide as what `directory` says of their resource.
    pub fn new(seats: usize, request_timeout: Duration, directory: Option<Arc<Directory>>) -> Arc<Self> {
        let ticks: Arc<Notify> = Arc::default();
        let mixture = Mixture::new(now());
        let seats = u64::try_from(seats).unwrap_or(u64::MAX);
        let mut config = Config::new(seats, ticks.clone(), mixture.clone());
        let snapshot = config.digest(&[], &[], now());
        Arc::new(FlowControl {
            snapshot: ArcSwap::from_pointee(snapshot),
            config: Mutex::new(Objects {
                config,
                schemas: None,
                levels: None,
            }),
            watches: Arc::default(),
            mixture,
            directory,
            wait: (request_timeout / 4).min(LONGEST_WAIT),
            ticks,
            user_hashes: RandomState::new(),
            at_rest: AtomicBool::new(true),
        })
    }

    /// Adjusts the seats of the levels to their demand and gives back seats that linger, for ever. Has no timer while nothing runs and
    /// no demand is remembered.
    pub async fn run(self: Arc<Self>) {
        let mut adjusted = now();
        loop {
            let due = self.tick(now());
            let adjustment = (!self.at_rest.load(Ordering::Acquire)).then(|| adjusted + config::PERIOD);
            let wake = due.into_iter().chain(adjustment).min();
            tokio::select! {
                () = self.ticks.notified() => {}
                () = sleep_until(wake) => {}
            }
            let now = now();
            if adjustment.is_none() {
                // The time of rest is no part of the first period.
                adjusted = now;
                self.end_rest(now);
            } else if now.saturating_duration_since(adjusted) >= config::PERIOD {
                adjusted = now;
                self.adjust(now);
            }
        }
    }

    /// Called for each request: there is a demand.
    fn wake(&self) {
        if self.at_rest.load(Ordering::Relaxed) && self.at_rest.swap(false, Ordering::AcqRel) {
            self.ticks.notify_one();
        }
    }

    fn end_rest(&self, now: Instant) {
        let objects = self.config.lock();
        for state in objects.config.levels.values() {
            state.level.end_period(now);
        }
    }

    fn adjust(&self, now: Instant) {
        let mut objects = self.config.lock();
        objects.config.adjust(now);
        if objects.config.is_at_rest() {
            self.at_rest.store(true, Ordering::Release);
        }
    }

    /// Gives back lingering seats that are due, and gives when the next are.
    fn tick(&self, now: Instant) -> Option<Instant> {
        let levels: Vec<Arc<Level>> = {
            let objects = self.config.lock();
            let states = objects.config.levels.values();
            states.map(|state| state.level.clone()).collect()
        };
        levels.iter().filter_map(|level| level.tick(now)).min()
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
