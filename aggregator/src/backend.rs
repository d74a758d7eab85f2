//! A remote server behind an APIService, as this process knows it: where it is, how it is talked to, how it has been doing, and
//! the documents it last served.
//!
//! One per APIService and spec: a changed spec makes a new one, so that nothing of the old address or trust lives on. Shared by
//! the routing table, the proxy and the availability controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use generic_server::discovery::VersionDiscovery;
use generic_server::openapi::SwaggerPart;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::remote::RemoteSpec;
use crate::transport::Transport;
use crate::transport::TransportSettings;

/// Requests that one APIService may have under way at once, watches aside: reading, writing. A quarter of what the server takes
/// by default: a backend that hangs leaves the others the rest.
const SEATS: [usize; 2] = [100, 50];
/// The same for all APIServices together: however many of them hang, the server's own resources are served.
const ALL_SEATS: [usize; 2] = [300, 150];
/// Failures in a row after which requests are refused without being tried.
const FAILURES: u32 = 5;
/// How long until one is tried again.
const COOL_DOWN: Duration = Duration::from_secs(1);
/// A request that is given up after waiting this long for an answer counts as a failure of the backend.
const HANGING: Duration = Duration::from_secs(10);

/// A document that a backend gave.
#[derive(Debug)]
pub(crate) struct CachedDocument<T> {
    /// Of its bytes.
    pub(crate) hash: String,
    /// The backend's own name of this state; empty if it gives none.
    pub(crate) etag: String,
    pub(crate) document: T,
}

/// A remote server.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) spec: Arc<RemoteSpec>,
    /// How it is talked to; the error is for clients.
    pub(crate) transport: Result<Transport, String>,
    targets: ArcSwap<Result<Vec<Box<str>>, String>>,
    next: AtomicUsize,
    pub(crate) seats: Seats,
    circuit: Circuit,
    pub(crate) stats: Stats,
    /// The discovery document that it last sent.
    pub(crate) known: ArcSwapOption<VersionDiscovery>,
    /// Its OpenAPI document as it last gave it.
    pub(crate) openapi: ArcSwapOption<CachedDocument<bytes::Bytes>>,
    /// Its part of the OpenAPI document of everything, likewise.
    pub(crate) swagger: ArcSwapOption<CachedDocument<SwaggerPart>>,
    /// Its documents are fetched again when this is set.
    pub(crate) outdated: AtomicBool,
    /// Its documents should be fetched now.
    pub(crate) learn: Notify,
    /// Something about it changed: it should be looked at now.
    pub(crate) wake: Notify,
}

impl Backend {
    pub(crate) fn new(spec: Arc<RemoteSpec>, transport: &TransportSettings) -> Arc<Self> {
        Arc::new(Backend {
            transport: Transport::new(&spec, transport),
            targets: ArcSwap::from_pointee(Err("not resolved yet".into())),
            next: AtomicUsize::new(0),
            seats: Seats::new(SEATS),
            circuit: Circuit::default(),
            stats: Stats::default(),
            known: ArcSwapOption::empty(),
            openapi: ArcSwapOption::empty(),
            swagger: ArcSwapOption::empty(),
            learn: Notify::new(),
            outdated: AtomicBool::new(true),
            wake: Notify::new(),
            spec,
        })
    }

    /// Where it is now, `host:port` each. A change wakes the availability task.
    pub(crate) fn set_targets(&self, targets: Result<Vec<Box<str>>, String>) {
        if **self.targets.load() != targets {
            self.targets.store(Arc::new(targets));
            self.circuit.close();
            self.outdated.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }

    /// The addresses in the order in which to try them: each call begins with another one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn targets(&self) -> Result<Vec<Box<str>>, String> {
        let mut targets = Result::clone(&self.targets.load())?;
        if !targets.is_empty() {
            let first = self.next.fetch_add(1, Ordering::Relaxed) % targets.len();
            targets.rotate_left(first);
        }
        Ok(targets)
    }

    /// Whether a request may be tried now.
    pub(crate) fn allows_requests(&self) -> bool {
        self.circuit.lets_through()
    }

    /// Counts a request as in flight until its answer's head is there.
    pub(crate) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.stats.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight {
            backend: self.clone(),
            since: Instant::now(),
            reported: false,
        }
    }

    /// Reports that it answers again, by other means than a request.
    pub(crate) fn answers(&self) {
        self.circuit.close();
    }
}

/// How many requests may be under way: reading, writing.
#[derive(Debug)]
pub(crate) struct Seats([Arc<Semaphore>; 2]);

