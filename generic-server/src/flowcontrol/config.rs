//! From objects to levels: who has how many seats, and how levels borrow from each other.
//!
//! A level has a nominal number of seats by its shares, lends some of them, and borrows. Every [`PERIOD`] the seats are divided by what each
//! level could have used; in between nothing moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::allocation::{self, Claim};
use super::demand::{Smoothed, seats_f64};
use super::level::Level;
use super::mixture::Mixture;
use super::objects::{CATCH_ALL, EXEMPT, FlowSchema, LevelObject};
use super::queue_set::Queuing;
use super::series::FlowSeries;
use super::snapshot::{Schema, Snapshot};

/// Between two adjustments. Upstream's `borrowingAdjustmentPeriod`.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
/// A request may be as wide as this part of its level. Upstream's `priorityLevelMaxSeatsPercent`.
const WIDEST_PERCENT: u64 = 15;
/// A demand below this divides the seats as none does.
const NO_DEMAND: f64 = 0.001;

/// The levels, and what they were made of.
#[derive(Debug)]
pub(crate) struct Config {
    /// All seats of the server.
    seats: u64,
    pub(crate) levels: BTreeMap<Arc<str>, LevelState>,
    series: BTreeMap<(Arc<str>, String), Arc<FlowSeries>>,
    /// The fraction of its target that each level has, as far as its bounds allow.
    pub(crate) fair_fraction: f64,
    ticks: Arc<Notify>,
    mixture: Arc<Mixture>,
}

/// A level.
#[derive(Debug)]
pub(crate) struct LevelState {
    pub(crate) level: Arc<Level>,
    pub(crate) object: LevelObject,
    /// It is no longer wanted and goes when it is idle.
    pub(crate) quiescing: bool,
    pub(crate) seats: Seats,
    pub(crate) demand: Smoothed,
    pub(crate) target: f64,
}

/// The seats of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seats {
    pub(crate) nominal: u64,
    /// What is left when all is lent that may be.
    pub(crate) least: u64,
    /// With all that may be borrowed.
    pub(crate) most: u64,
    /// At present.
    pub(crate) current: u64,
}

impl Seats {
    /// By the shares of a level, out of all shares and all seats.
    fn of(object: &LevelObject, shares: u64, seats: u64) -> Self {
        let spec = &object.spec;
        let nominal = match shares {
            0 => 0,
            shares => (seats * u64::from(spec.shares)).div_ceil(shares),
        };
        let percent = |percent: u32| (nominal * u64::from(percent) + 50) / 100;
        let lendable = percent(spec.lendable_percent);
        let borrowed = spec.borrowing_percent.map_or(seats, percent);
        Seats {
            nominal,
            least: nominal - lendable,
            most: nominal + borrowed,
            // Until there is a demand to go by.
            current: nominal - lendable / 2,
        }
    }
}

impl LevelState {
    fn is_exempt(&self) -> bool {
        self.object.spec.queuing == Queuing::Exempt
    }

    /// The seats that it has at least until the next adjustment: those that it used during the last period, as far as they are its own.
    fn least_now(&self) -> u64 {
        let used = match self.is_exempt() {
            true => self.demand.last.most,
            false => self.demand.last.most.min(self.seats.nominal),
        };
        used.max(self.seats.least)
    }

    /// The widest that its requests may be estimated; zero for no bound.
    fn widest(&self) -> u32 {
        let Queuing::Queue { hand_size, .. } = self.object.spec.queuing else {
            return 0;
        };
        let hand = u64::try_from(hand_size).unwrap_or(u64::MAX).max(1);
        let part = (self.seats.nominal * WIDEST_PERCENT).div_ceil(100);
        let widest = part.min(self.seats.nominal / hand).max(1);
        u32::try_from(widest).unwrap_or(u32::MAX)
    }
}

impl Config {
    /// Without any objects: the mandatory levels alone.
    pub(crate) fn new(seats: u64, ticks: Arc<Notify>, mixture: Arc<Mixture>) -> Self {
        Config {
            seats,
            levels: BTreeMap::new(),
            series: BTreeMap::new(),
            fair_fraction: 0.0,
            ticks,
            mixture,
        }
    }

