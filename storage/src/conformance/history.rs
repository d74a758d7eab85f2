//! The past, compaction, time to live, the end.
#![allow(missing_docs)]

use std::time::Duration;

use bytes::Bytes;

use super::{DEADLINE, Recorder, Subject};
use crate::{EventKind, Op, RangeRequest, Revision, StorageError, Txn};

pub async fn reads_of_the_past(s: &Subject) {
    let created = s.write("a", "1").await;
    let updated = s.write("a", "2").await;
    let other = s.write("b", "x").await;
    let deleted = s.remove("a").await;
    let again = s.write("a", "3").await;
    for (at, expected) in [
        (created, Some("1")),
        (updated, Some("2")),
        (other, Some("2")),
        (deleted, None),
        (again, Some("3")),
    ] {
        let (pair, revision) = s.store.get(&s.key("a"), Some(at)).await.unwrap();
        assert_eq!(revision, at);
        assert_eq!(pair.map(|pair| pair.value), expected.map(Bytes::from));
    }
    let at = |rev| async move {
        s.list("", Some(rev))
            .await
            .into_iter()
            .map(|(name, value)| (name, value.to_vec()))
            .collect::<Vec<_>>()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    assert_eq!(at(updated).await, [pair("a", "2")]);
    assert_eq!(at(other).await, [pair("a", "2"), pair("b", "x")]);
    assert_eq!(at(deleted).await, [pair("b", "x")]);
    assert_eq!(at(again).await, [pair("a", "3"), pair("b", "x")]);
}

pub async fn reads_of_the_future_are_refused(s: &Subject) {
    s.write("a", "1").await;
    let future = Revision(s.store.fresh().await.unwrap().0 + 100_000);
    let error = s.store.get(&s.key("a"), Some(future)).await.unwrap_err();
    assert!(
        matches!(error, StorageError::FutureRevision { asked, .. } if asked == future),
        "{error:?}"
    );
    let request = RangeRequest {
        prefix: s.key(""),
        at: Some(future),
        ..Default::default()
    };
    let error = s.store.range(request).await.unwrap_err();
    assert!(matches!(error, StorageError::FutureRevision { .. }), "{error:?}");
}

pub async fn compacted_reads_are_refused(s: &Subject) {
    let first = s.write("a", "1").await;
    let second = s.write("a", "2").await;
    let third = s.write("a", "3").await;
    let info = s.store.compact(second).await.unwrap();
    assert!(info.oldest >= second);
    let error = s.store.get(&s.key("a"), Some(first)).await.unwrap_err();
    assert!(
        matches!(error, StorageError::Compacted { asked, .. } if asked == first),
        "{error:?}"
    );
    let request = RangeRequest {
        prefix: s.key(""),
        at: Some(first),
        ..Default::default()
    };
    let error = s.store.range(request).await.unwrap_err();
    assert!(matches!(error, StorageError::Compacted { .. }), "{error:?}");
    assert_eq!(s.read("a", Some(second)).await.unwrap().value, "2");
    assert_eq!(s.read("a", Some(third)).await.unwrap().value, "3");
    // Compacting to an older revision changes nothing.
    s.store.compact(first).await.unwrap();
    assert_eq!(s.read("a", Some(second)).await.unwrap().value, "2");
    let error = s.store.compact(Revision(third.0 + 100_000)).await.unwrap_err();
    assert!(matches!(error, StorageError::FutureRevision { .. }), "{error:?}");
}

pub async fn compaction_keeps_current_values(s: &Subject) {
    for round in 0..5 {
        for name in ["a", "b", "c"] {
            s.write(name, format!("{name}{round}")).await;
        }
    }
    s.remove("b").await;
    let newest = s.write("d", "d").await;
    s.store.compact(newest).await.unwrap();
    let expected =
        [("a", "a4"), ("c", "c4"), ("d", "d")].map(|(name, value)| (name.to_owned(), Bytes::from(value)));
    assert_eq!(s.list("", None).await, expected);
    assert_eq!(s.list("", Some(newest)).await, expected);
    s.write("b", "again").await;
    let later = s.write("a", "more").await;
    s.store.compact(later).await.unwrap();
    assert_eq!(s.list("", None).await.len(), 4);
    assert_eq!(s.read("c", None).await.unwrap().value, "c4");
}

async fn put_for(s: &Subject, name: &str, ttl: Option<Duration>) -> Revision {
    s.commit(
        vec![],
        vec![Op::Put {
            key: s.key(name),
            value: "x".into(),
            ttl,
        }],
    )
    .await
}

pub async fn keys_with_a_time_to_live_end(s: &Subject) {
    let seen = Recorder::new();
    let after = s.write("stays", "x").await;
    let _watch = s.store.watch(&s.key(""), after, seen.clone()).await.unwrap();
    let began = tokio::time::Instant::now();
    put_for(s, "ends", Some(Duration::from_secs(1))).await;
    let deleted = |events: &[crate::Event]| events.iter().any(|event| event.kind == EventKind::Delete);
    seen.wait(|seen| deleted(&seen.events)).await;
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "ended early, after {:?}",
        began.elapsed()
    );
    assert_eq!(s.read("ends", None).await, None);
    assert!(s.read("stays", None).await.is_some());
    seen.look(|seen| {
        let last = seen.events.last().unwrap();
        assert_eq!(
            (&*last.kv.key, last.kind.clone()),
            (&*s.key("ends"), EventKind::Delete)
        );
        assert_eq!(last.prev.as_ref().map(|prev| &prev.value[..]), Some(&b"x"[..]));
    });
}

pub async fn rewriting_resets_the_time_to_live(s: &Subject) {
    let short = Some(Duration::from_secs(1));
    put_for(s, "for-ever", short).await;
    put_for(s, "longer", short).await;
    put_for(s, "sentinel", short).await;
    put_for(s, "for-ever", None).await;
    put_for(s, "longer", Some(Duration::from_secs(3600))).await;
    let gone = async {
        while s.read("sentinel", None).await.is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone)
        .await
        .expect("the sentinel ends");
    assert!(s.read("for-ever", None).await.is_some());
    assert!(s.read("longer", None).await.is_some());
}

pub async fn shutdown_is_final(s: &Subject) {
    let revision = s.write("a", "1").await;
    let seen = Recorder::new();
    let _watch = s.store.watch(&s.key(""), revision, seen.clone()).await.unwrap();
    s.store.shutdown().await;
    s.store.shutdown().await;
    seen.wait(|seen| seen.closed.is_some()).await;
    #[track_caller]
    fn unavailable<T: std::fmt::Debug>(result: Result<T, StorageError>) {
        assert!(
            matches!(result, Err(StorageError::Unavailable { .. })),
            "{result:?}"
        );
    }
    unavailable(s.store.get(&s.key("a"), None).await);
    unavailable(
        s.store
            .range(RangeRequest {
                prefix: s.key(""),
                ..Default::default()
            })
            .await,
    );
    unavailable(
        s.store
            .commit(Txn {
                guards: vec![],
                ops: vec![s.put("a", "2")],
            })
            .await,
    );
    unavailable(s.store.watch(&s.key(""), revision, Recorder::new()).await);
    unavailable(s.store.fresh().await);
    unavailable(s.store.compact(revision).await);
    unavailable(s.store.status().await);
}
