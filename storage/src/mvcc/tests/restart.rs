//! The state of a store after it was closed and opened again.

use std::time::Duration;

use test_tools::eventually;

use super::super::kv::Write;
use super::super::record::{self, Header};
use super::{ON_DISK, options, raw, reopen};
use crate::conformance::{Recorder, Subject};
use crate::{EngineKind, EventKind, Op, OpenOptions, Revision, StorageError};

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
            let delivered: Vec<_> = seen
                .events
                .iter()
                .map(|event| (s.name(&event.kv), event.kind.clone()))
                .collect();
            let put = |name: &str| (name.to_owned(), EventKind::Put);
            assert_eq!(
                delivered,
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
async fn history_is_kept_for_the_retention() {
    let dir = tempfile::tempdir().unwrap();
    let mut window = options(EngineKind::Redb, dir.path());
    window.retention = Duration::from_millis(200);
    let s = Subject::in_process(crate::open(window).unwrap());
    let first = s.write("a", "1").await;
    s.write("a", "2").await;
    let compacted = || async {
        let status = s.store.status().await.unwrap();
        (status.oldest > first).then_some(())
    };
    eventually("that history is compacted", compacted).await;
    assert_eq!(s.read("a", None).await.unwrap().value, "2");
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_has_a_limit_however_young() {
    for (max_history, max_history_bytes) in [(10, u64::MAX), (u64::MAX, 10 * 1000)] {
        let dir = tempfile::tempdir().unwrap();
        let few = OpenOptions {
            max_history,
            max_history_bytes,
            // Looked after a twentieth of it.
            retention: Duration::from_secs(10),
            ..options(EngineKind::Redb, dir.path())
        };
        let s = Subject::in_process(crate::open(few).unwrap());
        let first = s.write("a", vec![0; 1000]).await;
        let limited = async {
            while s.store.status().await.unwrap().oldest <= first {
                s.write("a", vec![1; 1000]).await;
            }
        };
        tokio::time::timeout(crate::conformance::DEADLINE, limited)
            .await
            .expect("history is limited");
        let status = s.store.status().await.unwrap();
        assert!(status.revision.0 - status.oldest.0 >= 10, "{status:?}");
        s.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_in_memory_has_a_lower_bound() {
    let s = Subject::in_process(crate::memory());
    let first = s.write("a", vec![0; 1 << 20]).await;
    let limited = async {
        let mut written = 0;
        while s.store.status().await.unwrap().oldest <= first {
            s.write("a", vec![1; 1 << 20]).await;
            written += 1;
        }
        written
    };
    let written = tokio::time::timeout(crate::conformance::DEADLINE, limited)
        .await
        .expect("history is limited");
    assert!(written >= 64, "{written} MiB");
    s.finish().await;
}

/// Three days in a moment: the times of the writes are moved into the past while the store is closed.
async fn keeps_days(engine: EngineKind) {
    const DAY_MS: u64 = 24 * 60 * 60 * 1000;
    let dir = tempfile::tempdir().unwrap();
    let days = OpenOptions {
        retention: Duration::from_secs(3 * 24 * 60 * 60),
        ..options(engine, dir.path())
    };
    let s = Subject::in_process(crate::open(days.clone()).unwrap());
    let mut written = Vec::new();
    for n in 0..10 {
        written.push(s.write("a", format!("{n}")).await);
    }
    let kept_from_the_first = s.write("b", "b").await;
    s.finish().await;

    let kv = raw(engine, dir.path());
    let (from, to) = record::header_range(0, None);
    let mut moved = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        let (at, header) = Header::decode(value).unwrap();
        // Half a day apart.
        let time_ms = header.time_ms - (kept_from_the_first.0 - at.rev) * DAY_MS / 2;
        moved.push(Write::Put(key.to_vec(), Header { time_ms, ..header }.encode(at)));
        Ok(true)
    };
    kv.reader().unwrap().scan(&from, &to, visit).unwrap();
    assert_eq!(moved.len(), 11);
    kv.apply(&moved).unwrap();
    drop(kv);

    let s = Subject::in_process(crate::open(days).unwrap());
    // Three days before the newest is the fifth write; the values it replaced are removed, in the background.
    let oldest = written[4];
    eventually("that history is compacted", || async {
        let status = s.store.status().await.unwrap();
        (status.oldest >= oldest).then_some(())
    })
    .await;
    assert_eq!(s.store.status().await.unwrap().oldest, oldest);
    let gone = s.store.get(&s.key("a"), Some(written[3])).await;
    assert!(matches!(gone, Err(StorageError::Compacted { .. })), "{gone:?}");
    for (n, at) in written.iter().enumerate().skip(4) {
        let exact = s.read("a", Some(*at)).await.unwrap();
        assert_eq!((exact.value, exact.mod_revision), (format!("{n}").into(), *at));
        assert_eq!(s.list("", Some(*at)).await.len(), 1);
    }
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key("a"), oldest, seen.clone()).await.unwrap();
    seen.look(|seen| {
        let delivered: Vec<_> = seen.events.iter().map(|event| event.kv.mod_revision).collect();
        assert_eq!(delivered, written[5..]);
    });
    s.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn days_of_history_are_kept_and_read() {
    tokio::join!(keeps_days(EngineKind::Redb), keeps_days(EngineKind::Sled));
}
