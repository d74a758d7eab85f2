//! Caches of a fork, which begin with what the cache of its origin knew.

use super::*;
use crate::registry::StorageFactory;

async fn seeded(
    fork: &Arc<MvccStore>,
    seeds: &Arc<crate::registry::Seeds>,
    config: StoreConfig,
) -> Arc<ObjectCache> {
    let factory = StorageFactory::new(fork.clone()).with_seeds(Some(seeds.clone()));
    factory.open(config).cache().await.expect("starts")
}

#[tokio::test]
async fn the_cache_of_a_fork_reads_nothing_and_misses_nothing() {
    let origin = engine();
    let factory = StorageFactory::new(origin.clone());
    let store = factory.open(config());
    let first = put(&origin, None, &pod("a", "p0", "n1")).await;
    put(&origin, None, &pod("a", "p1", "n1")).await;
    let before = store.fresh().await.expect("read");
    // Written between the states of the caches and that of the engine, as when writes go on.
    let seeds = factory.seeds([&store]);
    let between = put(&origin, None, &pod("a", "p2", "n2")).await;
    delete(&origin, "/registry/pods/a/p1").await;
    let fork = origin.fork().await.expect("forked");
    put(&origin, None, &pod("a", "p3", "n2")).await;

    let cache = seeded(&fork, &seeds, config()).await;
    let now = cache.fresh().await.expect("fresh");
    let names: Vec<&str> = now.objects.values().map(|entry| entry.name()).collect();
    assert_eq!(names, ["p0", "p2"]);
    let (known, taken) = (
        &before.objects["/registry/pods/a/p0"],
        &now.objects["/registry/pods/a/p0"],
    );
    assert!(Arc::ptr_eq(known, taken), "it was decoded again");
    // A watch from before the fork has all of it.
    let mut feed = cache.feed(first, Interest::All).await.expect("a feed");
    let mut events = Vec::new();
    feed.drain(&mut events).expect("drained");
    let seen: Vec<String> = events
        .iter()
        .map(|e| format!("{} {}", e.kind.as_str(), e.entry.name()))
        .collect();
    assert_eq!(seen, ["ADDED p1", "ADDED p2", "DELETED p1"]);
    assert_eq!(events[1].revision, between);

    // A kind that is read by other rules has its objects read.
    let other = StoreConfig {
        fields: vec![SelectableField::path("status.phase")],
        ..config()
    };
    let read = seeded(&fork, &seeds, other).await.fresh().await.expect("fresh");
    let taken = &read.objects["/registry/pods/a/p0"];
    assert!(!Arc::ptr_eq(known, taken) && taken.fields().count() == 1);

    // Nor is a state of use whose next events are compacted.
    fork.compact(fork.published().expect("in process"))
        .await
        .expect("compacted");
    let late = seeded(&fork, &seeds, config())
        .await
        .fresh()
        .await
        .expect("fresh");
    assert_eq!(late.objects.len(), 2);
}

#[tokio::test]
async fn a_cache_that_has_not_begun_is_no_seed() {
    let origin = engine();
    let factory = StorageFactory::new(origin.clone());
    let store = factory.open(config());
    put(&origin, None, &pod("a", "p0", "n1")).await;
    let seeds = factory.seeds([&store]);
    let fork = origin.fork().await.expect("forked");
    let now = seeded(&fork, &seeds, config())
        .await
        .fresh()
        .await
        .expect("fresh");
    assert_eq!(now.objects.len(), 1);
}