/// A request's seats: its APIService's, and that of all.
#[derive(Debug)]
pub(crate) struct Seat {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Seats {
    fn new(counts: [usize; 2]) -> Self {
        Seats(counts.map(|count| Arc::new(Semaphore::new(count))))
    }

    /// The seats of all APIServices together.
    pub(crate) fn of_all() -> Self {
        Seats::new(ALL_SEATS)
    }

    /// A seat here and one of `own`, if there are.
    pub(crate) fn take(&self, own: &Seats, writes: bool) -> Option<Seat> {
        let one = |seats: &Seats| seats.0[usize::from(writes)].clone().try_acquire_owned().ok();
        Some(Seat {
            _own: one(own)?,
            _of_all: one(self)?,
        })
    }
}

/// A request that waits for its answer's head. One that is dropped unreported after [`HANGING`] counts as failed.
#[derive(Debug)]
pub(crate) struct InFlight {
    backend: Arc<Backend>,
    since: Instant,
    reported: bool,
}

impl InFlight {
    /// The head is there.
    pub(crate) fn answered(mut self, code: u16) {
        self.reported = true;
        self.backend.circuit.close();
        self.backend.stats.answered(code, self.since.elapsed());
    }

    /// It could not be reached.
    pub(crate) fn failed(mut self) {
        self.reported = true;
        self.fail();
    }

    fn fail(&self) {
        self.backend.stats.failures.fetch_add(1, Ordering::Relaxed);
        if self.backend.circuit.failed() {
            self.backend.wake.notify_one();
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.backend.stats.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.reported && self.since.elapsed() >= HANGING {
            self.fail();
        }
    }
}

/// Closed while requests succeed; after a number of failures in a row it lets one through per cool-down.
#[derive(Debug, Default)]
struct Circuit {
    failures: AtomicU32,
    retry_at: Mutex<Option<Instant>>,
}

impl Circuit {
    fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Says whether the backend should be looked at: at the first failure and when the circuit opens.
    fn failed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= FAILURES {
            *self.retry_at.lock() = Some(Instant::now() + COOL_DOWN);
        }
        failures == 1 || failures == FAILURES
    }

    fn lets_through(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES {
            return true;
        }
        let now = Instant::now();
        let mut retry_at = self.retry_at.lock();
        if retry_at.is_some_and(|at| now < at) {
            return false;
        }
        *retry_at = Some(now + COOL_DOWN);
        true
    }
}

/// Upper bounds of the latency buckets, in milliseconds.
pub(crate) const BUCKETS: [u64; 10] = [1, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000];

/// How it has been doing.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) in_flight: AtomicI64,
    pub(crate) failures: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// By class of the status code: 1xx to 5xx.
    pub(crate) codes: [AtomicU64; 5],
    pub(crate) buckets: [AtomicU64; BUCKETS.len() + 1],
    pub(crate) sum_micros: AtomicU64,
}

impl Stats {
    fn answered(&self, code: u16, took: Duration) {
        let class = usize::from(code / 100).clamp(1, 5) - 1;
        self.codes[class].fetch_add(1, Ordering::Relaxed);
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bucket = BUCKETS
            .iter()
            .position(|bound| millis < *bound)
            .unwrap_or(BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_backends_leave_seats_for_others() {
        let (all, hanging) = (Seats::of_all(), [(); 9].map(|()| Seats::new(SEATS)));
        for writes in [false, true] {
            let at = usize::from(writes);
            let taken = |own: &Seats| std::iter::from_fn(|| all.take(own, writes)).collect::<Vec<_>>();
            let seats: Vec<_> = hanging.iter().map(taken).collect();
            assert_eq!(seats.first().map(Vec::len), Some(SEATS[at]));
            assert_eq!(seats.iter().map(Vec::len).sum::<usize>(), ALL_SEATS[at]);
            drop(seats);
            assert!(all.take(&hanging[0], writes).is_some(), "what ends makes room");
        }
    }

    #[test]
    fn the_circuit_opens_after_failures_in_a_row() {
        let circuit = Circuit::default();
        for attempt in 1..=FAILURES {
            assert!(circuit.lets_through(), "attempt {attempt}");
            assert_eq!(circuit.failed(), attempt == 1 || attempt == FAILURES);
        }
        assert!(!circuit.lets_through());
        *circuit.retry_at.lock() = Some(Instant::now());
        assert!(circuit.lets_through(), "one is tried after the cool-down");
        assert!(!circuit.lets_through(), "and only one");
        circuit.close();
        assert!(circuit.lets_through());
    }
}
