use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::{Condvar, Mutex};

use super::*;

/// Blocks threads until it is opened.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }

    /// Blocks the thread, as a computation does.
    pub(crate) fn block(&self) {
        let mut open = self.0.lock();
        let patience = Duration::from_secs(60);
        let waited = self.1.wait_while_for(&mut open, |open| !*open, patience);
        assert!(!waited.timed_out(), "nobody opens the gate");
    }
}

/// What some work of a request gives, and in how many slices it was done, where each ends a turn.
pub(crate) async fn slices_of<F: Future>(work: F) -> (F::Output, usize) {
    let pool = Pool::new(1);
    let mut work = std::pin::pin!(offload(&pool, 0, None, work));
    let mut slices = 0;
    let done = std::future::poll_fn(|cx| {
        slices += 1;
        work.as_mut().poll(cx)
    });
    (done.await, slices)
}

async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .expect("in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn light_work_passes_more_heavy_work_than_there_are_workers() {
    let pool = Pool::new(1);
    let gate = Arc::new(Gate::default());
    let heavy: Vec<_> = (0..3)
        .map(|_| {
            let (pool, gate) = (pool.clone(), gate.clone());
            tokio::spawn(async move {
                offload(&pool, 0, None, async {
                    heavy(limits::HEAVY_BYTES).await;
                    gate.block();
                })
                .await;
            })
        })
        .collect();
    until(|| pool.running() == 1 && pool.waiting() == 2).await;
    for _ in 0..10 {
        let pool = pool.clone();
        let light = tokio::spawn(async move { offload(&pool, 0, None, tokio::task::yield_now()).await });
        light.await.unwrap();
    }
    assert_eq!(
        (pool.running(), pool.waiting()),
        (1, 2),
        "the gate is still closed"
    );
    gate.open();
    for heavy in heavy {
        heavy.await.unwrap();
    }
    assert_eq!((pool.running(), pool.waiting()), (0, 0));
}