    /// Makes these the objects in force, and gives what requests are classified by.
    pub(crate) fn digest(
        &mut self,
        schemas: &[FlowSchema],
        levels: &[LevelObject],
        now: Instant,
    ) -> Snapshot {
        self.take_levels(levels);
        for name in [EXEMPT, CATCH_ALL] {
            if !self.levels.contains_key(name) {
                self.add(LevelObject::mandatory(name), now);
            }
        }
        for object in levels {
            if !self.levels.contains_key(&*object.name) {
                self.add(object.clone(), now);
            }
        }
        self.share_seats();
        self.adjust(now);
        self.snapshot(schemas)
    }

    fn add(&mut self, object: LevelObject, now: Instant) {
        let level = Level::new(&object.name, object.spec.queuing, 0, now, self.ticks.clone());
        let state = LevelState {
            object,
            quiescing: false,
            seats: Seats::default(),
            demand: Smoothed::default(),
            target: 0.0,
            level: level.clone(),
        };
        self.levels.insert(level.name().clone(), state);
    }

    /// Updates the levels that are there. Those that are no longer wanted stay until their requests have ended.
    fn take_levels(&mut self, objects: &[LevelObject]) {
        let objects: BTreeMap<&str, &LevelObject> =
            objects.iter().map(|object| (&*object.name, object)).collect();
        for state in self.levels.values_mut() {
            let name = state.level.name();
            match objects.get(&**name) {
                Some(object) => {
                    state.object = LevelObject::clone(object);
                    state.quiescing = false;
                }
                None if [EXEMPT, CATCH_ALL].contains(&&**name) => state.object.uid.clear(),
                None => state.quiescing = true,
            }
        }
        self.forget_idle();
    }

    /// Drops levels that are neither wanted nor used. True when there were any.
    fn forget_idle(&mut self) -> bool {
        let before = self.levels.len();
        self.levels
            .retain(|_, state| !state.quiescing || !state.level.lock().set.is_idle());
        let levels = &self.levels;
        // Those of schemas in force and of requests that are served are held elsewhere, too.
        self.series
            .retain(|(level, _), series| levels.contains_key(level) && Arc::strong_count(series) > 1);
        before != self.levels.len()
    }

    fn share_seats(&mut self) {
        let shares = self
            .levels
            .values()
            .map(|state| u64::from(state.object.spec.shares));
        let shares = shares.sum();
        for state in self.levels.values_mut() {
            let is_new = state.seats == Seats::default();
            let current = state.seats.current;
            state.seats = Seats::of(&state.object, shares, self.seats);
            if !is_new {
                state.seats.current = current;
            }
            state.level.set_widest(state.widest());
            let capacity = match state.object.spec.queuing {
                Queuing::Queue { queues, length, .. } => {
                    u64::from(queues).saturating_mul(u64::try_from(length).unwrap_or(u64::MAX))
                }
                Queuing::Exempt | Queuing::Reject => 1,
            };
            state.level.lock().utilization.queue_capacity = capacity;
        }
    }

    /// Ends a period: divides the seats by the demand during it.
    pub(crate) fn adjust(&mut self, now: Instant) {
        if self.forget_idle() {
            self.share_seats();
        }
        for state in self.levels.values_mut() {
            state.demand.add(state.level.end_period(now));
        }
        self.divide();
        for state in self.levels.values() {
            state
                .level
                .configure(state.object.spec.queuing, state.seats.current, now);
        }
    }

