//! Wall clocks that are wrong and are put right, in both directions. Steps while a store is open need no test: it does not look at the
//! wall clock then.

use std::sync::Arc;
use std::time::Duration;

use test_tools::eventually;

use super::super::clock::{Clock, wall_ms};
use super::super::kv_memory::MemoryKv;
use super::super::{FORMATS, MvccStore};
use super::faults::{self, Disk, Repaired};
use crate::conformance::Subject;
use crate::{Op, Revision};

const DAY: u64 = 24 * 60 * 60 * 1000;
const YEAR: u64 = 365 * DAY;

fn open(disk: &Arc<MemoryKv>, wall_ms: u64) -> Subject {
    let kv = Disk::new(disk, Repaired);
    let store = MvccStore::start_at(wall_ms, kv, None, faults::options(), FORMATS.map);
    Subject::in_process(store.unwrap())
}

async fn put_for(s: &Subject, name: &str, ttl: Duration) -> Revision {
    let put = Op::Put {
        key: s.key(name),
        value: "x".into(),
        ttl: Some(ttl),
    };
    s.commit(vec![], vec![put]).await
}

async fn ends(s: &Subject, name: &str) {
    eventually("that it ends", || async {
        s.read(name, None).await.is_none().then_some(())
    })
    .await;
}

#[track_caller]
fn begins(wall_ms: u64, newest_ms: u64, at: u64) {
    let clock = Clock::new(wall_ms, newest_ms);
    let now = clock.now_ms();
    assert!((at..at + 60_000).contains(&now), "{now}");
    assert!(clock.now_ms() >= now);
}

#[test]
fn time_does_not_go_back() {
    begins(YEAR, 0, YEAR);
    begins(YEAR, DAY, YEAR);
    begins(DAY, YEAR, YEAR);
    begins(0, 0, 0);
    assert_eq!(Clock::new(u64::MAX, 0).now_ms(), u64::MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_ahead_keeps_nothing_longer() {
    let disk = Arc::new(MemoryKv::default());
    let now = wall_ms();
    let s = open(&disk, now + YEAR);
    put_for(&s, "short", Duration::from_millis(300)).await;
    put_for(&s, "long", Duration::from_secs(3600)).await;
    s.finish().await;
    // The clock is right again: a key with a short lease does not live for a year.
    let s = open(&disk, now);
    ends(&s, "short").await;
    assert!(s.read("long", None).await.is_some());
    // A key that is written now lives for its whole TTL.
    put_for(&s, "new", Duration::from_millis(300)).await;
    put_for(&s, "stays", Duration::from_secs(3600)).await;
    ends(&s, "new").await;
    assert!(s.read("stays", None).await.is_some());
    s.finish().await;
    // When the wall clock gets there, an hour has passed for all of them.
    let s = open(&disk, now + YEAR + DAY);
    ends(&s, "long").await;
    ends(&s, "stays").await;
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_behind_ends_nothing_early() {
    let disk = Arc::new(MemoryKv::default());
    let now = wall_ms();
    let s = open(&disk, now);
    put_for(&s, "before", Duration::from_secs(3600)).await;
    s.finish().await;
    // A machine whose clock starts in 1970: time goes on from the newest write.
    let s = open(&disk, 0);
    assert!(s.read("before", None).await.is_some());
    put_for(&s, "while", Duration::from_secs(3600)).await;
    s.finish().await;
    let s = open(&disk, now + 1000);
    assert!(s.read("while", None).await.is_some());
    assert!(s.read("before", None).await.is_some());
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_survives_clocks_in_both_directions() {
    let disk = Arc::new(MemoryKv::default());
    let now = wall_ms();
    let mut revisions = Vec::new();
    for (n, wall) in [now, now + YEAR, now, 0, now + 2 * YEAR].into_iter().enumerate() {
        let s = open(&disk, wall);
        for (revision, value) in &revisions {
            let found = s.read("a", Some(*revision)).await.unwrap();
            assert_eq!(&found.value, value, "at {wall}");
        }
        let value = n.to_string();
        revisions.push((s.write("a", value.clone()).await, value));
        s.finish().await;
    }
}