#[tokio::test]
async fn slices_take_turns() {
    let pool = Pool::new(1);
    let order = Mutex::new(Vec::new());
    let work = |name: &'static str| {
        let (pool, order) = (&pool, &order);
        async move {
            offload(pool, 0, None, async {
                pause(Lane::Answers).await;
                for _ in 0..3 {
                    order.lock().push(name);
                    slice().await;
                }
            })
            .await;
        }
    };
    futures_util::future::join(work("a"), work("b")).await;
    assert_eq!(*order.lock(), ["a", "b", "a", "b", "a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_its_time() {
    /// The order in which two computations of four slices run, each of this length.
    async fn order(slice_length: Duration) -> String {
        let pool = Pool::with(1, Pool::shared().turn, limits::WORK_BYTES_PER_CORE);
        let order = Mutex::new(String::new());
        let work = |name: char| {
            let (pool, order) = (&pool, &order);
            async move {
                offload(pool, 0, None, async {
                    pause(Lane::Answers).await;
                    for _ in 0..4 {
                        order.lock().push(name);
                        // The clock is moved at the first poll, within the slice.
                        let _ = tokio::time::advance(slice_length).now_or_never();
                        slice().await;
                    }
                })
                .await;
            }
        };
        futures_util::future::join(work('a'), work('b')).await;
        order.into_inner()
    }
    let millisecond = Duration::from_millis(1);
    assert_eq!(order(limits::TURN).await, "abababab");
    assert_eq!(order(limits::TURN - millisecond).await, "aabbaabb");
    assert_eq!(order(limits::TURN / 2).await, "aabbaabb");
    assert_eq!(order(limits::TURN / 4).await, "aaaabbbb");
}

#[tokio::test(start_paused = true)]
async fn expired_work_ends_within_a_slice() {
    let pool = Pool::new(1);
    let slices = AtomicUsize::new(0);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    let endless = async {
        loop {
            pause(Lane::Answers).await;
            slices.fetch_add(1, Ordering::Relaxed);
            tokio::time::advance(Duration::from_millis(400)).await;
        }
    };
    let work = offload(&pool, 0, Some(deadline.into_std()), endless);
    let ended: Result<(), _> = tokio::time::timeout_at(deadline, work).await;
    assert!(ended.is_err());
    assert_eq!(slices.load(Ordering::Relaxed), 3);
    assert_eq!((pool.running(), pool.waiting()), (0, 0));
}

#[tokio::test]
async fn weight() {
    #[track_caller]
    fn check(bytes: usize, expected: Weight) {
        let pool = Pool::new(1);
        let seen = offload(&pool, 0, None, async {
            heavy(bytes).await;
            WEIGHT.get()
        });
        let mut seen = std::pin::pin!(seen);
        let seen = loop {
            if let Some(seen) = seen.as_mut().now_or_never() {
                break seen;
            }
        };
        assert_eq!(seen, expected, "{bytes}");
        assert_eq!(WEIGHT.get(), Weight::Untracked);
    }
    check(0, Weight::Light);
    check(limits::HEAVY_BYTES - 1, Weight::Light);
    check(limits::HEAVY_BYTES, Weight::Heavy);
    check(usize::MAX, Weight::Heavy);
}

#[tokio::test]
async fn small_bodies_do_not_count() {
    async fn check(bytes: usize, expected: usize) {
        let pool = Pool::new(1);
        let counted = offload(&pool, 0, None, async {
            heavy(bytes).await;
            pool.work()
        });
        assert_eq!(counted.await, expected, "{bytes}");
        assert_eq!(pool.work(), 0);
    }
    check(limits::WORK_COUNTS_BYTES - 1, 0).await;
    check(limits::WORK_COUNTS_BYTES, limits::WORK_COUNTS_BYTES).await;
}

#[tokio::test]
async fn work_of_one_user_and_of_all_is_bounded() {
    /// How many of these bodies are worked on at once, by user.
    async fn at_once(bodies: &[(UserKey, usize)]) -> usize {
        let pool = Pool::with(1, Duration::ZERO, limits::WORK_BYTES_PER_CORE);
        let working = AtomicUsize::new(0);
        let requests = bodies.iter().map(|(user, bytes)| {
            let (pool, working) = (&pool, &working);
            offload(pool, *user, None, async move {
                heavy(*bytes).await;
                working.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            })
        });
        let mut all = futures_util::future::join_all(requests);
        for _ in 0..10 {
            assert!((&mut all).now_or_never().is_none());
        }
        working.load(Ordering::Relaxed)
    }
    const ALL: usize = limits::WORK_BYTES_PER_CORE;
    const SMALL: usize = limits::WORK_COUNTS_BYTES;
    assert_eq!(at_once(&[(1, ALL / 2 - SMALL), (1, SMALL)]).await, 2);
    assert_eq!(at_once(&[(1, ALL / 2 - SMALL), (1, SMALL + 1)]).await, 1);
    assert_eq!(
        at_once(&[(1, ALL / 2), (2, ALL / 2 - SMALL), (3, SMALL)]).await,
        3
    );
    assert_eq!(
        at_once(&[(1, ALL / 2), (2, ALL / 2 - SMALL), (3, SMALL + 1)]).await,
        2
    );
}

#[tokio::test]
async fn background_work_is_left_alone() {
    assert_eq!(pause(Lane::Answers).now_or_never(), Some(()));
    assert_eq!(slice().now_or_never(), Some(()));
    assert_eq!(heavy(usize::MAX).now_or_never(), Some(()));
    assert_eq!(WEIGHT.get(), Weight::Untracked);
}

#[tokio::test]
async fn a_panic_gives_the_turn_back() {
    let pool = Pool::new(1);
    let panics = async {
        pause(Lane::Answers).await;
        panic!("as asked");
    };
    let work = std::panic::AssertUnwindSafe(offload::<_>(&pool, 0, None, panics));
    let ended: Result<(), _> = work.catch_unwind().await;
    assert!(ended.is_err());
    assert_eq!(WEIGHT.get(), Weight::Untracked);
    assert_eq!((pool.running(), pool.waiting()), (0, 0));
    offload(&pool, 0, None, pause(Lane::Answers)).await;
}

#[tokio::test(start_paused = true)]
async fn each_item_is_a_slice() {
    /// How many of ten items, each of 100 ms, are worked on until a deadline.
    async fn worked(deadline: Duration) -> usize {
        let pool = Pool::new(1);
        let (items, slices) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let deadline = tokio::time::Instant::now() + deadline;
        let work = offload(&pool, 0, Some(deadline.into_std()), async {
            pause(Lane::Bodies).await;
            let mut each = std::pin::pin!(each(0..10, |_| {
                items.fetch_add(1, Ordering::Relaxed);
            }));
            while futures_util::poll!(each.as_mut()).is_pending() {
                slices.fetch_add(1, Ordering::Relaxed);
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        });
        let _ = tokio::time::timeout_at(deadline, work).await;
        let (items, slices) = (items.into_inner(), slices.into_inner());
        assert!(items.abs_diff(slices) <= 1, "{items} in {slices}");
        items
    }
    assert_eq!(worked(Duration::from_secs(60)).await, 10);
    assert_eq!(worked(Duration::from_millis(350)).await, 4);
}
