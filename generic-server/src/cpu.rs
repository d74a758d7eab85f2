//! Long computations, kept off the threads that serve connections.
//!
//! A request is light until something says that its input makes its computation long: [`heavy`] with the bytes that are about to
//! be worked on, or [`pause`] from a loop over many objects. From then on `offload`, which the chain puts around the handler,
//! polls the request in turns of a [`Pool`] and outside the executor's workers. A turn is over when the poll returns, so that it
//! is held only while something is computed and never while the request waits for storage, webhooks or its client.
//!
//! A long computation is cut into slices: after each, when its turn has lasted [`limits::TURN`], [`slice()`] lets the others have theirs
//! and the request's deadline is looked at, so that an expired request stops soon.
//!
//! A decoded body takes many times its bytes until the request is done. So the bytes of large bodies that are worked on at
//! once are bounded, for all and for each user; the others wait with their bodies undecoded.
//!
//! On a multi-threaded runtime a slice runs in [`tokio::task::block_in_place`]: the worker's tasks, timers and sockets move to another
//! thread first, of which there are a few. A current-thread runtime, which a test or an embedding program may use, has no other thread: slices run inline there,
//! and others get their turn between them. A chain must not be called within a `LocalSet` of a multi-threaded runtime, where
//! tokio does not allow blocking.

use std::cell::Cell;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use machinery::limits;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant as Moment;

mod fair;

pub(crate) use fair::UserKey;
use fair::{Fair, Ticket};

use crate::metrics::{Collect, family, sample};

/// How many long computations run at once, and how many bytes of bodies are worked on at once. Waiting
/// users have their turns round-robin.
///
/// Bodies and answers have lanes of their own: the steps of a write are as long as its object is large, those of an answer are short,
/// and neither waits for the other.
#[derive(Debug)]
pub struct Pool {
    bodies: Arc<Fair>,
    answers: Arc<Fair>,
    work: Arc<Fair>,
    /// For how long a computation goes on before others have their turn.
    turn: Duration,
    running: AtomicUsize,
}

/// Which computations take turns with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Decoded bodies of requests.
    Bodies,
    /// Encoded answers.
    Answers,
}

impl Pool {
    /// A pool with this many turns at once in each lane, one at least, that end with each slice.
    pub fn new(permits: usize) -> Arc<Self> {
        Self::with(permits, Duration::ZERO, limits::WORK_BYTES_PER_CORE)
    }

    fn with(permits: usize, turn: Duration, work: usize) -> Arc<Self> {
        Arc::new(Pool {
            bodies: Fair::new(permits, permits),
            answers: Fair::new(permits, permits),
            work: Fair::new(work, work / 2),
            turn,
            running: AtomicUsize::new(0),
        })
    }

    /// The pool of this process, which leaves one core to connections and small requests.
    pub fn shared() -> &'static Arc<Self> {
        static SHARED: LazyLock<Arc<Pool>> = LazyLock::new(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let work = limits::WORK_BYTES_PER_CORE * cores.max(2);
            Pool::with(cores.saturating_sub(1), limits::TURN, work)
        });
        &SHARED
    }

    /// How many slices are running.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many computations wait for their turn, or for room for their bodies.
    pub fn waiting(&self) -> usize {
        self.bodies.waiting() + self.answers.waiting() + self.work.waiting()
    }

    /// How many bytes are worked on.
    pub fn work(&self) -> usize {
        self.work.held()
    }

    fn lane(&self, lane: Lane) -> &Arc<Fair> {
        match lane {
            Lane::Bodies => &self.bodies,
            Lane::Answers => &self.answers,
        }
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
        let name = "apiserver_heavy_request_bytes";
        family(out, name, "gauge", "Bytes of large bodies that are worked on.");
        sample(out, name, &[], self.work());
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
    ticket: Ticket,
}

impl Turns {
    /// Of a user's request that is being handled.
    pub(crate) fn of_answer(pool: &Arc<Pool>) -> Self {
        Self::new(pool, Lane::Answers, USER.get())
    }

    fn new(pool: &Arc<Pool>, lane: Lane, user: UserKey) -> Self {
        Turns {
            pool: pool.clone(),
            ticket: Ticket::new(pool.lane(lane), user, 1),
        }
    }

    /// Runs a slice when it is this computation's turn.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        slice: impl FnOnce(&mut Context<'_>) -> T,
    ) -> Poll<T> {
        std::task::ready!(self.ticket.poll(cx));
        let turn = Turn {
            ticket: &mut self.ticket,
            _running: Counted::in_gauge(&self.pool.running),
        };
        let done = outside_workers(|| slice(cx));
        drop(turn);
        Poll::Ready(done)
    }
}

/// A turn, which ends when it is dropped, also by a panic.
struct Turn<'a> {
    ticket: &'a mut Ticket,
    _running: Counted<'a>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.ticket.release();
    }
}

fn outside_workers<T>(slice: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread && Worker::are_few() => {
            tokio::task::block_in_place(slice)
        }
        _ => slice(),
    }
}

/// So many threads have run slices, at most. Each time that a worker goes elsewhere and none is idle a thread is made, which is soon so where others keep
/// the processor busy, and each thread keeps the memory that it has freed for a while.
const MOST_WORKERS: usize = 16;

static WORKERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WORKER: Worker = Worker::new();
}

/// A thread that has run a slice, while it lives.
struct Worker;

