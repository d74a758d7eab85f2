//! How many requests run at once: the seam for fairness, and upstream's plain limit.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::{HeaderValue, StatusCode, header};
use tokio::sync::Semaphore;

use crate::cpu::{self, UserKey};
pub use crate::flowcontrol::Asked;
use crate::flowcontrol::{self, Flow, FlowHeaders, Mixture, Watch};
use crate::metrics::Collect;
use crate::request::{InitialSeat, RequestInfo, Response};

/// The right to run, given back when dropped.
#[derive(Debug, Default)]
pub struct Permit {
    guard: Option<Guard>,
    /// Counts a watch, for as long as it lasts.
    #[allow(dead_code, reason = "held for its drop")]
    watch: Option<Watch>,
    headers: Option<FlowHeaders>,
}

/// What is given back.
enum Guard {
    Seat(#[allow(dead_code, reason = "held for its drop")] flowcontrol::Seat),
    Any(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send>),
    /// With the body of a watch.
    Shared(#[allow(dead_code, reason = "held for its drop")] InitialSeat),
}

impl Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").finish_non_exhaustive()
    }
}

impl Permit {
    /// A right that costs nothing.
    pub fn free() -> Self {
        Permit::default()
    }

    /// A right that is given back by dropping `guard`.
    pub fn held(guard: impl Send + 'static) -> Self {
        Permit {
            guard: Some(Guard::Any(Box::new(guard))),
            ..Permit::default()
        }
    }

    /// A seat of priority and fairness.
    pub(crate) fn seat(seat: flowcontrol::Seat, flow: Flow) -> Self {
        Permit {
            guard: Some(Guard::Seat(seat)),
            watch: flow.watch,
            headers: Some(flow.headers),
        }
    }

    /// A right that costs nothing, with the headers that tell the client how its request was classified.
    pub(crate) fn classified(headers: Option<FlowHeaders>) -> Self {
        Permit {
            headers,
            ..Permit::default()
        }
    }

    /// These headers, taken out.
    pub(crate) fn take_headers(&mut self) -> Option<FlowHeaders> {
        self.headers.take()
    }

    /// Has a watch's body hold the seat, too, for as long as it sends initial events.
    pub(crate) fn share(&mut self) -> Option<InitialSeat> {
        let seat = InitialSeat::new(self.guard.take()?);
        self.guard = Some(Guard::Shared(seat.clone()));
        Some(seat)
    }

    /// What is left of it when a long-running request has been answered: watches are charged for that, and for their initial events.
    pub(crate) fn initialised(mut self) -> Self {
        self.guard = None;
        self
    }
}

/// What becomes of a request.
pub enum Admission {
    /// It runs now.
    Runs(Permit),
    /// It waits. Dropped meanwhile, it has gone. The error is the answer for a request that must go away.
    Waits(Pin<Box<dyn Future<Output = Result<Permit, Box<Response>>> + Send>>),
    /// This is its answer, usually 429.
    Refused(Box<Response>),
}

impl Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Admission::Runs(_) => "Runs",
            Admission::Waits(_) => "Waits",
            Admission::Refused(_) => "Refused",
        })
    }
}

/// The health checks that take no seat: whoever probes the server has an answer while it refuses other requests.
const PROBES: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Whether a request is a health check of the whole server, of any user. Upstream's schema `probes`, which is of the exempt level.
pub fn is_probe(info: &RequestInfo) -> bool {
    !info.is_resource && info.verb == "get" && PROBES.contains(&&*info.path)
}

