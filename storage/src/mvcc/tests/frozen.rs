//! Forks of a store, and putting it back to a state of before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::conformance::Recorder;
use crate::{Event, EventKind, FrozenStore, MvccStore, Op, Outcome, RangeRequest, Revision, Txn};

fn put(key: &str, value: &str) -> Op {
    Op::Put {
        key: key.into(),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: None,
    }
}

async fn commit(store: &dyn Store, ops: Vec<Op>) -> Revision {
    let txn = Txn {
        guards: Vec::new(),
        ops,
    };
    match store.commit(txn).await.unwrap() {
        Outcome::Committed(revision) => revision,
        conflict => panic!("no guard failed: {conflict:?}"),
    }
}

/// Every key with its value, and the newest revision.
async fn content(store: &dyn Store) -> (Vec<(String, String)>, Revision) {
    let read = store.range(RangeRequest::default()).await.unwrap();
    let pair = |kv: crate::KeyValue| (kv.key.to_string(), String::from_utf8(kv.value.to_vec()).unwrap());
    (read.kvs.into_iter().map(pair).collect(), read.revision)
}

/// A store of each engine, and the directory that it needs.
fn every_engine() -> Vec<(Arc<dyn Store>, tempfile::TempDir)> {
    let engines = [EngineKind::Memory, EngineKind::Redb, EngineKind::Sled];
    let open = |engine| {
        let dir = tempfile::tempdir().unwrap();
        (reopen(engine, dir.path()).unwrap(), dir)
    };
    engines.map(open).into()
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    for (origin, _dir) in every_engine() {
        let s = Subject::in_process(origin.clone());
        let first = s.write("a", "1").await;
        let second = s.write("a", "2").await;
        let fork = Subject::in_process(origin.freeze().await.unwrap().start());
        assert_eq!(fork.write("a", "fork").await.0, second.0 + 1);
        assert_eq!(s.write("a", "origin").await.0, second.0 + 1);
        assert_eq!(fork.read("a", None).await.unwrap().value, "fork");
        assert_eq!(s.read("a", None).await.unwrap().value, "origin");
        assert_eq!(fork.read("a", Some(first)).await.unwrap().value, "1");
        s.finish().await;
        assert_eq!(fork.read("a", Some(second)).await.unwrap().value, "2");
    }
}

#[tokio::test]
async fn the_history_of_a_fork_is_watched() {
    for (origin, _dir) in every_engine() {
        let first = commit(&*origin, vec![put("a/1", "x")]).await;
        commit(&*origin, vec![put("a/1", "y"), put("a/2", "z")]).await;
        let fork = origin.freeze().await.unwrap().start();
        origin.shutdown().await;
        let seen = Arc::new(Recorder::default());
        let _watch = fork.watch("a/", first, seen.clone()).await.unwrap();
        commit(&*fork, vec![Op::Delete { key: "a/1".into() }]).await;
        let events: Vec<(String, EventKind, u64)> = seen
            .look(|seen| seen.events.clone())
            .iter()
            .map(|e: &Event| {
                (
                    e.kv.key.to_string(),
                    e.kind.clone(),
                    e.kv.mod_revision.0 - first.0,
                )
            })
            .collect();
        let expected = [
            ("a/1", EventKind::Put, 1),
            ("a/2", EventKind::Put, 1),
            ("a/1", EventKind::Delete, 2),
        ];
        assert_eq!(events, expected.map(|(key, kind, at)| (key.into(), kind, at)));
    }
}

