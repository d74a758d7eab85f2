//! How much work a request is: seats, and for how long.

use std::fmt::{self, Display};
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::time::Duration;

/// The time that one request is taken to need, until it is known. Upstream's `estimatedServiceDuration`.
pub(crate) const SERVICE_TIME: Duration = Duration::from_millis(3);

/// Seats multiplied by time, in seat-nanoseconds. 128 bits do not overflow in the life of a server, so that there is no counterpart of
/// upstream's epochs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SeatTime(i128);

impl SeatTime {
    /// Some seats for some time.
    pub(crate) fn of(seats: u32, time: Duration) -> Self {
        SeatTime(i128::from(seats) * nanos(time))
    }

    /// Seats for some time, shared by so many.
    pub(crate) fn shared(seats: u64, time: Duration, among: u64) -> Self {
        SeatTime(i128::from(seats) * nanos(time) / i128::from(among.max(1)))
    }

    /// How long so many seats need for this work.
    pub(crate) fn spread_over(self, seats: u32) -> Duration {
        let nanos = self.0.max(0) / i128::from(seats.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// In seat-seconds.
    pub(crate) fn as_f64(self) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            reason = "shown in metrics, where digits past the 15th do not count"
        )]
        let nanos = self.0 as f64;
        nanos / 1e9
    }
}

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 32)
}

impl Add for SeatTime {
    type Output = SeatTime;

    fn add(self, other: SeatTime) -> SeatTime {
        SeatTime(self.0 + other.0)
    }
}

impl AddAssign for SeatTime {
    fn add_assign(&mut self, other: SeatTime) {
        self.0 += other.0;
    }
}

impl Sub for SeatTime {
    type Output = SeatTime;

    fn sub(self, other: SeatTime) -> SeatTime {
        SeatTime(self.0 - other.0)
    }
}

impl SubAssign for SeatTime {
    fn sub_assign(&mut self, other: SeatTime) {
        self.0 -= other.0;
    }
}

impl Neg for SeatTime {
    type Output = SeatTime;

    fn neg(self) -> SeatTime {
        SeatTime(-self.0)
    }
}

/// As upstream prints it in its dumps: seconds with eight digits and `ss`.
impl Display for SeatTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = self.0.max(0) / 10;
        write!(f, "{}.{:08}ss", units / 100_000_000, units % 100_000_000)
    }
}

/// The estimated work of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    /// Seats that are taken while the request is served.
    pub(crate) initial_seats: u32,
    /// Seats that are taken after it, for what it causes: events for watchers.
    pub(crate) final_seats: u32,
    /// For how long they are. The client does not wait for it.
    pub(crate) additional_latency: Duration,
}

impl Width {
    /// The work of most requests.
    pub(crate) const ONE: Width = Width::seats(1);

    /// So many seats while it is served.
    pub(crate) const fn seats(seats: u32) -> Self {
        Width {
            initial_seats: seats,
            final_seats: 0,
            additional_latency: Duration::ZERO,
        }
    }

    /// The seats that the request takes, from its begin to the end of what it causes.
    pub(crate) fn most_seats(&self) -> u32 {
        self.initial_seats.max(self.final_seats)
    }

    /// All of its work, as estimated.
    pub(crate) fn work(&self) -> SeatTime {
        SeatTime::of(self.initial_seats, SERVICE_TIME) + self.final_work()
    }

    fn final_work(&self) -> SeatTime {
        SeatTime::of(self.final_seats, self.additional_latency)
    }

    /// The same final work, on no more than so many seats.
    pub(crate) fn narrowed(self, seats: u32) -> Self {
        if self.final_seats <= seats {
            return self;
        }
        Width {
            additional_latency: self.final_work().spread_over(seats),
            final_seats: seats,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_work_is_spread_over_fewer_seats() {
        #[track_caller]
        fn check(width: Width, seats: u32, final_seats: u32, millis: u64) {
            let narrowed = width.narrowed(seats);
            assert_eq!(narrowed.final_seats, final_seats);
            assert_eq!(narrowed.additional_latency, Duration::from_millis(millis));
            assert_eq!(narrowed.work(), width.work());
        }
        let width = Width {
            initial_seats: 1,
            final_seats: 10,
            additional_latency: Duration::from_millis(5),
        };
        check(width, 10, 10, 5);
        check(width, 5, 5, 10);
        check(width, 1, 1, 50);
        check(Width::ONE, 0, 0, 0);
    }

    #[test]
    fn work_is_printed_as_upstream_does() {
        #[track_caller]
        fn check(work: SeatTime, expected: &str) {
            assert_eq!(work.to_string(), expected);
        }
        check(SeatTime::default(), "0.00000000ss");
        check(SeatTime::of(2, Duration::from_millis(1_500)), "3.00000000ss");
        check(SeatTime::of(1, Duration::from_millis(3)), "0.00300000ss");
        check(-SeatTime::of(1, Duration::from_secs(1)), "0.00000000ss");
        assert!((SeatTime::of(4, Duration::from_millis(250)).as_f64() - 1.0).abs() < 1e-9);
    }
}
