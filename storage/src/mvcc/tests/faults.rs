//! Disks that fail.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use test_tools::eventually;

use super::super::MvccStore;
use super::super::kv::{Kv, Reader, Write};
use super::super::kv_memory::MemoryKv;
use crate::conformance::{DEADLINE, Recorder, Subject};
use crate::{EngineKind, OpenOptions, Outcome, StorageError, Txn};

pub(super) fn options() -> OpenOptions {
    OpenOptions {
        engine: EngineKind::Memory,
        ..OpenOptions::default()
    }
}

fn start(kv: Box<dyn Kv>) -> Result<Arc<MvccStore>, StorageError> {
    MvccStore::start(kv, None, options(), &[])
}

/// A layer between a store and its disk.
pub(super) trait Between: Send + Sync + Debug {
    fn apply(&self, disk: &MemoryKv, batch: &[Write]) -> Result<(), StorageError> {
        disk.apply(batch)
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }
}

/// A disk in memory with something before it.
#[derive(Debug)]
pub(super) struct Disk<B> {
    pub disk: Arc<MemoryKv>,
    pub between: B,
}

impl<B> Disk<B> {
    pub(super) fn new(disk: &Arc<MemoryKv>, between: B) -> Box<Self> {
        let disk = disk.clone();
        Box::new(Disk { disk, between })
    }
}

impl<B: Between> Kv for Disk<B> {
    fn name(&self) -> &'static str {
        "test"
    }
    fn on_disk(&self) -> bool {
        true
    }
    fn chunk_len(&self) -> usize {
        1000
    }
    fn reader(&self) -> Result<Box<dyn Reader + '_>, StorageError> {
        self.disk.reader()
    }
    fn apply(&self, batch: &[Write]) -> Result<(), StorageError> {
        self.between.apply(&self.disk, batch)
    }
    fn size_bytes(&self) -> Option<u64> {
        None
    }
    fn free_bytes(&self) -> Result<Option<u64>, StorageError> {
        Ok(self.between.free_bytes())
    }
}

/// Fails the Nth batch, with or without having written it.
#[derive(Debug)]
pub(super) struct Failing {
    pub left: AtomicU64,
    pub then_writes: bool,
}

impl Between for Failing {
    fn apply(&self, disk: &MemoryKv, batch: &[Write]) -> Result<(), StorageError> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 || self.then_writes {
            disk.apply(batch)?;
        }
        if left == 0 {
            return Err(StorageError::Engine {
                message: "the disk has failed".into(),
                source: None,
            });
        }
        Ok(())
    }
}

/// A disk that works again.
#[derive(Debug)]
pub(super) struct Repaired;