/// Both keys of a transaction are in a fork or neither, and every write that was acknowledged before it was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fork_has_whole_transactions_while_writes_run() {
    for (origin, _dir) in every_engine() {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (writer, ended, done) = (origin.clone(), stop.clone(), acknowledged.clone());
        let writing = tokio::spawn(async move {
            let mut n = 0u64;
            while !ended.load(Ordering::Acquire) && n < 20_000 {
                n += 1;
                let value = n.to_string();
                commit(&*writer, vec![put("left", &value), put("right", &value)]).await;
                done.store(n, Ordering::Release);
            }
        });
        for _ in 0..20 {
            let before = acknowledged.load(Ordering::Acquire);
            let fork = origin.freeze().await.unwrap().start();
            let (keys, _) = content(&*fork).await;
            let values: Vec<u64> = keys.iter().map(|(_, value)| value.parse().unwrap()).collect();
            if let [left, right] = values[..] {
                assert_eq!(left, right);
            }
            assert!(
                values.iter().all(|value| *value >= before),
                "{values:?} of {before}"
            );
            assert!(before == 0 || values.len() == 2);
        }
        stop.store(true, Ordering::Release);
        writing.await.unwrap();
    }
}

#[tokio::test]
async fn forks_of_forks_end_in_any_order() {
    let origin: Arc<dyn Store> = crate::memory();
    commit(&*origin, vec![put("a", "1")]).await;
    let frozen = origin.freeze().await.unwrap();
    let child = frozen.start();
    commit(&*child, vec![put("b", "2")]).await;
    let grandchild = child.freeze().await.unwrap().start();
    drop(frozen);
    origin.shutdown().await;
    drop(origin);
    child.shutdown().await;
    drop(child);
    commit(&*grandchild, vec![put("c", "3")]).await;
    let (keys, _) = content(&*grandchild).await;
    assert_eq!(keys.len(), 3);
}

