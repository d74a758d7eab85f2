//! Watches: order, completeness, resumption, progress.
#![allow(missing_docs)]

use std::collections::HashMap;

use bytes::Bytes;

use super::{Recorder, Subject};
use crate::{Event, EventKind, Revision, StorageError};

fn summary(s: &Subject, event: &Event) -> (String, EventKind, Bytes) {
    (s.name(&event.kv), event.kind.clone(), event.kv.value.clone())
}

pub async fn watches_see_each_change_once_in_order(s: &Subject) {
    let after = s.write("before", "x").await;
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), after, seen.clone()).await.unwrap();
    let a = s.write("a", "1").await;
    let b = s.write("b", "2").await;
    let a2 = s.write("a", "3").await;
    let gone = s.remove("b").await;
    seen.reach(gone).await;
    seen.look(|seen| {
        let events: Vec<_> = seen.events.iter().map(|event| summary(s, event)).collect();
        let put = |name: &str, value: &'static str| (name.to_owned(), EventKind::Put, Bytes::from(value));
        let expected = [
            put("a", "1"),
            put("b", "2"),
            put("a", "3"),
            ("b".to_owned(), EventKind::Delete, Bytes::new()),
        ];
        assert_eq!(events, expected);
        let revisions: Vec<_> = seen.events.iter().map(|event| event.kv.mod_revision).collect();
        assert_eq!(revisions, [a, b, a2, gone]);
        let created: Vec<_> = seen.events[..3]
            .iter()
            .map(|event| event.kv.create_revision)
            .collect();
        assert_eq!(created, [a, b, a]);
    });
}

pub async fn watches_carry_previous_values(s: &Subject) {
    let first = s.write("a", "1").await;
    let live = Recorder::new();
    let _watch = s.store.watch(&s.key(""), first, live.clone()).await.unwrap();
    let second = s.write("a", "2").await;
    let gone = s.remove("a").await;
    let again = s.write("a", "3").await;
    live.reach(again).await;
    let late = Recorder::new();
    let _late = s.store.watch(&s.key(""), first, late.clone()).await.unwrap();
    late.reach(again).await;
    for seen in [live, late] {
        seen.look(|seen| {
            let before: Vec<_> = seen
                .events
                .iter()
                .map(|event| {
                    let prev = event.prev.as_ref();
                    (
                        event.kv.mod_revision,
                        prev.map(|pair| (pair.create_revision, pair.mod_revision, pair.value.clone())),
                    )
                })
                .collect();
            let pair = |revision, value: &'static str| Some((first, revision, Bytes::from(value)));
            assert_eq!(
                before,
                [
                    (second, pair(first, "1")),
                    (gone, pair(second, "2")),
                    (again, None)
                ]
            );
        });
    }
}

pub async fn watches_replay_the_past(s: &Subject) {
    let mut revisions = vec![s.write("start", "x").await];
    for n in 0..300 {
        revisions.push(s.write(&format!("k{}", n % 7), format!("{n}")).await);
    }
    for skip in [0, 1, 150, 299, 300] {
        let seen = Recorder::new();
        let _watch = s
            .store
            .watch(&s.key(""), revisions[skip], seen.clone())
            .await
            .unwrap();
        seen.reach(revisions[300]).await;
        seen.look(|seen| {
            let found: Vec<_> = seen.events.iter().map(|event| event.kv.mod_revision).collect();
            assert_eq!(found, revisions[skip + 1..]);
        });
    }
}

pub async fn watches_join_without_a_gap(s: &Subject) {
    const WRITERS: usize = 4;
    const EACH: usize = 60;
    let after = s.write("start", "x").await;
    let writers = (0..WRITERS).map(|writer| async move {
        let mut last = Revision(0);
        for n in 0..EACH {
            last = s.write(&format!("w{writer}"), format!("{n}")).await;
        }
        last
    });
    let watchers = (0..8).map(|_| async {
        // Each begins at another moment of the writers' work, all from the same past.
        let seen = Recorder::new();
        let watch = s.store.watch(&s.key("w"), after, seen.clone()).await.unwrap();
        seen.wait(|seen| seen.events.len() >= EACH / 4).await;
        (watch, seen)
    });
    let (last, watchers) = tokio::join!(
        futures_util::future::join_all(writers),
        futures_util::future::join_all(watchers)
    );
    let last = *last.iter().max().unwrap();
    for (_watch, seen) in &watchers {
        seen.reach(last).await;
        seen.look(|seen| {
            assert_eq!(seen.events.len(), WRITERS * EACH);
            assert!(seen.events.is_sorted_by_key(|event| event.kv.mod_revision));
            let mut next: HashMap<String, usize> = HashMap::new();
            for event in &seen.events {
                let n = next.entry(s.name(&event.kv)).or_default();
                assert_eq!(event.kv.value, format!("{n}"));
                *n += 1;
            }
        });
    }
}

