//! States of the past: equal to what was, sharing what has not changed, within their budget.

use std::collections::{BTreeMap, HashMap};

use super::*;

/// The state at each revision, by key: the revision of each object's write.
type Model = BTreeMap<Revision, BTreeMap<String, Revision>>;

async fn limited(engine: &Arc<MvccStore>, budget: &Arc<Budget>) -> Arc<ObjectCache> {
    ObjectCache::start(engine.clone(), &config(), Arc::new(JsonCodec), budget.clone())
        .await
        .expect("starts")
}

fn filled(name: usize, bytes: usize, n: usize) -> Value {
    let mut object = pod("a", &format!("p{name:05}"), &format!("n{}", n % 3));
    object["data"]["filler"] = format!("{n}{}", "x".repeat(bytes)).into();
    object
}

/// Creates, changes and deletions of some pods, with the state after each.
async fn history(engine: &Arc<MvccStore>, cache: &Arc<ObjectCache>, pods: usize, writes: usize) -> Model {
    let mut now = BTreeMap::new();
    let mut model = Model::new();
    for n in 0..writes {
        let name = (n * 7) % pods;
        let key = format!("/registry/pods/a/p{name:05}");
        let revision = if n % 5 == 4 && now.contains_key(&key) {
            now.remove(&key);
            delete(engine, &key).await
        } else {
            let revision = put(engine, Some(cache), &filled(name, 100, n)).await;
            now.insert(key, revision);
            revision
        };
        model.insert(revision, now.clone());
    }
    model
}

#[track_caller]
fn check_state(then: &Snapshot, wanted: &BTreeMap<String, Revision>) {
    let found: BTreeMap<String, Revision> = then
        .objects
        .iter()
        .map(|(key, entry)| (key.to_string(), entry.revision))
        .collect();
    assert_eq!(found, *wanted, "at {}", then.revision);
    let indexed: usize = (0..3)
        .map(|n| then.by_field.keys(&format!("n{n}"), "", "~").count())
        .sum();
    assert_eq!(indexed, wanted.len(), "the index at {}", then.revision);
    for (key, entry) in &then.objects {
        let value = entry.field(0);
        assert!(
            then.by_field.keys(value, key, "~").next() == Some(key),
            "{key} by {value}"
        );
    }
}

/// An object of one write is in memory once, in however many snapshots.
#[track_caller]
fn check_shared(snapshots: &[Arc<Snapshot>]) {
    let mut known: HashMap<(Arc<str>, Revision), *const Entry> = HashMap::new();
    for snapshot in snapshots {
        for (key, entry) in &snapshot.objects {
            let first = known
                .entry((key.clone(), entry.revision))
                .or_insert(Arc::as_ptr(entry));
            assert_eq!(*first, Arc::as_ptr(entry), "{key} of {}", entry.revision);
        }
    }
}

#[tokio::test]
async fn past_states_share_unchanged_objects() {
    for from_events in [true, false] {
        let engine = engine();
        let budget = Budget::standard();
        let cache = limited(&engine, &budget).await;
        let model = history(&engine, &cache, 23, 400).await;
        if !from_events {
            cache.ring.forget(cache.snapshot().revision);
        }
        let mut snapshots = vec![cache.snapshot()];
        // Neither in order nor neighbours only.
        let revisions: Vec<Revision> = model.keys().copied().collect();
        for n in 0..37 {
            let revision = revisions[(n * 53) % 380];
            let then = cache.exactly(revision).await.expect("the engine remembers");
            assert_eq!(then.revision, revision);
            check_state(&then, &model[&revision]);
            snapshots.push(then);
        }
        check_shared(&snapshots);
        let wanted = if from_events { (37, 0) } else { (0, 37) };
        assert_eq!(budget.rebuilt(), wanted);
    }
}

/// Bytes of objects that only kept snapshots have.
fn held(cache: &ObjectCache) -> usize {
    let newest = cache.snapshot();
    let mut alone: HashMap<*const Entry, usize> = HashMap::new();
    for revision in cache.kept.revisions() {
        let snapshot = cache.kept.get(revision).expect("it is kept");
        for (key, entry) in &snapshot.objects {
            let shared = newest
                .objects
                .get(key)
                .is_some_and(|other| Arc::ptr_eq(other, entry));
            if !shared {
                alone.insert(Arc::as_ptr(entry), entry.json.len());
            }
        }
    }
    alone.values().sum()
}

