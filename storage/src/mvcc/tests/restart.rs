//! What a store still knows after it was closed and opened again.

use std::time::Duration;

use super::{ON_DISK, options, reopen};
use crate::conformance::{Recorder, Subject};
use crate::{EngineKind, EventKind, Op, Revision, StorageError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_there_after_a_restart() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        let first = s.write("a", "1").await;
        s.write("big", vec![7; 300_000]).await;
        let second = s.write("a", "2").await;
        let gone = s.write("gone", "x").await;
        let last = s.remove("gone").await;
        s.finish().await;

        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert_eq!(s.store.fresh().await.unwrap(), last);
        assert_eq!(s.read("a", Some(first)).await.unwrap().value, "1");
        let now = s.read("a", None).await.unwrap();
        assert_eq!(
            (now.create_revision, now.mod_revision, &now.value[..]),
            (first, second, &b"2"[..])
        );
        assert_eq!(s.read("gone", Some(gone)).await.unwrap().value, "x");
        assert_eq!(s.list("", None).await.len(), 2);
        assert_eq!(s.store.status().await.unwrap().keys, Some(2));

        let seen = Recorder::new();
        let _watch = s.store.watch(&s.key(""), first, seen.clone()).await.unwrap();
        seen.look(|seen| {
            let told: Vec<_> = seen
                .events
                .iter()
                .map(|event| (s.name(&event.kv), event.kind.clone()))
                .collect();
            let put = |name: &str| (name.to_owned(), EventKind::Put);
            assert_eq!(
                told,
                [
                    put("big"),
                    put("a"),
                    put("gone"),
                    ("gone".to_owned(), EventKind::Delete)
                ]
            );
            assert_eq!(seen.events[1].prev.as_ref().unwrap().value, "1");
            assert_eq!(seen.events[3].prev.as_ref().unwrap().value, "x");
            assert_eq!(seen.revision, last);
        });
        assert_eq!(s.write("a", "3").await, Revision(last.0 + 1));
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_do_not_go_back_when_the_newest_are_compacted() {
    for engine in ON_DISK {
        let dir = tempfile::tempdir().unwrap();
        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        s.write("a", "1").await;
        let second = s.write("a", "2").await;
        let last = s.remove("a").await;
        s.store.compact(last).await.unwrap();
        // The sweep of what was compacted follows in rounds of its own.
        s.finish().await;

        let s = Subject::in_process(reopen(engine, dir.path()).unwrap());
        assert_eq!(s.store.fresh().await.unwrap(), last);
        let status = s.store.status().await.unwrap();
        assert_eq!((status.oldest, status.keys), (last, Some(0)));
        let refused = s.store.get(&s.key("a"), Some(second)).await;
        assert!(
            matches!(refused, Err(StorageError::Compacted { .. })),
            "{refused:?}"
        );
        assert_eq!(s.write("a", "3").await, Revision(last.0 + 1));
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_to_live_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let s = Subject::in_process(reopen(EngineKind::Redb, dir.path()).unwrap());
    let put = |name: &str, ttl| Op::Put {
        key: s.key(name),
        value: "x".into(),
        ttl: Some(ttl),
    };
    let ops = vec![
        put("soon", Duration::from_millis(300)),
        put("later", Duration::from_secs(3600)),
    ];
    let written = s.commit(vec![], ops).await;
    s.finish().await;

    let s = Subject::in_process(reopen(EngineKind::Redb, dir.path()).unwrap());
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), written, seen.clone()).await.unwrap();
    seen.wait(|seen| !seen.events.is_empty()).await;
    seen.look(|seen| {
        assert_eq!(s.name(&seen.events[0].kv), "soon");
        assert_eq!(seen.events[0].kind, EventKind::Delete);
    });
    assert!(s.read("later", None).await.is_some());
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_outlives_its_window_only_as_long_as_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut window = options(EngineKind::Redb, dir.path());
    window.retention = Duration::from_millis(200);
    let s = Subject::in_process(crate::open(window).unwrap());
    let first = s.write("a", "1").await;
    s.write("a", "2").await;
    let compacted = async {
        while s.store.status().await.unwrap().oldest <= first {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(crate::conformance::DEADLINE, compacted)
        .await
        .expect("history is compacted in time");
    assert_eq!(s.read("a", None).await.unwrap().value, "2");
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_has_a_limit_however_young() {
    let dir = tempfile::tempdir().unwrap();
    let mut few = options(EngineKind::Redb, dir.path());
    (few.max_history, few.retention) = (10, Duration::from_millis(1500));
    let s = Subject::in_process(crate::open(few).unwrap());
    let first = s.write("a", "0").await;
    let limited = async {
        while s.store.status().await.unwrap().oldest <= first {
            s.write("a", "1").await;
        }
    };
    tokio::time::timeout(crate::conformance::DEADLINE, limited)
        .await
        .expect("history is limited");
    let status = s.store.status().await.unwrap();
    assert!(status.revision.0 - status.oldest.0 >= 10, "{status:?}");
    s.finish().await;
}
