//! How many seats a level could use, over time.

use std::time::{Duration, Instant};

/// How much of the smoothed demand is left after a period. Upstream's figure: it halves in five minutes.
const SMOOTHING: f64 = 0.977;

/// Integrates the demand of a level between two adjustments of the limits.
#[derive(Debug)]
pub(crate) struct Demand {
    since: Instant,
    seats: u64,
    most: u64,
    /// Integrals of one, of the demand and of its square, over seconds.
    seconds: f64,
    sum: f64,
    squares: f64,
}

/// What the demand was during a period.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Period {
    pub(crate) length: Duration,
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) most: u64,
}

impl Demand {
    pub(crate) fn new(now: Instant) -> Self {
        Demand {
            since: now,
            seats: 0,
            most: 0,
            seconds: 0.0,
            sum: 0.0,
            squares: 0.0,
        }
    }

    /// From now on so many seats are wanted.
    pub(crate) fn set(&mut self, seats: u64, now: Instant) {
        if seats == self.seats {
            return;
        }
        self.advance(now);
        self.seats = seats;
        self.most = self.most.max(seats);
    }

    /// Ends a period and begins the next.
    pub(crate) fn end_period(&mut self, now: Instant) -> Period {
        self.advance(now);
        let (seconds, sum, squares) = (self.seconds, self.sum, self.squares);
        let average = if seconds > 0.0 { sum / seconds } else { 0.0 };
        let variance = if seconds > 0.0 {
            (squares / seconds - average * average).max(0.0)
        } else {
            0.0
        };
        let period = Period {
            length: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
            average,
            deviation: variance.sqrt(),
            most: self.most,
        };
        (self.seconds, self.sum, self.squares) = (0.0, 0.0, 0.0);
        self.most = self.seats;
        period
    }

    fn advance(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = self.since.max(now);
        let seats = seats_f64(self.seats);
        self.seconds += seconds;
        self.sum += seats * seconds;
        self.squares += seats * seats * seconds;
    }
}

/// A number of seats as a float; seats are few enough to be exact.
pub(crate) fn seats_f64(seats: u64) -> f64 {
    f64::from(u32::try_from(seats).unwrap_or(u32::MAX))
}

/// The demand of a level as its limits are made of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Smoothed {
    pub(crate) last: Period,
    /// Follows a rise at once and a fall slowly.
    pub(crate) seats: f64,
}

impl Smoothed {
    /// Takes in a period.
    pub(crate) fn add(&mut self, period: Period) {
        let most = period.most;
        if period.length.is_zero() {
            self.last.most = most;
            return;
        }
        self.last = period;
        let envelope = period.average + period.deviation;
        self.seats = envelope.max(SMOOTHING * self.seats + (1.0 - SMOOTHING) * envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_average_deviation_and_most() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut demand = Demand::new(start);
        demand.set(10, at(5));
        let period = demand.end_period(at(10));
        assert_eq!(period.most, 10);
        assert!((period.average - 5.0).abs() < 1e-9);
        assert!((period.deviation - 5.0).abs() < 1e-9);
        // The next begins with what there is.
        demand.set(4, at(15));
        demand.set(6, at(20));
        let period = demand.end_period(at(20));
        assert_eq!(period.most, 10);
        assert!((period.average - 7.0).abs() < 1e-9);
        let period = demand.end_period(at(20));
        assert_eq!((period.length, period.most), (Duration::ZERO, 6));
    }

    #[test]
    fn demand_rises_at_once_and_falls_slowly() {
        let period = |average, most| Period {
            length: Duration::from_secs(10),
            average,
            deviation: 0.0,
            most,
        };
        let mut smoothed = Smoothed::default();
        smoothed.add(period(100.0, 120));
        assert!((smoothed.seats - 100.0).abs() < 1e-9);
        // Thirty periods of ten seconds are five minutes.
        for _ in 0..30 {
            smoothed.add(period(0.0, 0));
        }
        assert!((smoothed.seats - 50.0).abs() < 1.0, "{}", smoothed.seats);
        smoothed.add(Period::default());
        assert!((smoothed.seats - 50.0).abs() < 1.0);
    }
}
