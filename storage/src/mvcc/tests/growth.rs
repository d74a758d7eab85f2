//! Many overwrites of few keys: compacted space is reused.
//!
//! `STORAGE_GROWTH_OVERWRITES` sets how many; a few thousand otherwise.

use std::time::Duration;

use super::options;
use crate::EngineKind;
use crate::conformance::Subject;

const KEYS: usize = 64;

fn size_of(dir: &std::path::Path) -> u64 {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_of(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

async fn stays_small(engine: EngineKind, limit: u64) {
    let overwrites: usize = std::env::var("STORAGE_GROWTH_OVERWRITES")
        .ok()
        .map_or(6_000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut window = options(engine, dir.path());
    window.retention = Duration::from_millis(100);
    window.cache_bytes = 8 << 20;
    let s = Subject::in_process(crate::open(window).unwrap());
    let clients = (0..KEYS).map(|client| {
        let s = &s;
        async move {
            for n in 0..overwrites / KEYS {
                s.write(&format!("k{client}"), vec![(n % 251) as u8; 2048]).await;
            }
        }
    });
    futures_util::future::join_all(clients).await;
    let size = size_of(dir.path());
    assert!(
        size < limit,
        "{engine:?}: {size} bytes after {overwrites} overwrites of {KEYS} keys"
    );
    assert_eq!(s.list("k", None).await.len(), KEYS);
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_stays_small() {
    stays_small(EngineKind::Redb, 48 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sled_stays_small() {
    stays_small(EngineKind::Sled, 192 << 20).await;
}