    /// The seats of each level until the next adjustment. Exempt levels have what they use, and the others share what is left.
    fn divide(&mut self) {
        let nominal: u64 = self.levels.values().map(|state| state.seats.nominal).sum();
        let exempt = |state: &&LevelState| state.is_exempt();
        let used: u64 = self
            .levels
            .values()
            .filter(exempt)
            .map(LevelState::least_now)
            .sum();
        let left = nominal.saturating_sub(used);
        let limited = || self.levels.values().filter(|state| !state.is_exempt());
        let least: u64 = limited().map(|state| state.seats.least).sum();
        let least_now: u64 = limited().map(LevelState::least_now).sum();
        let claims: Vec<Claim> = limited()
            .map(|state| {
                let least = seats_f64(state.least_now());
                Claim {
                    least,
                    most: seats_f64(state.seats.most),
                    target: state.demand.seats.max(least),
                }
            })
            .collect();
        let divided = (left > least_now).then(|| allocation::divide(seats_f64(nominal), &claims));
        self.fair_fraction = divided.iter().flatten().map(|(_, fraction)| *fraction).sum();
        let mut seats = divided.iter().flatten().flat_map(|(seats, _)| seats);
        let mut claims = claims.iter();
        for state in self.levels.values_mut() {
            if state.is_exempt() {
                state.seats.current = state.least_now();
                state.target = state.demand.seats;
                continue;
            }
            state.target = claims.next().map_or(0.0, |claim| claim.target);
            state.seats.current = if left <= least {
                state.seats.least
            } else if left <= least_now {
                // A part of what each has used beyond its least, the same for all.
                let beyond = state.least_now() - state.seats.least;
                let part = (beyond * (left - least) * 2 + (least_now - least)) / ((least_now - least) * 2);
                state.seats.least + part
            } else {
                seats.next().map_or(state.seats.current, |seats| rounded(*seats))
            };
        }
    }

    /// Nothing runs, and nothing of what ran before is remembered: adjustments would change nothing.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.levels.values().all(|state| {
            let totals = state.level.lock().set.totals();
            totals.seats_in_use + totals.seats_waiting == 0
                && state.demand.last.most == 0
                && state.demand.seats < NO_DEMAND
        })
    }

    fn snapshot(&mut self, schemas: &[FlowSchema]) -> Snapshot {
        let mandatory = [EXEMPT, CATCH_ALL].map(FlowSchema::mandatory);
        let [exempt, catch_all] = &mandatory;
        let mut found: Vec<&FlowSchema> = schemas
            .iter()
            .filter(|schema| self.has_level(&schema.spec.priority_level_configuration.name))
            .collect();
        found.sort_by(|a, b| {
            let precedence = |schema: &FlowSchema| schema.spec.matching_precedence;
            (precedence(a), &a.name).cmp(&(precedence(b), &b.name))
        });
        // Their places are the first and the last, whatever the others say.
        if !found.iter().any(|schema| schema.name == EXEMPT) {
            found.insert(0, exempt);
        }
        if !found.iter().any(|schema| schema.name == CATCH_ALL) {
            found.push(catch_all);
        }
        let mut all: Vec<Schema> = Vec::new();
        let mut fallback = None;
        for object in found {
            let name: Arc<str> = object.spec.priority_level_configuration.name.as_str().into();
            let series = self.series.entry((name.clone(), object.name.clone()));
            let series = series
                .or_insert_with(|| FlowSeries::new(&name, &object.name, &self.mixture))
                .clone();
            let Some(state) = self.levels.get(&name) else {
                continue;
            };
            let schema = Schema::new(
                object,
                &state.level,
                &state.object.uid,
                state.object.spec.queuing,
                series,
            );
            if object.name == CATCH_ALL || fallback.is_none() {
                fallback = Some(schema.clone());
            }
            all.push(schema);
        }
        let fallback = fallback.unwrap_or_else(|| self.last_resort(catch_all));
        Snapshot::new(all, fallback)
    }

    /// A schema for everything, of a level of its own.
    fn last_resort(&self, catch_all: &FlowSchema) -> Schema {
        let level = Level::new(
            CATCH_ALL,
            Queuing::Reject,
            1,
            super::level::now(),
            self.ticks.clone(),
        );
        let series = FlowSeries::new(level.name(), CATCH_ALL, &self.mixture);
        Schema::new(catch_all, &level, "", Queuing::Reject, series)
    }

    /// Whether a level of this name is wanted: there is an object of it, or it is mandatory.
    pub(crate) fn has_level(&self, name: &str) -> bool {
        self.levels.get(name).is_some_and(|state| !state.quiescing)
    }

    /// All series, for metrics.
    pub(crate) fn series(&self) -> impl Iterator<Item = &Arc<FlowSeries>> {
        self.series.values()
    }
}

/// A number of seats, as Go's `math.Round` has it.
fn rounded(seats: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float is cut to the range of the integer, and seats are not negative"
    )]
    let rounded = seats.round().max(0.0) as u64;
    rounded
}