impl Between for Repaired {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_batch_is_uncertain_and_the_last() {
    for (good, then_writes) in [
        (0, false),
        (0, true),
        (1, false),
        (3, true),
        (7, false),
        (7, true),
    ] {
        let disk = Arc::new(MemoryKv::default());
        // The store's settings are the first batch.
        let left = AtomicU64::new(good + 1);
        let kv = Disk::new(&disk, Failing { left, then_writes });
        let s = Subject::in_process(start(kv).unwrap());
        let seen = Recorder::new();
        let _watch = s.store.watch("", crate::Revision(0), seen.clone()).await.unwrap();
        for n in 0..good {
            s.write(&format!("k{n}"), vec![n as u8; 2500]).await;
        }
        let write = |name: &str| Txn {
            guards: vec![],
            ops: vec![s.put(name, "x")],
        };
        let failed = s.store.commit(write("last")).await;
        assert!(matches!(failed, Err(StorageError::Uncertain(_))), "{failed:?}");
        let after = s.store.commit(write("after")).await;
        assert!(
            matches!(after, Err(StorageError::Unavailable { .. })),
            "{after:?}"
        );
        assert!(matches!(
            s.store.status().await,
            Err(StorageError::Unavailable { .. })
        ));
        // No watcher saw the failed write; the old values can be read.
        assert_eq!(s.read("last", None).await, None);
        seen.look(|seen| assert_eq!(seen.events.len() as u64, good));
        assert_eq!(s.list("k", None).await.len() as u64, good);
        s.finish().await;

        let s = Subject::in_process(start(Disk::new(&disk, Repaired)).unwrap());
        assert_eq!(s.list("k", None).await.len() as u64, good);
        assert_eq!(s.read("last", None).await.is_some(), then_writes);
        s.write("after", "x").await;
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_in_a_group_hurts_nobody_else() {
    let s = Subject::in_process(crate::memory());
    let held = s.write("a", "0").await;
    // Sent at once, they share groups: the first update wins, later guards see it, the other writes go through.
    let updates = (0..50).map(|n| {
        let txn = Txn {
            guards: vec![s.guard("a", held)],
            ops: vec![s.put("a", format!("{n}"))],
        };
        s.store.commit(txn)
    });
    let others = (0..50).map(|n| {
        let txn = Txn {
            guards: vec![],
            ops: vec![s.put(&format!("b{n}"), "x")],
        };
        s.store.commit(txn)
    });
    let (updates, others) = tokio::join!(
        futures_util::future::join_all(updates),
        futures_util::future::join_all(others)
    );
    let committed = |outcomes: &[Result<Outcome, StorageError>]| {
        outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(Outcome::Committed(_))))
            .count()
    };
    assert_eq!((committed(&updates), committed(&others)), (1, 50));
    s.finish().await;
}

/// A disk on which other files leave more or less room.
#[derive(Debug)]
struct Shared(Arc<AtomicU64>);

impl Between for Shared {
    fn free_bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_come_back_when_there_is_room_again() {
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let disk = Disk::new(&Arc::default(), Shared(free.clone()));
    let s = Subject::in_process(start(disk).unwrap());
    let put = || {
        let ops = vec![s.put("a", "x")];
        s.store.commit(Txn { guards: vec![], ops })
    };
    for _ in 0..2 {
        s.write("a", "x").await;
        free.store(options().min_free_bytes - 1, Ordering::Relaxed);
        eventually("that the lack of room is noticed", || async {
            match put().await {
                Ok(_) => None,
                Err(StorageError::NoSpace(_)) => Some(()),
                Err(error) => panic!("{error:?}"),
            }
        })
        .await;
        // Deletions go through, and existing values can be read.
        assert_eq!(s.read("a", None).await.unwrap().value, "x");
        s.remove("a").await;
        assert!(s.store.status().await.is_ok());

        free.store(options().min_free_bytes, Ordering::Relaxed);
        eventually("that the room is noticed", || async { put().await.ok() }).await;
    }
    s.finish().await;
}

/// Counts batches and holds them up.
#[derive(Debug, Default)]
struct Gate {
    /// How many batches have come, and how many may pass.
    batches: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut (u64, u64))) {
        change(&mut self.batches.lock());
        self.changed.notify_all();
    }

    fn wait(&self, done: impl Fn(&(u64, u64)) -> bool) {
        let mut batches = self.batches.lock();
        let waited = self
            .changed
            .wait_while_for(&mut batches, |batches| !done(batches), DEADLINE);
        assert!(!waited.timed_out(), "{batches:?}");
    }
}

impl Between for Arc<Gate> {
    fn apply(&self, disk: &MemoryKv, batch: &[Write]) -> Result<(), StorageError> {
        self.change(|(come, _)| *come += 1);
        self.wait(|(come, may)| come <= may);
        disk.apply(batch)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_for_the_disk_share_the_next_batch() {
    const WAITING: u64 = 100;
    let gate = Arc::<Gate>::default();
    // The store's settings pass.
    gate.change(|(_, may)| *may = 1);
    let kv = Disk::new(&Arc::default(), gate.clone());
    let s = Subject::in_process(start(kv).unwrap());
    let put = |n: u64| {
        let ops = vec![s.put(&format!("k{n}"), "x")];
        s.store.commit(Txn { guards: vec![], ops })
    };
    let mut first = put(0);
    assert!(futures_util::poll!(&mut first).is_pending());
    gate.wait(|(come, _)| *come == 2);
    let mut others: Vec<_> = (1..=WAITING).map(put).collect();
    for other in &mut others {
        assert!(futures_util::poll!(other).is_pending());
    }
    gate.change(|(_, may)| *may = u64::MAX);
    let mut revisions = Vec::new();
    for outcome in futures_util::future::join_all(std::iter::once(first).chain(others)).await {
        match outcome.unwrap() {
            Outcome::Committed(revision) => revisions.push(revision.0),
            conflict => panic!("{conflict:?}"),
        }
    }
    // A revision each, in the order they came, and one batch for all of them.
    assert_eq!(revisions, (1..=WAITING + 1).collect::<Vec<_>>());
    gate.wait(|(come, _)| *come == 3);
    s.finish().await;
}