/// Decides when a request may run. Asked after authentication and impersonation, before authorization.
pub trait Admit: Send + Sync + Debug {
    /// Admits a request, has it wait, or refuses it. Probes are always admitted.
    fn admit(&self, asked: &Asked<'_>) -> Admission;
}

/// Upstream's answer to a request that is one too many.
pub fn too_many_requests() -> Box<Response> {
    let mut response = super::text_error(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    Box::new(response)
}

/// `--max-requests-inflight` and `--max-mutating-requests-inflight`: two counts, no queue. One user has half of the seats at most, so
/// that a client that never reads an answer, or never ends a body, leaves some to others.
///
/// Its metric is `apiserver_flowcontrol_read_vs_write_current_requests`, of requests that a limit counts, as fractions of it.
#[derive(Debug)]
pub struct MaxInFlight {
    reading: Option<Arc<Seats>>,
    mutating: Option<Arc<Seats>>,
    mixture: Arc<Mixture>,
}

/// Number of shares that users are hashed into, with a random seed, so that no client can choose its share.
const SHARES: usize = 256;

#[derive(Debug)]
struct Seats {
    all: Semaphore,
    most_per_user: usize,
    taken: Box<[AtomicUsize]>,
    /// Of requests that read.
    reads: bool,
    mixture: Arc<Mixture>,
}

impl Seats {
    fn new(seats: usize, reads: bool, mixture: &Arc<Mixture>) -> Arc<Self> {
        Arc::new(Seats {
            all: Semaphore::new(seats),
            most_per_user: seats.div_ceil(2),
            taken: (0..SHARES).map(|_| AtomicUsize::new(0)).collect(),
            reads,
            mixture: mixture.clone(),
        })
    }

    /// A seat for a user, if there is one.
    fn take(self: &Arc<Self>, user: UserKey) -> Option<Seat> {
        // The remainder is below the number of shares.
        let share = (user % SHARES as u64) as usize;
        if self.taken[share].fetch_add(1, Ordering::Relaxed) < self.most_per_user
            && let Ok(permit) = self.all.try_acquire()
        {
            permit.forget();
            self.mixture.runs(self.reads, Instant::now());
            return Some(Seat {
                seats: self.clone(),
                share,
            });
        }
        self.taken[share].fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// A seat, until it is dropped.
#[derive(Debug)]
struct Seat {
    seats: Arc<Seats>,
    share: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken[self.share].fetch_sub(1, Ordering::Relaxed);
        self.seats.all.add_permits(1);
        self.seats.mixture.ends(self.seats.reads, Instant::now());
    }
}

impl MaxInFlight {
    /// With these limits; zero means none.
    pub fn new(reading: usize, mutating: usize) -> Self {
        let limits = [mutating, reading].map(|limit| u64::try_from(limit).unwrap_or(u64::MAX));
        let mixture = Mixture::of_limits(Instant::now(), limits);
        let limit = |n: usize, reads| (n > 0).then(|| Seats::new(n, reads, &mixture));
        MaxInFlight {
            reading: limit(reading, true),
            mutating: limit(mutating, false),
            mixture,
        }
    }
}

impl Collect for MaxInFlight {
    fn collect(&self, out: &mut String) {
        self.mixture.write(out, Instant::now());
    }
}

impl Admit for MaxInFlight {
    fn admit(&self, asked: &Asked<'_>) -> Admission {
        let (user, info) = (&asked.context.user, &asked.context.info);
        let limit = if flowcontrol::reads(info) {
            &self.reading
        } else {
            &self.mutating
        };
        let Some(limit) = limit.as_ref().filter(|_| !asked.long_running && !asked.probe) else {
            return Admission::Runs(Permit::free());
        };
        match limit.take(cpu::user_key(&user.name)) {
            Some(seat) => Admission::Runs(Permit::held(seat)),
            // An administrator always gets an answer.
            None if user.in_group("system:masters") => Admission::Runs(Permit::free()),
            None => Admission::Refused(too_many_requests()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_half_of_the_seats() {
        let seats = Seats::new(5, true, &Mixture::new(Instant::now()));
        let mut own: Vec<Seat> = std::iter::from_fn(|| seats.take(1)).collect();
        assert_eq!(own.len(), 3);
        let others: Vec<Seat> = std::iter::from_fn(|| seats.take(2)).collect();
        assert_eq!(others.len(), 2);
        assert!(seats.take(3).is_none());
        own.pop();
        assert!(seats.take(3).is_some());
        drop((own, others));
        assert_eq!(seats.all.available_permits(), 5);
        assert!(seats.taken.iter().all(|taken| taken.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn running_requests_are_fractions_of_their_limits() {
        let limited = MaxInFlight::new(4, 0);
        let seat = limited.reading.as_ref().and_then(|seats| seats.take(1));
        let shown = || {
            let mut out = String::new();
            limited.collect(&mut out);
            let executing =
                |line: &&str| line.contains("_sum{phase=\"executing\",request_kind=\"readOnly\"}");
            let line = out.lines().find(executing).expect("a sum").to_string();
            line.rsplit(' ').next().and_then(|sum| sum.parse::<f64>().ok())
        };
        let running = shown();
        assert!(running > Some(0.0), "{running:?}");
        drop(seat);
        let ended = shown();
        assert_eq!(ended, shown());
    }
}