impl Worker {
    fn new() -> Self {
        WORKERS.fetch_add(1, Ordering::Relaxed);
        Worker
    }

    /// Counts this thread. False when another may not be made: a slice then runs where it is, and the others of this worker wait for it.
    fn are_few() -> bool {
        WORKER.with(|_| ());
        WORKERS.load(Ordering::Relaxed) <= MOST_WORKERS
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        WORKERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of the computation that this thread polls.
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
    /// The user whose request is polled.
    static USER: Cell<UserKey> = const { Cell::new(0) };
    /// The lane that the request has asked for.
    static LANE: Cell<Lane> = const { Cell::new(Lane::Answers) };
    /// Bytes that the request has said it works on and has no room for yet.
    static CLAIM: Cell<usize> = const { Cell::new(0) };
    /// When the turn is over.
    static TURN_END: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// The state of the polled computation, until it is dropped; also when the poll panics.
struct Polled {
    weight: Weight,
    user: UserKey,
    turn_end: Option<Moment>,
}

impl Polled {
    fn with(weight: Weight, user: UserKey, turn_end: Option<Moment>) -> Self {
        CLAIM.set(0);
        Polled {
            weight: WEIGHT.replace(weight),
            user: USER.replace(user),
            turn_end: TURN_END.replace(turn_end),
        }
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        WEIGHT.set(self.weight);
        USER.set(self.user);
        TURN_END.set(self.turn_end);
    }
}

/// A user by name, for turns and shares.
pub(crate) fn user_key(name: &str) -> UserKey {
    static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHER.hash_one(name)
}

/// Runs a request's work, in turns once it is heavy. Past its deadline it is not polled again: the caller drops it then.
pub(crate) async fn offload<F: Future>(
    pool: &Arc<Pool>,
    user: UserKey,
    deadline: Option<Instant>,
    work: F,
) -> F::Output {
    let mut work = std::pin::pin!(work);
    let mut turns: Option<Turns> = None;
    let mut room: Option<(usize, Ticket)> = None;
    std::future::poll_fn(|cx| {
        loop {
            if let Some((_, ticket)) = &mut room {
                std::task::ready!(ticket.poll(cx));
            }
            let polled = match &mut turns {
                None => {
                    let _polled = Polled::with(Weight::Light, user, None);
                    let polled = work.as_mut().poll(cx);
                    if WEIGHT.get() == Weight::Heavy {
                        turns = Some(Turns::new(pool, LANE.get(), user));
                    }
                    polled
                }
                Some(turns) => {
                    let slice = turns.poll(cx, |cx| {
                        let now = Moment::now();
                        if deadline.is_some_and(|deadline| now >= deadline.into()) {
                            return Poll::Pending;
                        }
                        let _polled = Polled::with(Weight::Heavy, user, Some(now + pool.turn));
                        work.as_mut().poll(cx)
                    });
                    std::task::ready!(slice)
                }
            };
            let claim = CLAIM.take();
            if claim == 0 || polled.is_ready() {
                return polled;
            }
            // The bytes held so far are released before the larger sum is waited for: holding some while waiting for more could deadlock.
            let held = room.take().map_or(0, |(bytes, _)| bytes);
            let bytes = held + claim;
            room = Some((bytes, Ticket::new(&pool.work, user, bytes)));
        }
    })
    .await
}

/// Says that this many bytes of a body, or of an object that is to be changed, are about to be worked on: from
/// [`limits::WORK_COUNTS_BYTES`] on there has to be room for them, and from [`limits::HEAVY_BYTES`] on the request goes on in the pool.
pub async fn heavy(bytes: usize) {
    let weight = WEIGHT.get();
    if bytes < limits::WORK_COUNTS_BYTES || weight == Weight::Untracked {
        return;
    }
    let mut claimed = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut claimed, true) {
            return Poll::Ready(());
        }
        CLAIM.set(bytes);
        if bytes >= limits::HEAVY_BYTES && weight == Weight::Light {
            WEIGHT.set(Weight::Heavy);
            LANE.set(Lane::Bodies);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Says that an answer is about to be made of this many bytes: from [`limits::HEAVY_BYTES`] on the request goes on in the pool.
pub(crate) async fn heavy_answer(bytes: usize) {
    if bytes >= limits::HEAVY_BYTES {
        pause(Lane::Answers).await;
    }
}

/// The end of a slice of what may be a long computation: where the request is heavy, others get their turn.
pub async fn slice() {
    if WEIGHT.get() == Weight::Heavy {
        pause(Lane::Bodies).await;
    }
}

/// Does something for each of these, in a slice of its own: with thousands of short ones, turns and the deadline are looked at between
/// them, and one long one holds others up no longer than it takes.
pub async fn each<T>(items: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) {
    for item in items {
        work(item);
        slice().await;
    }
}

/// The end of a slice of what is a long computation: the request goes on in the pool, in `lane` unless it has one, after others had
/// their turn.
pub async fn pause(lane: Lane) {
    let mut paused = false;
    std::future::poll_fn(|cx| {
        let weight = WEIGHT.get();
        let mid_turn = || TURN_END.get().is_some_and(|end| Moment::now() < end);
        if std::mem::replace(&mut paused, true) || weight == Weight::Untracked || mid_turn() {
            return Poll::Ready(());
        }
        if weight == Weight::Light {
            WEIGHT.set(Weight::Heavy);
            LANE.set(lane);
        }
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
