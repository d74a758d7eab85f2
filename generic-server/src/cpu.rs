//! Long computations, kept off the threads that serve connections.
//!
//! A request is light until something says that its input makes its computation long: [`heavy`] with the bytes that are about to
//! be worked on, or [`pause`] from a loop over many objects. From then on [`offload`], which the chain puts around the handler,
//! polls the request under a permit of a [`Pool`] and outside the executor's workers. The permit is given back when the poll
//! returns, so that it is held only while something is computed and never while the request waits for storage, webhooks or its
//! client.
//!
//! A long computation is cut into slices: after each, [`slice`] lets the others have their turn and the request's deadline is looked
//! at, so that an expired request stops within one slice.
//!
//! On a multi-threaded runtime a slice runs in [`tokio::task::block_in_place`]: the worker's tasks, timers and sockets move to another
//! thread first. A current-thread runtime, which a test or an embedding program may use, has no other thread: slices run inline there,
//! and others get their turn between them. A chain must not be called within a `LocalSet` of a multi-threaded runtime, where
//! tokio does not allow blocking.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Instant;

use machinery::limits;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use crate::metrics::{Collect, family, sample};

/// How many long computations run at once. Those that wait get their turns in the order of asking.
#[derive(Debug)]
pub struct Pool {
    permits: Arc<Semaphore>,
    running: AtomicUsize,
    waiting: AtomicUsize,
}

impl Pool {
    /// A pool with this many permits, one at least.
    pub fn new(permits: usize) -> Arc<Self> {
        Arc::new(Pool {
            permits: Arc::new(Semaphore::new(permits.max(1))),
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        })
    }

    /// The pool of this process, which leaves one core to connections and small requests.
    pub fn shared() -> &'static Arc<Self> {
        static SHARED: LazyLock<Arc<Pool>> = LazyLock::new(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Pool::new(cores.saturating_sub(1))
        });
        &SHARED
    }

    /// How many slices are running.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many computations wait for their turn.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Collect for Pool {
    fn collect(&self, out: &mut String) {
        let name = "apiserver_heavy_requests";
        family(
            out,
            name,
            "gauge",
            "Requests with long computations, by whether a slice of one runs.",
        );
        for (state, value) in [("running", self.running()), ("waiting", self.waiting())] {
            sample(out, name, &[("state", state)], value);
        }
    }
}

/// One more in a gauge, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn in_gauge(gauge: &'a AtomicUsize) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Counted(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turns of one long computation.
#[derive(Debug)]
pub(crate) struct Turns {
    pool: Arc<Pool>,
    permits: PollSemaphore,
    waits: bool,
}

impl Turns {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Turns {
            pool: pool.clone(),
            permits: PollSemaphore::new(pool.permits.clone()),
            waits: false,
        }
    }

    /// Runs a slice when it is this computation's turn.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        slice: impl FnOnce(&mut Context<'_>) -> T,
    ) -> Poll<T> {
        let acquired = self.permits.poll_acquire(cx);
        self.set_waiting(acquired.is_pending());
        // The semaphore is never closed, so there is a permit.
        let _permit = std::task::ready!(acquired);
        let _running = Counted::in_gauge(&self.pool.running);
        Poll::Ready(outside_workers(|| slice(cx)))
    }

    fn set_waiting(&mut self, waits: bool) {
        match (self.waits, waits) {
            (false, true) => self.pool.waiting.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.pool.waiting.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
        self.waits = waits;
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.set_waiting(false);
    }
}

fn outside_workers<T>(slice: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(slice)
        }
        _ => slice(),
    }
}

/// What is known of the computation that this thread polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// It is not within [`offload`]: background work, which runs as it is.
    Untracked,
    /// A request that is polled where it is.
    Light,
    /// A request that is polled under a permit, from its next poll on at the latest.
    Heavy,
}

thread_local! {
    static WEIGHT: Cell<Weight> = const { Cell::new(Weight::Untracked) };
}

/// The weight of what is polled, until it is dropped; also when the poll panics.
struct Polled {
    before: Weight,
}

impl Polled {
    fn with(weight: Weight) -> Self {
        Polled {
            before: WEIGHT.replace(weight),
        }
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        WEIGHT.set(self.before);
    }
}

/// Runs a request's work, in turns once it is heavy. Past its deadline it is not polled again: the caller drops it then.
pub(crate) async fn offload<F: Future>(pool: &Arc<Pool>, deadline: Option<Instant>, work: F) -> F::Output {
    let mut work = std::pin::pin!(work);
    let mut turns: Option<Turns> = None;
    std::future::poll_fn(|cx| {
        let Some(turns) = &mut turns else {
            let _polled = Polled::with(Weight::Light);
            let polled = work.as_mut().poll(cx);
            if WEIGHT.get() == Weight::Heavy {
                turns = Some(Turns::new(pool));
            }
            return polled;
        };
        let slice = turns.poll(cx, |cx| {
            if deadline.is_some_and(|deadline| tokio::time::Instant::now() >= deadline.into()) {
                return Poll::Pending;
            }
            let _polled = Polled::with(Weight::Heavy);
            work.as_mut().poll(cx)
        });
        std::task::ready!(slice)
    })
    .await
}

/// Says that this many bytes are about to be worked on: from [`limits::HEAVY_BYTES`] on the request goes on in the pool.
pub async fn heavy(bytes: usize) {
    if bytes >= limits::HEAVY_BYTES && WEIGHT.get() == Weight::Light {
        pause().await;
    }
}

/// The end of a slice of what may be a long computation: where the request is heavy, others get their turn.
pub async fn slice() {
    if WEIGHT.get() == Weight::Heavy {
        pause().await;
    }
}

/// The end of a slice of what is a long computation: the request goes on in the pool, after others had their turn.
pub async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut paused, true) || WEIGHT.get() == Weight::Untracked {
            return Poll::Ready(());
        }
        WEIGHT.set(Weight::Heavy);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Whether the request that is polled has become heavy.
#[cfg(test)]
pub(crate) fn is_heavy() -> bool {
    WEIGHT.get() == Weight::Heavy
}

#[cfg(test)]
pub(crate) mod tests;