pub async fn watches_see_whole_revisions(s: &Subject) {
    let after = s.write("start", "x").await;
    let live = Recorder::new();
    let _watch = s.store.watch(&s.key("n"), after, live.clone()).await.unwrap();
    let mut last = after;
    for round in 0..20 {
        last = s
            .commit(
                vec![],
                (0..30)
                    .map(|n| s.put(&format!("n{n:02}"), format!("{round}")))
                    .collect(),
            )
            .await;
    }
    let late = Recorder::new();
    let _late = s.store.watch(&s.key("n"), after, late.clone()).await.unwrap();
    for seen in [live, late] {
        seen.reach(last).await;
        seen.look(|seen| {
            assert_eq!(seen.events.len(), 600);
            assert!(
                seen.calls.iter().all(|(_, events)| events % 30 == 0),
                "{:?}",
                seen.calls
            );
        });
    }
}

pub async fn watches_see_their_prefix_only(s: &Subject) {
    let after = s.write("start", "x").await;
    let (pods, nodes, all) = (Recorder::new(), Recorder::new(), Recorder::new());
    let mut watches = Vec::new();
    for (prefix, seen) in [("pods/", &pods), ("nodes/", &nodes), ("", &all)] {
        watches.push(s.store.watch(&s.key(prefix), after, seen.clone()).await.unwrap());
    }
    s.write("pods/a", "1").await;
    s.write("pods", "2").await;
    s.write("nodes/a", "3").await;
    let last = s
        .commit(vec![], vec![s.put("pods/b", "4"), s.put("nodes/b", "5")])
        .await;
    all.reach(last).await;
    all.look(|seen| assert_eq!(seen.events.len(), 5));
    for (seen, expected) in [(&pods, ["pods/a", "pods/b"]), (&nodes, ["nodes/a", "nodes/b"])] {
        seen.reach(last).await;
        seen.look(|seen| {
            assert_eq!(
                seen.events
                    .iter()
                    .map(|event| s.name(&event.kv))
                    .collect::<Vec<_>>(),
                expected
            );
        });
    }
}

pub async fn watches_of_the_compacted_are_refused(s: &Subject) {
    let first = s.write("a", "1").await;
    s.write("a", "2").await;
    let third = s.write("a", "3").await;
    let fourth = s.write("a", "4").await;
    s.store.compact(third).await.unwrap();
    let seen = Recorder::new();
    match s.store.watch(&s.key(""), first, seen.clone()).await {
        Err(StorageError::Compacted { .. }) => {}
        Err(other) => panic!("{other:?}"),
        // An engine elsewhere may say so a moment later.
        Ok(_watch) => {
            seen.wait(|seen| seen.closed.is_some()).await;
            seen.look(|seen| {
                assert!(
                    seen.closed.as_ref().is_some_and(|why| why.contains("compacted")),
                    "{seen:?}"
                )
            });
        }
    }
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), third, seen.clone()).await.unwrap();
    seen.reach(fourth).await;
    seen.look(|seen| assert_eq!(seen.events.len(), 1));
}

pub async fn dropped_watches_are_quiet(s: &Subject) {
    let after = s.write("start", "x").await;
    let (dropped, kept) = (Recorder::new(), Recorder::new());
    let watch = s.store.watch(&s.key(""), after, dropped.clone()).await.unwrap();
    let _kept = s.store.watch(&s.key(""), after, kept.clone()).await.unwrap();
    let first = s.write("a", "1").await;
    dropped.reach(first).await;
    drop(watch);
    let last = s.write("a", "2").await;
    kept.reach(last).await;
    if s.publishes_before_acknowledging {
        dropped.look(|seen| assert_eq!(seen.events.len(), 1));
    }
    dropped.look(|seen| assert_eq!(seen.closed, None));
}

pub async fn sinks_become_fresh(s: &Subject) {
    let after = s.write("quiet/a", "x").await;
    let seen = Recorder::new();
    let _watch = s
        .store
        .watch(&s.key("quiet/"), after, seen.clone())
        .await
        .unwrap();
    for round in 0..5 {
        let written = s.write("busy/a", format!("{round}")).await;
        let fresh = s.store.fresh().await.unwrap();
        assert!(fresh >= written);
        seen.reach(fresh).await;
    }
    seen.look(|seen| assert!(seen.events.is_empty()));
}

pub async fn acknowledged_writes_are_published(s: &Subject) {
    let after = s.write("start", "x").await;
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), after, seen.clone()).await.unwrap();
    for round in 1..20 {
        let revision = s.write("a", format!("{round}")).await;
        if s.publishes_before_acknowledging {
            assert!(s.store.published().unwrap() >= revision);
            seen.look(|seen| assert_eq!((seen.events.len(), seen.revision), (round, revision)));
        }
    }
}