#[tokio::test]
async fn past_states_are_charged_for_their_own_objects() {
    let engine = engine();
    let budget = Budget::standard();
    let cache = limited(&engine, &budget).await;
    let model = history(&engine, &cache, 40, 200).await;
    let revisions: Vec<Revision> = model.keys().copied().collect();
    let check = |what: &str| {
        let (counted, held) = (budget.snapshot_bytes(), held(&cache));
        assert_eq!(counted, cache.kept.bytes(), "{what}");
        assert!(counted >= held, "{what}: {counted} for {held}");
        let least = held * 4 + cache.kept.revisions().len() * (4096 + 48 * 40);
        // A change costs an entry's overhead and, as long as it is only estimated, a path of nodes.
        assert!(counted <= least + 200 * 4096, "{what}: {counted} for {held}");
    };
    for n in [10, 150, 90, 91, 199, 20] {
        cache.exactly(revisions[n]).await.expect("the engine remembers");
        check("kept");
    }
    cache.retain(&cache.snapshot());
    check("the newest");
    // The newest kept snapshot keeps replaced objects alive.
    for n in 0..40 {
        put(&engine, Some(&cache), &filled(n, 2000, n)).await;
        check("replaced");
    }
    // Exact once it has been looked at.
    cache.kept.gains(&cache.newest);
    check("gains");
    for revision in cache.kept.revisions().into_iter().rev() {
        let freed = cache.kept.remove(revision, &cache.newest);
        assert!(freed >= 4096, "{freed}");
        check("removed");
    }
    assert_eq!(budget.snapshot_bytes(), 0);
    cache.retain(&cache.snapshot());
    drop(cache);
    // The engine's watch holds it weakly.
    assert_eq!((budget.snapshot_bytes(), budget.event_bytes()), (0, 0));
}

#[tokio::test]
async fn past_states_are_bounded_by_bytes_and_not_by_number() {
    const LIMIT: usize = 1 << 20;
    let engine = engine();
    let budget = Budget::new(LIMIT);
    let cache = limited(&engine, &budget).await;
    let mut rounds = Vec::new();
    for n in 0..30 {
        let mut revision = Revision(0);
        for name in 0..50 {
            revision = put(&engine, Some(&cache), &filled(name, 1000, n)).await;
        }
        rounds.push(revision);
    }
    // Each of them shares nothing with the others: some 80 KiB. Twice, since the first time has let go of some.
    for revision in rounds.iter().chain(&rounds) {
        let then = cache.exactly(*revision).await.expect("the engine remembers");
        assert_eq!(then.objects.len(), 50);
        assert!(budget.snapshot_bytes() <= LIMIT / limits::PAST_SHARE);
        assert!(budget.snapshot_bytes() + budget.event_bytes() <= LIMIT);
    }
    assert!(budget.evictions() > 40, "{}", budget.evictions());
    assert!(
        cache.kept.revisions().len() >= 3,
        "it keeps what there is room for"
    );

    // Those that share are kept in any number.
    let same = Budget::new(LIMIT);
    let cache = limited(&engine, &same).await;
    for n in 0..60 {
        let revision = put(&engine, Some(&cache), &pod("b", &format!("p{n}"), "n1")).await;
        cache.exactly(revision).await.expect("the newest");
        cache.retain(&cache.snapshot());
    }
    assert_eq!((cache.kept.revisions().len(), same.evictions()), (60, 0));
}