#[tokio::test]
async fn a_stopped_store_is_not_forked() {
    for (store, _dir) in every_engine() {
        let frozen = store.freeze().await.unwrap();
        store.shutdown().await;
        for error in [
            store.freeze().await.expect_err("it is stopped"),
            store.reset(&frozen).await.expect_err("it is stopped"),
        ] {
            assert!(
                error.to_string().ends_with("the store has been shut down"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_reset_store_is_as_before_and_goes_on() {
    for (store, _dir) in every_engine() {
        commit(
            &*store,
            vec![put("changed", "1"), put("kept", "1"), put("removed", "1")],
        )
        .await;
        let frozen = store.freeze().await.unwrap();
        let (before, at) = content(&*store).await;
        assert_eq!(frozen.revision(), at);
        let seen = Arc::new(Recorder::default());
        let _watch = store.watch("", at, seen.clone()).await.unwrap();
        for _ in 0..2 {
            commit(&*store, vec![put("changed", "2"), put("added", "2")]).await;
            let removed = commit(
                &*store,
                vec![Op::Delete {
                    key: "removed".into(),
                }],
            )
            .await;
            let reset = store.reset(&frozen).await.unwrap();
            assert_eq!(reset.0, removed.0 + 1, "revisions go on");
            assert_eq!(content(&*store).await, (before.clone(), reset));
            // What is as it was is not written again.
            assert_eq!(store.reset(&frozen).await.unwrap(), reset);
            let kept = store.get("kept", None).await.unwrap().0.unwrap();
            assert_eq!(kept.mod_revision, at);
            let events: Vec<String> = seen
                .look(|seen| seen.events.clone())
                .iter()
                .filter(|e| e.kv.mod_revision == reset)
                .map(|e| format!("{:?} {}", e.kind, e.kv.key))
                .collect();
            assert_eq!(events, ["Delete added", "Put changed", "Put removed"]);
            let past = store.get("changed", Some(removed)).await.unwrap().0.unwrap();
            assert_eq!(past.value, "2", "history stays");
        }
    }
}

/// Writes that are acknowledged while a store is put back are before it or after it, never lost halfway.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_is_put_back_while_writes_run() {
    let store: Arc<dyn Store> = crate::memory();
    commit(&*store, vec![put("left", "0"), put("right", "0")]).await;
    let frozen = store.freeze().await.unwrap();
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for n in 1..2000u64 {
            commit(
                &*writer,
                vec![put("left", &n.to_string()), put("right", &n.to_string())],
            )
            .await;
        }
    });
    let mut last = Revision(0);
    while !writing.is_finished() {
        let at = store.reset(&frozen).await.unwrap();
        assert!(at >= last);
        last = at;
        let read = |key: &'static str| store.get(key, Some(at));
        let (left, right) = (
            read("left").await.unwrap().0.unwrap(),
            read("right").await.unwrap().0.unwrap(),
        );
        assert_eq!((&left.value[..], &right.value[..]), (&b"0"[..], &b"0"[..]));
    }
    writing.await.unwrap();
}

#[tokio::test]
async fn only_a_state_of_its_own_past_is_taken() {
    let origin: Arc<dyn Store> = crate::memory();
    commit(&*origin, vec![put("a", "1")]).await;
    let base = origin.freeze().await.unwrap();
    let child = base.start();
    commit(&*child, vec![put("a", "child")]).await;
    let of_child = child.freeze().await.unwrap();
    let grandchild = of_child.start();
    commit(&*origin, vec![put("a", "origin")]).await;
    let later = origin.freeze().await.unwrap();

    let value = async |store: &Arc<dyn Store>| store.get("a", None).await.unwrap().0.unwrap().value;
    for (store, state) in [(&origin, &of_child), (&child, &later), (&grandchild, &later)] {
        let refused = store.reset(state).await.expect_err("it never was so");
        assert!(refused.to_string().contains("its own past"), "{refused}");
    }
    grandchild.reset(&base).await.unwrap();
    assert_eq!(value(&grandchild).await, "1");
    grandchild.reset(&of_child).await.unwrap();
    assert_eq!(value(&grandchild).await, "child");
    child.reset(&base).await.unwrap();
    assert_eq!(value(&child).await, "1");
}

#[tokio::test]
async fn what_ends_by_itself_ends_after_a_fork_and_a_reset() {
    let origin: Arc<dyn Store> = crate::memory();
    let ttl = Some(Duration::from_millis(300));
    let short = Op::Put {
        key: "short".into(),
        value: "1".into(),
        ttl,
    };
    commit(&*origin, vec![short, put("long", "1")]).await;
    let frozen = origin.freeze().await.unwrap();
    let fork = frozen.start();
    commit(&*origin, vec![put("short", "1")]).await;
    origin.reset(&frozen).await.unwrap();
    for store in [&origin, &fork] {
        let seen = Recorder::new();
        let _watch = store
            .watch("short", frozen.revision(), seen.clone())
            .await
            .unwrap();
        seen.wait(|seen| seen.events.iter().any(|e| e.kind == EventKind::Delete))
            .await;
        assert!(store.get("short", None).await.unwrap().0.is_none());
        assert!(store.get("long", None).await.unwrap().0.is_some());
    }
}

/// What a hundred forks of a large store take is not a hundred times the store.
#[tokio::test]
async fn a_hundred_forks_share_what_they_have_in_common() {
    let origin = MvccStore::memory();
    let value = "x".repeat(2048);
    for hundred in 0..20 {
        let ops = (0..100).map(|n| put(&format!("k/{hundred:02}{n:02}"), &value));
        commit(&*origin, ops.collect()).await;
    }
    let frozen = origin.freeze().await.unwrap();
    let forks: Vec<Arc<dyn Store>> = (0..100).map(|_| FrozenStore::start(&*frozen)).collect();
    let pointer = |kv: Option<crate::KeyValue>| kv.unwrap().value.as_ptr();
    let first = pointer(origin.get("k/0000", None).await.unwrap().0);
    for (n, fork) in forks.iter().enumerate() {
        commit(&**fork, vec![put("own", &n.to_string())]).await;
        assert_eq!(pointer(fork.get("k/0000", None).await.unwrap().0), first);
    }
    for (n, fork) in forks.iter().enumerate() {
        let own = fork.get("own", None).await.unwrap().0.unwrap();
        assert_eq!(own.value, n.to_string());
    }
    assert!(origin.get("own", None).await.unwrap().0.is_none());
}