#[tokio::test]
async fn resources_share_one_budget() {
    const LIMIT: usize = 1 << 20;
    let budget = Budget::new(LIMIT);
    let mut caches = Vec::new();
    for _ in 0..6 {
        let engine = engine();
        let cache = limited(&engine, &budget).await;
        for n in 0..6 {
            for name in 0..50 {
                put(&engine, Some(&cache), &filled(name, 1000, n)).await;
            }
            let newest = cache.snapshot();
            cache.retain(&newest);
        }
        // Replaced, so that what is kept is kept by the snapshots alone.
        for name in 0..50 {
            put(&engine, Some(&cache), &filled(name, 1000, 7)).await;
        }
        budget.reclaim();
        assert!(budget.event_bytes() <= LIMIT / 2, "{budget:?}");
        assert!(
            budget.snapshot_bytes() + budget.event_bytes() <= LIMIT,
            "{budget:?}"
        );
        caches.push(cache);
    }
    assert!(budget.evictions() > 0);
    let mut out = String::new();
    crate::metrics::Collect::collect(&*budget, &mut out);
    assert!(
        out.contains("apiserver_watch_cache_history_limit_bytes 1048576\n"),
        "{out}"
    );
    assert!(
        out.contains("apiserver_watch_cache_history_evictions_total{kind=\"snapshot\"}"),
        "{out}"
    );
    // A dropped snapshot is rebuilt.
    for cache in &caches {
        let revision = Revision(cache.snapshot().revision.0 - 60);
        assert_eq!(
            cache.exactly(revision).await.expect("remembers").objects.len(),
            50
        );
    }
    drop(caches);
    assert_eq!((budget.snapshot_bytes(), budget.event_bytes()), (0, 0));
}

#[tokio::test]
async fn events_of_one_resource_have_their_share() {
    /// The number and the bytes of the events that are kept of so many writes.
    async fn kept(budget: usize, writes: usize) -> (usize, usize) {
        let (engine, budget) = (engine(), Budget::new(budget));
        let cache = limited(&engine, &budget).await;
        // Up to revisions of two digits, so that all states are of one length.
        let write = async |n: usize| put(&engine, Some(&cache), &pod("a", "p", ["n1", "n2"][n % 2])).await;
        let mut before = Revision(0);
        while before < Revision(10) {
            before = write(0).await;
        }
        cache.ring.forget(before);
        for n in 1..=writes {
            write(n).await;
        }
        let (count, bytes, _) = cache.ring.held();
        assert_eq!(budget.event_bytes(), bytes);
        (count, bytes)
    }
    let (count, weight) = kept(limits::PAST_BYTES, 1).await;
    assert_eq!(count, 1);
    let budget = limits::PAST_EVENT_SHARE * 20 * weight;
    assert_eq!(kept(budget, 20).await, (20, 20 * weight));
    assert_eq!(kept(budget, 21).await, (20, 20 * weight));
    assert_eq!(
        kept(budget - limits::PAST_EVENT_SHARE, 20).await,
        (19, 19 * weight)
    );
}

#[tokio::test]
async fn states_without_events_are_read_from_the_store() {
    let engine = engine();
    let budget = Budget::standard();
    let cache = limited(&engine, &budget).await;
    let readable = put(&engine, Some(&cache), &pod("a", "p", "n1")).await;
    put(&engine, Some(&cache), &pod("a", "q", "n1")).await;
    let broken = put_raw(&engine, "/registry/pods/a/p", b"not an object").await;
    let after = put(&engine, Some(&cache), &pod("a", "q", "n2")).await;
    let repaired = put(&engine, Some(&cache), &pod("a", "p", "n2")).await;
    let last = put(&engine, Some(&cache), &pod("a", "p", "n3")).await;
    assert!(last > repaired);
    for (revision, objects, unreadable, read) in [
        (repaired, 2, 0, 0),
        (after, 1, 1, 1),
        (broken, 1, 1, 2),
        (readable, 1, 0, 3),
    ] {
        let then = cache.exactly(revision).await.expect("the engine remembers");
        assert_eq!((then.objects.len(), then.unreadable.len()), (objects, unreadable));
        assert_eq!(budget.rebuilt().1, read, "at {revision}");
    }
}

#[tokio::test]
async fn a_cache_that_restarts_keeps_its_objects() {
    let engine = engine();
    let budget = Budget::standard();
    let cache = limited(&engine, &budget).await;
    let model = history(&engine, &cache, 23, 100).await;
    let before = cache.snapshot();
    cache.retain(&before);
    cache.load().await.expect("the engine is there");
    check_shared(&[before, cache.snapshot()]);
    let revision = *model.keys().nth(50).expect("100 of them");
    let then = cache.exactly(revision).await.expect("the engine remembers");
    check_state(&then, &model[&revision]);
    check_shared(&[then, cache.snapshot()]);
    assert_eq!(budget.rebuilt(), (0, 1), "its events are gone");
}
